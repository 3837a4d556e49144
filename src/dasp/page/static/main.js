// Put the page together: keep the news that come in and draw them once per animation frame.

import { Charts, tiles, verdict } from "./charts.js";
import { Connection } from "./connection.js";
import { Controls, wire } from "./controls.js";
import { wireDrop } from "./dropped.js";
import { savePng } from "./export.js";
import { listed, plain } from "./look.js";
import { Samples } from "./samples.js";
import { Story } from "./story.js";

const KEPT = 600; // points, as many as the server keeps
const CALM = 1200; // milliseconds between two announcements of a screen reader

const find = (id) => document.getElementById(id);
const page = { points: [], samples: null, state: {}, about: null };
let charts, samples, controls, story, drawn, spoken = 0;

const address = new URL("ws", location.href);
address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
history.replaceState(null, "", location.pathname); // the cookie holds the token: hide it from the address
const line = new Connection(address, { news: take, status: tell });
const send = (command) => line.send(command);
wire(send, () => controls);
wireTheme();
wireDrop(() => page.about, complain);
find("png").addEventListener("click", () => savePng(find("title").textContent, charts));
addEventListener("resize", later);

function take(message) {
  if (message.kind === "error") return complain(message.message);
  if (message.about && JSON.stringify(message.about) !== JSON.stringify(page.about)) begin(message.about);
  if (message.fresh) page.points = [];
  page.points.push(...message.points);
  page.points.splice(0, page.points.length - KEPT);
  if ("samples" in message) page.samples = message.samples;
  if (message.state) page.state = message.state;
  later();
}

function begin(about) {
  page.about = about;
  document.title = about.title;
  find("title").textContent = about.title;
  find("legend").textContent = about.legend;
  document.body.dataset.mode = about.mode;
  charts = new Charts(find("charts"), about);
  samples = new Samples(find("samples"), about);
  controls = new Controls(about, send);
  story = new Story(about, send);
  find("dropped").hidden = !about.drops;
  find("help").hidden = about.mode !== "demo";
}

function later() {
  drawn ??= requestAnimationFrame(() => {
    drawn = undefined;
    if (page.about) draw();
  });
}

function draw() {
  const last = page.points.at(-1);
  controls.show(page.state);
  story.show(page.state);
  charts.draw(page.points);
  samples.draw(page.samples);
  document.body.dataset.batches = last ? last.n + 1 : 0;
  find("place").textContent = last ? `batch ${last.n}${moment(last)}` : "before the first batch";
  say(last ? verdict(last, page.about) : "Back at the source state: nothing has been learned.", last);
  find("really").textContent = last ? really(last) : "";
  find("miss").hidden = !last?.miss;
  find("miss").textContent = last?.miss ?? "";
  find("overall").replaceChildren(...tiles(last, page.about));
  find("idle").textContent = idle(last);
  const note = page.state.note || noted(last);
  find("note").hidden = !note;
  find("note").textContent = note;
}

// The last note, however old: nobody watches every batch of a log.
function noted(last) {
  const point = page.points.findLast((one) => one.note);
  if (!point) return "";
  return point === last ? point.note : `Batch ${point.n}: ${point.note}`;
}

// Why the last batch taught nothing, unless its note says so already.
function idle(last) {
  if (!last?.skipped || last.note === last.skipped) return "";
  return `Nothing learned from batch ${last.n}: ${last.skipped}.`;
}

function moment({ time }) { // seconds since 1970, for batches from a log
  return time ? `, at ${new Date(1000 * time).toLocaleString()}` : "";
}

// Change what is read aloud at most once per CALM; a later drawing brings what was held back.
function say(words, point) {
  const place = find("diagnosis");
  find("verdict").dataset.biased = (point?.biased ?? []).join(" ");
  if (place.textContent === words) return;
  const rest = spoken + CALM - performance.now();
  if (rest > 0 && page.state.playing) return void setTimeout(later, rest);
  place.textContent = words;
  spoken = performance.now();
}

function really({ truth }) {
  if (!truth) return "";
  if ("" in truth) return `This stretch of the stream: ${truth[""]}.`;
  const words = Object.entries(truth).map(([name, damage]) => `${plain(name)}, ${damage}`);
  return words.length ? `Really damaged: ${listed(words)}.` : "Really: all sensors are clean.";
}

function tell(status, pause) {
  const words = { live: "live", connecting: "connecting …", lost: `connection lost, again in ${Math.ceil(pause / 1000)} s` };
  find("line").textContent = words[status];
  document.body.dataset.line = status;
}

let hide;
function complain(text) {
  find("error").textContent = text;
  find("error").hidden = false;
  clearTimeout(hide);
  hide = setTimeout(() => (find("error").hidden = true), 6000);
}

function wireTheme() {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const kept = () => { try { return localStorage.getItem("dasp-theme"); } catch { return null; } };
  if (kept()) root.dataset.theme = kept();
  find("theme").addEventListener("click", () => {
    const dark = (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("dasp-theme", root.dataset.theme); } catch { /* a private window */ }
  });
}
