// Helpers for drawing: HTML and SVG elements, and the scales of an axis.

const SVG = "http://www.w3.org/2000/svg";

export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

export function html(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// A scale from values [low, high] to pixels [bottom, top], logarithmic if asked for.
export function scale(low, high, bottom, top, log = false) {
  const map = log ? (v) => Math.log10(Math.max(v, low)) : (v) => v;
  const [from, to] = [map(low), map(high)];
  return (value) => bottom + ((map(value) - from) / (to - from || 1)) * (top - bottom);
}

// About `count` round values for an axis.
export function ticks(low, high, count, log = false) {
  if (log) {
    const places = [];
    for (let power = Math.ceil(Math.log10(low)); 10 ** power <= high; power++) places.push(10 ** power);
    return places;
  }
  const rough = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((one) => one * power >= rough) * power;
  const places = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + 1e-9; n++) places.push(n * step);
  return places;
}

// The line through [x, value] pairs; a value of null breaks it.
export function path(pairs, y) {
  let pen = "M";
  let text = "";
  for (const [x, value] of pairs) {
    if (value == null) {
      pen = "M";
      continue;
    }
    text += `${pen}${x.toFixed(1)} ${y(value).toFixed(1)}`;
    pen = "L";
  }
  return text;
}
