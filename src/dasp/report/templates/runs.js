// Draws the page of one run when its address (#run-<key>) is opened.
"use strict";
const main = document.querySelector("main"), page = document.getElementById("run");
const title = document.title;
let data = null;
let last = "", place = null; // the address outside of runs, and how far down the reader was there

const safe = (text) => String(text).replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
const sum = (values) => values.reduce((total, value) => total + value, 0);
const percent = (part, whole) => (whole ? ((100 * part) / whole).toFixed(1) : "–");
const words = (value) => (typeof value === "object" ? JSON.stringify(value) : String(value));

// Lines over batches; below them one strip per modality, tinted where it is damaged, filled where named.
function chart(lines, stream, caption, named = {}) {
  const left = 84, right = 850, top = 10, low = 210, length = stream.seen.length;
  const strips = Object.keys(named), foot = low + 6 + 20 * strips.length;
  const values = lines.flatMap((line) => line.values).filter((value) => value !== null);
  const least = Math.min(...values), most = Math.max(...values), range = most - least || 1;
  const x = (batch) => (left + ((right - left) * batch) / length).toFixed(1);
  const y = (value) => (low - ((low - top) * (value - least)) / range).toFixed(1);
  const ticks = [0, 1, 2, 3, 4].map((n) => least + (range * n) / 4);
  const parts = ticks.map((value) =>
    `<path d="M${left} ${y(value)}H${right}" stroke="currentColor" opacity=".15"/>` +
    `<text x="${left - 6}" y="${+y(value) + 4}" text-anchor="end">${value.toFixed(range < 5 ? 2 : 0)}</text>`);
  const every = Math.ceil(stream.stops.length / 32);
  stream.stops.forEach(([name, first, batches], n) => {
    if (n % every) return;
    const at = x(first + batches / 2);
    parts.push(
      `<path d="M${x(first)} ${top}V${foot}" stroke="currentColor" opacity=".12"/>` +
      `<text transform="translate(${at} ${foot + 14}) rotate(-45)" text-anchor="end">${safe(name)}</text>`);
  });
  for (const line of lines) {
    const path = line.values.map((v, n) => (v === null ? "" : `${n && line.values[n - 1] !== null ? "L" : "M"}${x(n + 0.5)} ${y(v)}`));
    parts.push(`<path d="${path.join("")}" fill="none" stroke="${line.colour}" stroke-width="1.6"/>`);
    parts.push(`<text x="${left + 4 + 90 * lines.indexOf(line)}" y="${top + 2}" fill="${line.colour}">${safe(line.name)}</text>`);
  }
  strips.forEach((name, row) => {
    const at = low + 20 * row + 10, colour = `fill="${lines[row].colour}"`;
    const bar = (first, batches, more) =>
      `<rect x="${x(first)}" y="${at}" width="${x(first + batches) - x(first)}" height="14" ${colour} ${more}/>`;
    parts.push(`<text x="${left - 6}" y="${at + 11}" text-anchor="end">${safe(name)}</text>`);
    for (const [, damage, first, batches] of stream.domains)
      if (damage.split("+").includes(name)) parts.push(bar(first, batches, 'opacity=".2"'));
    for (const batch of named[name]) parts.push(bar(batch, 1, 'transform="translate(0 4)" style="height:6px"'));
  });
  const size = `viewBox="0 0 860 ${foot + 110}" role="img" aria-label="${safe(caption)}"`;
  return `<figure><div class="scroll"><svg ${size} fill="currentColor">${parts.join("")}</svg></div><figcaption>${safe(caption)}</figcaption></figure>`;
}

function domainTable(run, stream) {
  const { seen: judged, ...clean } = run.clean ?? {}, views = Object.keys(clean);
  const head = ["domain", "accuracy, %", "batches", ...views.map((view) => `clean after it, ${view}, %`)];
  const rows = stream.domains.map(([name, , , batches], n) => [
    name, percent(run.domains[n], stream.samples[n]), batches,
    ...views.map((view) => percent(clean[view][n + 1] ?? clean[view].at(-1), judged)),
  ]);
  const cells = (row, tag) => row.map((cell, n) => (n ? `<${tag}>${safe(cell)}</${tag}>` : `<th scope="row">${safe(cell)}</th>`)).join("");
  return `<div class="scroll"><table><thead><tr>${cells(head, "th")}</tr></thead><tbody>${rows.map((row) => `<tr>${cells(row, "td")}</tr>`).join("")}</tbody></table></div>`;
}

function draw(key) {
  data ??= JSON.parse(document.getElementById("run-data").textContent);
  const run = Object.hasOwn(data.runs, key) ? data.runs[key] : null;
  if (!run) {
    page.innerHTML = '<h2 tabindex="-1">There is no such run</h2><p><a href="#top">Back to the report</a></p>';
    return;
  }
  const stream = data.streams[run.stream], keys = Object.keys(data.runs), here = keys.indexOf(key);
  const name = `${run.label}, ${run.protocol}, ${run.replicate}: ${percent(sum(run.right), sum(stream.seen))} %`;
  const step = (to, text) => (keys[to] ? `<a href="#run-${safe(keys[to])}">${text} run</a>` : "");
  const up = run.sections.map((n) => `<a href="#${safe(data.sections[n][0])}">↑ ${safe(data.sections[n][1])}</a>`);
  const window = Math.max(1, Math.round(stream.seen.length / stream.stops.length / 4));
  const mean = run.right.map((_, n) => {
    const part = [Math.max(0, n + 1 - window), n + 1];
    return (100 * sum(run.right.slice(...part))) / sum(stream.seen.slice(...part));
  });
  const scores = Object.entries(run.scores).map(([modality, values], n) => ({
    name: modality, colour: ["#8a1c3b", "#1f4fa3", "#00805d", "#a87400"][n % 4], values,
  }));
  const facts = { ...run.facts, key };
  const smooth = window > 1 ? `running mean over ${window} batches` : "of each batch";
  page.innerHTML =
    `<nav aria-label="Run">${[...up, step(here - 1, "previous"), step(here + 1, "next")].join(" ")}</nav>` +
    `<h2 tabindex="-1">${safe(name)}</h2>` +
    chart([{ name: "accuracy, %", colour: "#c74a00", values: mean }], stream, `Accuracy along the stream, ${smooth}.`) +
    (scores.length ? chart(scores, stream, "Diagnostic scores. Below: tinted where the modality is damaged, a bar where it was named.", run.named) : "") +
    domainTable(run, stream) +
    `<dl>${Object.entries(facts).map(([term, value]) => `<dt>${safe(term)}</dt><dd>${safe(words(value))}</dd>`).join("")}</dl>`;
  document.title = `${name} · ${title}`;
}

function go() {
  const open = location.hash.startsWith("#run-");
  if (open && !main.hidden) place = { hash: last, y: scrollY };
  main.hidden = open;
  page.hidden = !open;
  if (open) {
    draw(decodeURIComponent(location.hash.slice(5)));
    scrollTo(0, 0);
    page.querySelector("h2").focus({ preventScroll: true });
  } else {
    page.replaceChildren();
    document.title = title;
    last = location.hash;
    if (place?.hash === last) scrollTo(0, place.y);
    else document.getElementById(last.slice(1))?.scrollIntoView();
    place = null;
  }
}
addEventListener("hashchange", go);
go();
