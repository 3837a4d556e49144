// What the page of a run draws: accuracy over time and the diagnosis, as SVG.
"use strict";
const WIDTH = 960, RIGHT = 16, TOP = 12, BOTTOM = 112, SCORE = 10000;
const COLOURS = ["c8", "c2", "c3", "c7"], DASHES = ["", "2 2", "9 3 2 3", "8 2 2 2"];

const sum = (values) => values.reduce((a, b) => a + b, 0);
const words = (value) => (typeof value === "string" ? value : JSON.stringify(value));
const safe = (value) => words(value).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
const per = (part, whole, digits = 2) => (whole ? ((100 * part) / whole).toFixed(digits) : "–");

function unpack(lengths, whole) {
  const flags = lengths.flatMap((n, turn) => Array(n).fill(turn % 2 === 1));
  return flags.concat(Array(whole - flags.length).fill(false));
}

function ticks(low, high, about = 6) {
  let step = 10 ** Math.floor(Math.log10((high - low) / about));
  step *= [1, 2, 5, 10].find((f) => (high - low) / (f * step) <= about);
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, n) => +((first + n) * step).toFixed(10));
}

function runningMean(right, seen, window) {
  return right.map((_, end) => {
    const start = Math.max(0, end + 1 - window);
    return (100 * sum(right.slice(start, end + 1))) / Math.max(1, sum(seen.slice(start, end + 1)));
  });
}

// A frame over the batches of a stream: domains below, the axis at the left from `low` up.
function frame(stream, bottom, low, high, height, left, axis) {
  const length = stream.seen.length;
  const x = (batch) => left + (batch / length) * (WIDTH - left - RIGHT);
  const y = (v) => height - BOTTOM - ((v - bottom) / (high - bottom)) * (height - TOP - BOTTOM);
  const at = (a, b) => `${x(a).toFixed(1)} ${y(b).toFixed(1)}`;
  const parts = [];
  const rule = (a, b, kind) => parts.push(`<path class="${kind}" d="M${a}L${b}"/>`);
  const text = (a, b, what, anchor, turn) =>
    parts.push(
      `<text x="${a}" y="${b}" text-anchor="${anchor}"` +
        `${turn ? ` transform="rotate(${turn} ${a} ${b})"` : ""}>${safe(what)}</text>`,
    );
  const each = Math.ceil(stream.stops.length / 60);
  for (const [name, first, batches] of stream.stops.filter((_, n) => n % each === 0)) {
    rule(at(first, bottom), at(first, high), "grid");
    text(x(first + batches / 2) + 4, y(bottom) + 12, name, "end", -50);
  }
  for (const value of ticks(low, high)) {
    text(left - 6, y(value) + 4, String(value), "end");
    rule(at(0, value), at(length, value), "grid");
  }
  rule(at(0, low), at(0, high), "axis");
  rule(at(0, bottom), at(length, bottom), "axis");
  text(14, (y(low) + y(high)) / 2, axis, "middle", -90);
  const line = (values, colour, dash, width, name) => {
    let pen = "M";
    const path = values.map((value, n) => {
      if (value === null) return (pen = "M"), "";
      const step = pen + at(n + 0.5, value);
      pen = "L";
      return step;
    });
    parts.push(
      `<path class="${colour} line" stroke-width="${width}" stroke-dasharray="${dash || "none"}" ` +
        `d="${path.join("")}"><title>${safe(name)}</title></path>`,
    );
  };
  const svg = (extra, name) =>
    `<svg viewBox="0 0 ${WIDTH} ${height + extra}" role="img" aria-label="${safe(name)}">` +
    `${parts.join("")}</svg>`;
  return { x, y, parts, text, line, svg };
}

const figure = (drawing, caption) =>
  `<figure><div class="scroll">${drawing}</div><figcaption>${safe(caption)}</figcaption></figure>`;

