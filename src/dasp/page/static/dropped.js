// Samples dropped on the page: sent to the server, answered with predictions.

import { html } from "./draw.js";
import { percent } from "./look.js";

export function wireDrop(about, complain) {
  const place = document.getElementById("dropped");
  const answer = document.getElementById("answer");
  const send = async (files) => {
    if (!files.length || !about()?.drops) return;
    answer.replaceChildren("…");
    try {
      const pairs = await Promise.all([...files].map(async (file) => [file.name, await base64(file)]));
      const body = JSON.stringify({ files: Object.fromEntries(pairs) });
      const reply = await fetch("sample", { method: "POST", body });
      if (!reply.ok) throw new Error(await reply.text());
      answer.replaceChildren(...shown(await reply.json()));
    } catch (error) {
      answer.replaceChildren(html("p", { class: "warn" }, error.message));
      complain(error.message);
    }
  };
  document.getElementById("files").addEventListener("change", (event) => {
    send(event.target.files);
  });
  // Anywhere on the page: a file that misses the box must not open in the browser instead.
  addEventListener("dragover", (event) => {
    event.preventDefault();
    place.classList.toggle("over", !!about()?.drops);
  });
  addEventListener("dragleave", () => place.classList.remove("over"));
  addEventListener("drop", (event) => {
    event.preventDefault();
    place.classList.remove("over");
    send(event.dataTransfer.files);
  });
}

function shown(sample) {
  const pictures = Object.entries(sample.pictures).map(([name, url]) => html("img", { src: url, alt: `${name} of your sample`, title: name }));
  const lines = Object.entries(sample.predictions).map(([lane, said]) =>
    html("tr", {}, html("th", { scope: "row" }, lane), html("td", {}, said.class), html("td", {}, percent(said.share))));
  return [html("p", { class: "soft" }, sample.files.join(", ")), html("div", { class: "pictures" }, ...pictures), html("table", {}, html("tbody", {}, ...lines))];
}

function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(reader.result.slice(reader.result.indexOf(",") + 1)));
    reader.addEventListener("error", () => reject(reader.error));
    reader.readAsDataURL(file);
  });
}
