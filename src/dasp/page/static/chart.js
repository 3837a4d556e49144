// A line chart over the batches shown. All charts share one left margin, so that times align.

import { html, path, scale, svg, ticks } from "./draw.js";

export const LEFT = 60;
const RIGHT = 10;
const TOP = 6;
const BOTTOM = 20;
const FEWEST = 40; // batches on the axis at least

// The batches that fit into a width, and the x position of each.
export function times(points, width) {
  const count = Math.round(Math.min(200, Math.max(48, (width - LEFT) / 8)));
  const shown = points.slice(-count);
  const first = shown.length ? shown[0].n : 0;
  const last = Math.max(first + FEWEST - 1, shown.length ? shown.at(-1).n : 0);
  return { shown, first, last, x: scale(first - 0.5, last + 0.5, LEFT, width - RIGHT) };
}

// `series`: [{label, colour, dash, wide, value(point), soft}]; soft series are not in the legend.
export class Chart {
  constructor(place, { title, about, series, range, format, log = false, height = 190 }) {
    Object.assign(this, { title, series, range, format, log, height });
    this.legend = html("p", { class: "legend" });
    this.drawing = svg("svg", { role: "img", height });
    this.box = html("figure", { class: "card chart" }, html("h2", {}, title), this.legend);
    this.box.append(this.drawing, html("figcaption", { class: "soft" }, about));
    this.values = series.map((one) => this.#entry(one));
    place.append(this.box);
  }

  #entry(one) {
    if (one.soft) return null;
    const value = html("b", {}, "–");
    const mark = svg("svg", { class: "swatch", width: 30, height: 10, "aria-hidden": "true" });
    mark.append(svg("path", { ...this.#stroke(one), d: "M1 5H29" }));
    this.legend.append(html("span", {}, mark, ` ${one.label} `, value));
    return value;
  }

  #stroke(one) {
    const width = one.wide ? 2.6 : 1.8;
    return { class: `stroke ${one.colour}`, "stroke-dasharray": one.dash || "none", "stroke-width": width };
  }

  draw(points, changes) {
    const width = this.drawing.clientWidth;
    if (!width) return;
    const { shown, first, last, x } = times(points, width);
    const values = this.series.map((one) => shown.map((point) => one.value(point) ?? null));
    const all = values.flat().filter((value) => value != null);
    const [low, high] = this.range(all);
    const y = scale(low, high, this.height - BOTTOM, TOP, this.log);
    const parts = [];
    for (const place of ticks(low, high, 4, this.log)) {
      parts.push(svg("path", { class: "grid", d: `M${LEFT} ${y(place)}H${width - RIGHT}` }));
      parts.push(svg("text", { x: LEFT - 6, y: y(place) + 4, "text-anchor": "end" }, this.format(place, true)));
    }
    for (const n of changes) {
      if (n > first) parts.push(svg("path", { class: "change", d: `M${x(n - 0.5)} ${TOP}V${this.height - BOTTOM}` }));
    }
    parts.push(...timeAxis(first, last, x, this.height, width));
    this.series.forEach((one, place) => {
      const pairs = shown.map((point, i) => [x(point.n), values[place][i]]);
      parts.push(svg("path", { ...this.#stroke(one), d: path(pairs, y), "data-series": one.label }));
      const now = values[place].at(-1);
      if (this.values[place]) this.values[place].textContent = this.format(now);
      if (now != null && !one.soft) {
        parts.push(svg("circle", { class: `fill ${one.colour}`, cx: x(shown.at(-1).n), cy: y(now), r: 3.2 }));
      }
    });
    this.drawing.replaceChildren(...parts);
    this.drawing.setAttribute("aria-label", `${this.title}. ${this.#spoken(values)}`);
  }

  #spoken(values) {
    const words = this.series.map((one, place) => `${one.label} ${this.format(values[place].at(-1))}`);
    return `Now: ${words.join(", ")}.`;
  }
}

export function timeAxis(first, last, x, height, width) {
  const parts = [];
  for (const n of ticks(first, last, width < 500 ? 3 : 6)) {
    if (n % 1 || n < first) continue;
    parts.push(svg("text", { x: x(n), y: height - 5, "text-anchor": "middle" }, n === 0 ? "batch 0" : n));
  }
  return parts;
}