function accuracyFigure(run, stream) {
  const sizes = stream.stops.map((stop) => stop[2]).sort((a, b) => a - b);
  const window = Math.max(1, Math.floor(sizes[Math.floor(sizes.length / 2)] / 2));
  const curve = runningMean(run.right, stream.seen, window);
  const low = Math.min(...curve) - 2, high = Math.max(...curve) + 2;
  const plot = frame(stream, low, low, high, 330, 56, "accuracy, %");
  plot.line(curve, "c4", "", 1.8, run.label);
  const caption = `Accuracy, running mean over the last ${window} batches.`;
  return figure(plot.svg(0, caption), caption);
}

function threshold(run) {
  if (typeof run.options.delta !== "number") return null;
  const all = Object.values(run.scores);
  return all[0].map((_, n) => {
    const known = all.map((values) => values[n]).filter((value) => value !== null);
    return known.length ? Math.min(...known) / SCORE + run.options.delta : null;
  });
}

function diagnosisFigure(run, stream) {
  const names = Object.keys(run.scores), length = stream.seen.length;
  if (!names.length) return "<p>This method makes no diagnosis.</p>";
  const scores = names.map((name) => run.scores[name].map((v) => (v === null ? null : v / SCORE)));
  const limit = threshold(run);
  const values = [...scores, limit ?? []].flat().filter((v) => v !== null);
  if (!values.length) return "<p>No batch of this run was diagnosed.</p>";
  const low = Math.min(...values) - 0.02, high = Math.max(...values) + 0.02;
  const strip = (high - low) / 12;
  const bottom = low - strip * (2 * names.length + 0.8);
  const plot = frame(stream, bottom, low, high, 450, 130, "redundancy");
  names.forEach((name, n) => plot.line(scores[n], COLOURS[n % 4], DASHES[n % 4], 1.5, name));
  if (limit) plot.line(limit, "c0", "", 1, "threshold");
  const truth = Array(length).fill(null);
  for (const [, damaged, first, batches] of stream.domains)
    truth.fill(damaged, first, first + batches);
  const rows = [
    ...names.map((name, n) => [`${name} named`, n, unpack(run.named[name], length), 0.9]),
    ...names.map((name, n) => [`${name} damaged`, n, truth.map((t) => t?.split("+").includes(name)), 0.45]),
  ];
  rows.forEach(([name, n, flags, opacity], row) => {
    const y = low - strip * (row + (row >= names.length ? 1.4 : 1.1));
    plot.text(124, plot.y(y) - 4, name, "end");
    flags.forEach((flag, batch) => {
      if (!flag || (batch && flags[batch - 1])) return;
      let end = batch;
      while (flags[end]) end += 1;
      plot.parts.push(
        `<rect class="${COLOURS[n % 4]}" fill="currentColor" opacity="${opacity}" ` +
          `x="${plot.x(batch).toFixed(1)}" width="${(plot.x(end) - plot.x(batch)).toFixed(1)}" ` +
          `y="${plot.y(y + 0.8 * strip).toFixed(1)}" ` +
          `height="${(plot.y(y) - plot.y(y + 0.8 * strip)).toFixed(1)}">` +
          `<title>${safe(`${name}: batches ${batch}–${end - 1}`)}</title></rect>`,
      );
    });
  });
  const entries = names.map((name, n) => [name, COLOURS[n % 4], DASHES[n % 4]]);
  if (limit) entries.push([`threshold: lowest score + ${run.options.delta}`, "c0", ""]);
  entries.forEach(([name, colour, dash], n) => {
    plot.parts.push(
      `<path class="${colour} line" stroke-width="1.6" stroke-dasharray="${dash || "none"}" ` +
        `d="M${130 + 130 * n} 464h34"/>`,
    );
    plot.text(170 + 130 * n, 468, name, "start");
  });
  const caption =
    "Redundancy of each modality. A modality is named where its score lies above the " +
    "threshold; the strips show what was named and, below, what was truly damaged.";
  return figure(plot.svg(28, caption), caption);
}
