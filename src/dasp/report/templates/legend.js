// Hide a method with a click on its name, highlight it by pointing at it, in all figures and tables.
"use strict";
(() => {
  const strip = document.getElementById("methods");
  const marked = [...document.querySelectorAll("[data-of]")];
  const names = [...new Set(marked.map((one) => one.dataset.of))];
  const hidden = new Set();
  const buttons = new Map();
  if (names.length < 2) return;

  function show() {
    for (const one of marked) one.classList.toggle("off", hidden.has(one.dataset.of) && !isKey(one));
    for (const one of marked) if (isKey(one)) one.classList.toggle("struck", hidden.has(one.dataset.of));
    for (const [name, button] of buttons) button.setAttribute("aria-pressed", String(!hidden.has(name)));
    all.hidden = !hidden.size;
  }

  // Names in a legend or on an axis stay, struck out: a click on them brings the method back.
  const isKey = (one) => one instanceof SVGElement && !!one.querySelector("text");

  function highlight(name) {
    for (const one of marked) one.classList.toggle("faded", !!name && one.dataset.of !== name);
  }

  function toggle(name) {
    if (!hidden.delete(name)) hidden.add(name);
    show();
  }

  for (const name of names) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.addEventListener("click", () => toggle(name));
    for (const event of ["pointerenter", "focus"]) button.addEventListener(event, () => highlight(name));
    for (const event of ["pointerleave", "blur"]) button.addEventListener(event, () => highlight(null));
    buttons.set(name, button);
  }
  const all = document.createElement("button");
  all.type = "button";
  all.textContent = "show all";
  all.className = "all";
  all.addEventListener("click", () => { hidden.clear(); show(); });
  strip.append(...buttons.values(), all);
  strip.hidden = false;
  for (const one of marked) {
    if (!(one instanceof SVGElement)) continue;
    one.addEventListener("click", () => toggle(one.dataset.of));
    one.addEventListener("pointerenter", () => highlight(one.dataset.of));
    one.addEventListener("pointerleave", () => highlight(null));
  }
  show();

  // Mark the section that is being read in the contents.
  const links = new Map([...document.querySelectorAll(".contents a")].map((a) => [a.hash.slice(1), a]));
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      const link = links.get(target.id);
      if (isIntersecting) link?.setAttribute("aria-current", "true");
      else link?.removeAttribute("aria-current");
    }
  }, { rootMargin: "-20% 0px -60% 0px" });
  for (const section of document.querySelectorAll("main section")) seen.observe(section);
})();
