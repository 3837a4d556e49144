// The charts of a page, chosen by what the feed provides.

import { Bands } from "./bands.js";
import { Chart } from "./chart.js";
import { html } from "./draw.js";
import { laneLook, listed, modalityLook, percent, plain, short } from "./look.js";

export class Charts {
  constructor(place, about) {
    place.replaceChildren();
    this.about = about;
    this.place = place;
    this.all = about.lanes.length ? [this.#accuracy()] : [];
    this.all.push(new Bands(place, about), this.#scores());
    this.norms = null;
    this.parts = "";
    if (!about.lanes.length) this.all.push(this.#loss());
  }

  draw(points) {
    this.#followNorms(points.at(-1));
    const changes = changesOf(points);
    for (const chart of this.all) chart.draw(points, changes);
    if (this.norms) this.norms.draw(points, changes);
  }

  #scores() {
    const { modalities, profile: log, watched, mode } = this.about;
    const series = modalities.flatMap((name) => {
      const look = modalityLook(name, modalities);
      const limit = { ...look, label: `threshold of ${plain(name)}`, dash: "1 3", soft: true, value: (p) => p.limits[name] };
      return [{ ...look, wide: true, label: plain(name), value: (p) => p.scores[name] }, limit];
    });
    const one = { label: "threshold", colour: "ink", dash: "1 3", value: (p) => common(p.limits) };
    const range = (all) => (log ? [0.1, Math.max(10, ...all) * 1.3] : [0, Math.max(0.5, ...all) * 1.08]);
    const title = log ? "Distance from clean" : "Redundancy";
    const about = `How ${log ? "far each sensor is from clean" : "redundant each sensor’s features are"}; above the dotted threshold${mode === "monitor" ? " (if the log tells it)" : ""} ${watched} calls it biased.`;
    return new Chart(this.place, { title, about, series: [...series, one], range, log, format: short });
  }

  #accuracy() {
    const { lanes, window } = this.about;
    const series = lanes.map((name) => ({ ...laneLook(name, lanes), label: name, value: (p) => p.accuracy[name] }));
    const range = (all) => (all.length ? tenths(Math.min(...all), Math.max(...all)) : [0, 1]);
    const format = (share, axis) => (axis ? `${Math.round(100 * share)}%` : percent(share));
    const about = `Share of right predictions in the last ${window} batches.`;
    return new Chart(this.place, { title: "Running accuracy", about, series, range, format, height: 230 });
  }

  #loss() {
    const series = [{ label: "loss", colour: "l2", dash: "", wide: true, value: (p) => p.loss }];
    const range = (all) => (all.length ? padded(Math.min(...all), Math.max(...all)) : [0, 1]);
    return new Chart(this.place, { title: "Loss", about: "Of the batches that were learned from.", series, range, format: (loss) => loss?.toFixed(3) ?? "–" });
  }

  // The trained parts are known only from the first batch on.
  #followNorms(point) {
    const parts = Object.keys(point?.norms ?? {});
    if (!parts.length || parts.join() === this.parts) return;
    this.parts = parts.join();
    this.norms?.box.remove();
    const { modalities, watched } = this.about;
    const series = parts.map((part) => {
      const [name, kind] = part.split(" ");
      const look = modalities.includes(name) ? modalityLook(name, modalities) : { colour: "ink" };
      const stable = kind === "stable";
      return { ...look, label: plain(part), dash: stable ? "2 3" : "", wide: !stable, value: (p) => p.norms[part] };
    });
    const about = `How far the adapters of ${watched} are from where they began. One that rests stays level.`;
    const range = (all) => [0, Math.max(1e-6, ...all) * 1.08];
    this.norms = new Chart(this.place, { title: "What has been learned", about, series, range, format: short });
  }
}

// The batches at which the damage changed.
export function changesOf(points) {
  const word = (point) => JSON.stringify(point.truth);
  return points.filter((point, i) => i && word(point) !== word(points[i - 1])).map((point) => point.n);
}

export function verdict(point, about) {
  if (!Object.keys(point.scores).length) return `${about.watched} makes no diagnosis.`;
  const sure = (name) => (point.probability?.[name] == null ? "" : ` (${Math.round(100 * point.probability[name])}% sure)`);
  const found = listed(point.biased.map((name) => plain(name) + sure(name)));
  return found ? `${about.watched} says: ${found} ${point.biased.length > 1 ? "look" : "looks"} damaged.` : `${about.watched} says: nothing looks damaged.`;
}

// Accuracy since the start, one tile per lane, each compared with the first.
export function tiles(point, { lanes }) {
  const all = point?.overall ?? {};
  return lanes.filter((name) => all[name] != null).map((name, place) => {
    const more = 100 * (all[name] - all[lanes[0]]);
    const gain = place ? `${more < 0 ? "−" : "+"}${Math.abs(more).toFixed(1)}` : "as trained";
    const look = laneLook(name, lanes);
    return html("li", { class: look.colour }, html("b", {}, percent(all[name])), html("span", {}, name), html("small", {}, gain));
  });
}

function common(limits) {
  const values = Object.values(limits);
  return values.length && values.every((one) => one === values[0]) ? values[0] : null;
}

// Round a range of shares outwards to whole tenths, at least two of them.
function tenths(low, high) {
  const top = Math.min(10, Math.ceil(10 * high + 0.2));
  return [Math.max(0, Math.min(top - 2, Math.floor(10 * low - 0.2))) / 10, top / 10];
}

function padded(low, high) {
  const room = (high - low || 1) * 0.08;
  return [low - room, high + room];
}
