// The charts as one PNG: each is copied with its computed style and drawn on a canvas.

import { html } from "./draw.js";

const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity", "font-size", "font-weight", "font-family"];
const GAP = 16;
const HEAD = 26;
const SCALE = 2;

export async function savePng(title, charts) {
  const figures = [...document.querySelectorAll("#charts figure")];
  const style = getComputedStyle(document.body);
  const parts = await Promise.all(figures.map(async (figure) => {
    const drawing = figure.querySelector("svg[role=img]");
    const box = drawing.getBoundingClientRect();
    return { head: heading(figure), image: await picture(drawing, box), width: box.width, height: box.height };
  }));
  const width = Math.max(...parts.map((one) => one.width)) + 2 * GAP;
  const height = parts.reduce((sum, one) => sum + HEAD + one.height + GAP, HEAD + GAP);
  const canvas = html("canvas", { width: width * SCALE, height: height * SCALE });
  const pen = canvas.getContext("2d");
  pen.scale(SCALE, SCALE);
  pen.fillStyle = style.backgroundColor;
  pen.fillRect(0, 0, width, height);
  pen.fillStyle = style.color;
  pen.font = "600 16px system-ui, sans-serif";
  pen.fillText(title, GAP, HEAD);
  pen.font = "13px system-ui, sans-serif";
  let y = HEAD + GAP;
  for (const one of parts) {
    pen.fillText(one.head, GAP, y + HEAD - 10);
    pen.drawImage(one.image, GAP, y + HEAD, one.width, one.height);
    y += HEAD + one.height + GAP;
  }
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  const link = html("a", { href: URL.createObjectURL(blob), download: "stream.png" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// The title and the legend in words: dashes and colours are in the drawing, the names are not.
function heading(figure) {
  const legend = [...figure.querySelectorAll(".legend span")].map((one) => one.textContent.trim());
  return [figure.querySelector("h2").textContent, ...legend].join("   ");
}

function picture(drawing, box) {
  const copy = drawing.cloneNode(true);
  const all = [drawing, ...drawing.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((element, i) => {
    const style = getComputedStyle(all[i]);
    for (const name of STYLES) {
      // A reference such as url(#hatch0) is an attribute and stays one.
      if (!(name === "fill" && element.getAttribute("fill"))) element.setAttribute(name, style.getPropertyValue(name));
    }
  });
  copy.setAttribute("width", box.width);
  copy.setAttribute("height", box.height);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const image = new Image();
  const ready = new Promise((resolve, reject) => {
    image.addEventListener("load", () => resolve(image));
    image.addEventListener("error", () => reject(new Error("a chart could not be drawn")));
  });
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
  return ready;
}
