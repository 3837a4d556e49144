// The page of one run, drawn when its address (#run-<key>) is opened. No network, no library.
"use strict";
const main = document.querySelector("main");
const page = document.getElementById("run");
const title = document.title;
let data = null;
let place = null; // where the reader was before opening a run: the address and how far down
let last = ""; // the address outside of runs

function table(head, rows, caption) {
  const cells = (row) =>
    row.map((c, n) => (n ? `<td>${safe(c)}</td>` : `<th scope="row">${safe(c)}</th>`)).join("");
  const columns = head.map((c, n) => `<th scope="col"${n ? "" : ' class="text"'}>${safe(c)}</th>`);
  return (
    `<figure><figcaption>${safe(caption)}</figcaption><div class="scroll"><table><thead><tr>` +
    `${columns.join("")}</tr></thead><tbody>` +
    `${rows.map((row) => `<tr>${cells(row)}</tr>`).join("")}</tbody></table></div></figure>`
  );
}

function domainTable(run, stream) {
  const length = stream.seen.length, updated = unpack(run.updated, length);
  const named = Object.entries(run.named).map(([name, n]) => [name, unpack(n, length)]);
  const { seen: judged, ...clean } = run.clean ?? {};
  const views = Object.keys(clean);
  const rows = stream.domains.map(([name, damaged, first, batches], place) => {
    const here = (values) => values.slice(first, first + batches);
    const flags = Array.from({ length: batches }, (_, n) =>
      named.filter(([, each]) => each[first + n]).map(([modality]) => modality),
    );
    const hits = flags.filter((each) => each.length && each.join("+") === damaged).length;
    return [
      name,
      per(sum(here(run.right)), sum(here(stream.seen))),
      String(here(updated).filter(Boolean).length),
      ...(named.length ? [String(flags.filter((e) => e.length).length), String(hits)] : []),
      String(batches),
      ...views.map((view) => per(clean[view][place + 1] ?? clean[view].at(-1), judged)),
    ];
  });
  const diagnosis = named.length ? ["something named", "rightly named"] : [];
  const after = views.map((view) => `clean after it, ${view}, %`);
  const head = ["domain", "accuracy, %", "updates", ...diagnosis, "batches", ...after];
  if (views.length) {
    const blank = Array(head.length - views.length - 1).fill("–");
    rows.unshift(["before", ...blank, ...views.map((view) => per(clean[view][0], judged))]);
  }
  return table(head, rows, "Domain by domain, counts of batches");
}

function facts(run, stream, key) {
  const setting = data.settings[run.setting];
  const whole = sum(stream.seen), right = sum(run.right);
  const seconds = Object.entries(run.cost.seconds ?? {}).map(([n, s]) => `${n} ${s} s`);
  const updates = unpack(run.updated, stream.seen.length).filter(Boolean).length;
  const rejected = run.rejected.map(([batch, why]) => `batch ${batch}: ${why}`);
  const returned = run.rollbacks.map(([batch, why]) => `after batch ${batch}: ${why}`);
  const rows = [
    ["right", `${right.toLocaleString("en")} of ${whole.toLocaleString("en")}`],
    ["updates", `${updates} in ${stream.seen.length} batches`],
    ["rejected", rejected.join("; ") || "none"],
    ...(returned.length ? [["rolled back", returned.join("; ")]] : []),
    ["method", run.method],
    ["options", Object.entries(run.options).map(([n, v]) => `${n} = ${words(v)}`).join(", ")],
    ["model", `${run.replicate}${run.digest ? `, weights ${run.digest}` : ""}`],
    ...Object.entries(setting).map(([name, value]) => [name, value]),
    ["cost", [...seconds, `${run.cost.samples_per_second ?? "–"} samples/s`].join(", ")],
    ["peak memory", `${run.cost.peak_mib ?? "–"} MiB`],
    ["finished", run.cost.finished ?? "unknown"],
    ...(run.skipped.length ? [["skipped", run.skipped]] : []),
    ["result", key],
  ];
  const pairs = rows.map(([name, value]) => `<dt>${safe(name)}</dt><dd>${safe(value ?? "–")}</dd>`);
  return `<dl>${pairs.join("")}</dl>`;
}

function links(key, run) {
  const keys = Object.keys(data.runs), here = keys.indexOf(key);
  const back = run.sections.map((n) => data.sections[n]);
  const step = (to, name) =>
    keys[to] ? `<a href="#run-${safe(keys[to])}" rel="${name}">${name} run</a>` : "";
  const up = back.map(([id, name]) => `<a href="#${safe(id)}">↑ ${safe(name)}</a>`);
  return `<nav aria-label="Run">${[...up, step(here - 1, "previous"), step(here + 1, "next")].join(" ")}</nav>`;
}

function draw(key) {
  data ??= JSON.parse(document.getElementById("run-data").textContent);
  const run = Object.hasOwn(data.runs, key) ? data.runs[key] : null;
  if (!run) {
    page.innerHTML = '<h2 tabindex="-1">No such run</h2><p><a href="#top">Back to the report</a></p>';
    return;
  }
  const stream = data.streams[run.stream];
  const accuracy = per(sum(run.right), sum(stream.seen));
  const name = `${run.label}, ${run.protocol}, ${run.replicate}: ${accuracy} %`;
  page.innerHTML =
    `${links(key, run)}<h2 tabindex="-1">${safe(name)}</h2>${accuracyFigure(run, stream)}` +
    `${diagnosisFigure(run, stream)}${domainTable(run, stream)}${facts(run, stream, key)}`;
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
    return;
  }
  last = location.hash;
  page.replaceChildren();
  document.title = title;
  const target = document.getElementById(last.slice(1));
  if (place && place.hash === last) scrollTo(0, place.y);
  else if (target) target.scrollIntoView();
  place = null;
}

addEventListener("hashchange", go);
addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || page.hidden) return;
  if (place) location.hash = place.hash;
  else page.querySelector("a").click();
});
if (location.hash.startsWith("#run-")) go();
else last = location.hash;
