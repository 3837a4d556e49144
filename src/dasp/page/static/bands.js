// Two bands over time, real damage and diagnosis, each with one row per modality.

import { html, svg } from "./draw.js";
import { LEFT, timeAxis, times } from "./chart.js";
import { listed, modalityLook, plain } from "./look.js";

const ROW = 20;
const GAP = 5;
const AXIS = 20;
const HEAD = 16;

export class Bands {
  constructor(place, about) {
    this.modalities = about.modalities;
    this.watched = about.watched;
    this.drawing = svg("svg", { role: "img" });
    const said = "Filled: the sensor was damaged, or diagnosed, in these batches.";
    this.box = html("figure", { class: "card chart" }, html("h2", {}, "Damage and diagnosis"));
    this.box.append(this.drawing, html("figcaption", { class: "soft" }, said));
    place.append(this.box);
  }

  draw(points) {
    const width = this.drawing.clientWidth;
    if (!width) return;
    const { shown, first, last, x } = times(points, width);
    const rows = this.#rows(shown);
    const heads = rows.filter((row) => row.head).length;
    const height = rows.length * ROW + heads * HEAD + (heads > 1 ? GAP : 0) + AXIS;
    this.drawing.setAttribute("height", height);
    const parts = [hatches()];
    let y = 0;
    for (const row of rows) {
      if (row.head) {
        y += HEAD + (row === rows[0] ? 0 : GAP);
        parts.push(svg("text", { class: "head", x: LEFT, y: y - 4 }, row.head));
      }
      parts.push(...this.#row(row, shown, x, y, width));
      y += ROW;
    }
    parts.push(...timeAxis(first, last, x, height, width));
    this.drawing.replaceChildren(...parts);
    const now = shown.at(-1);
    this.drawing.setAttribute("aria-label", now ? `Now diagnosed: ${listed(now.biased.map(plain)) || "nothing"}.` : "");
  }

  #rows(shown) {
    const rows = [];
    const known = shown.some((point) => point.truth);
    const whole = shown.some((point) => point.truth && "" in point.truth);
    if (known && whole) rows.push({ head: "what comes", name: "stream", colour: "m3", hatch: "hatch3", word: (p) => p.truth?.[""] ?? null });
    const damaged = known && !whole ? this.modalities : [];
    damaged.forEach((name, place) => {
      const look = modalityLook(name, this.modalities);
      rows.push({ ...look, head: place ? "" : "really damaged", name, word: (p) => p.truth?.[name] ?? null });
    });
    this.modalities.forEach((name, place) => {
      const look = modalityLook(name, this.modalities);
      const word = (p) => (p.missing.includes(name) ? "missing" : p.biased.includes(name) ? "biased" : null);
      rows.push({ ...look, head: place ? "" : `diagnosed by ${this.watched}`, name, word, said: true });
    });
    return rows;
  }

  #row(row, shown, x, y, width) {
    const base = { x: LEFT, y: y + 1, width: width - LEFT - 10, height: ROW - 2, class: "track" };
    const parts = [svg("rect", base)];
    parts.push(svg("text", { x: LEFT - 6, y: y + ROW / 2 + 4, "text-anchor": "end" }, fitted(plain(row.name), LEFT)));
    for (const { from, to, word } of stretches(shown, row.word)) {
      const [left, right] = [x(from - 0.5), x(to + 0.5)];
      const area = { x: left, y: y + 1, width: Math.max(right - left - 1, 1), height: ROW - 2 };
      const kind = word === "missing" ? "missing" : row.colour;
      parts.push(svg("rect", { ...area, class: `band ${kind}`, "data-row": row.name, "data-said": !!row.said }));
      parts.push(svg("rect", { ...area, fill: `url(#${row.hatch})` }));
      const fitting = row.said && right - left < 40 ? "" : fitted(word, right - left - 6);
      if (fitting) {
        parts.push(svg("text", { class: "on", x: (left + right) / 2, y: y + ROW / 2 + 4, "text-anchor": "middle" }, fitting));
      }
    }
    return parts;
  }
}

// Shorten a word to what fits into a width.
function fitted(word, width) {
  const room = Math.floor(width / 6.4);
  return word.length <= room ? word : room > 3 ? `${word.slice(0, room - 1).trim()}…` : "";
}

// Join neighbouring points with the same word: [{from, to, word}].
export function stretches(points, word) {
  const found = [];
  for (const point of points) {
    const now = word(point);
    const open = found.at(-1);
    if (open && open.word === now && open.to === point.n - 1) open.to = point.n;
    else if (now != null) found.push({ from: point.n, to: point.n, word: now });
  }
  return found;
}

function hatches() {
  const lines = ["M0 8L8 0", "M0 0L8 8", "M4 0V8", "M0 4H8", "M0 0L8 8M0 8L8 0"];
  const patterns = lines.map((d, place) => {
    const pattern = svg("pattern", { id: `hatch${place}`, width: 8, height: 8, patternUnits: "userSpaceOnUse" });
    pattern.append(svg("path", { class: "hatch", d }));
    return pattern;
  });
  return svg("defs", {}, ...patterns);
}
