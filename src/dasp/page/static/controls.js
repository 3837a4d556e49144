// The controls: run, speed, damage. They send commands and show the state that the server reports.

import { html } from "./draw.js";
import { plain } from "./look.js";
import { tell } from "./story.js";

// Damage to try with one click, of severity 5; all other sensors are clean.
const TRIES = [
  ["traffic in the sound", { audio: "traffic" }],
  ["a lens without contrast", { video: "contrast" }],
  ["both at once", { audio: "traffic", video: "fog" }],
  ["a unit that slipped", { right_leg: "rotation" }],
  ["noise in the left arm", { left_arm: "noise" }],
  ["both arms drift", { right_arm: "drift", left_arm: "drift" }],
];

export class Controls {
  constructor(about, send) {
    this.about = about;
    this.send = send;
    this.state = {};
    this.damage = {};
    const find = (id) => document.getElementById(id);
    this.parts = { play: find("play"), speed: find("speed"), severity: find("severity"), method: find("method"), stage: find("stage") };
    find("run").hidden = find("keys").hidden = !about.can.length;
    find("controls").hidden = !about.corruptions;
    find("methods").hidden = !about.methods;
    find("stages").hidden = !about.stages;
    if (about.methods) options(this.parts.method, about.methods, (one) => one);
    if (about.stages) options(this.parts.stage, Object.keys(about.stages), (one) => one);
    if (about.corruptions) this.#build(find("damage"));
    if (about.corruptions) find("try").replaceChildren("Try: ", ...this.#tries());
  }

  #tries() {
    const known = this.about.corruptions;
    const fitting = TRIES.filter(([, wanted]) => Object.keys(wanted).every((name) => name in known));
    return [...fitting, ["all clean", {}]].map(([words, wanted]) => {
      const button = html("button", { type: "button" }, words);
      button.addEventListener("click", () => this.#tryOut(wanted));
      return button;
    });
  }

  #tryOut(wanted) {
    for (const [modality, kinds] of Object.entries(this.about.corruptions)) {
      const corruption = wanted[modality] ?? kinds[0];
      this.send({ do: "corrupt", modality, corruption, severity: modality in wanted ? 5 : 0 });
    }
    this.send({ do: "play" });
  }

  #build(place) {
    place.replaceChildren();
    options(this.parts.severity, [1, 2, 3, 4, 5], (one) => `${one}`);
    for (const [name, kinds] of Object.entries(this.about.corruptions)) {
      const kind = html("select", { "aria-label": `Corruption of ${plain(name)}` });
      options(kind, kinds, plain);
      const level = html("input", { type: "range", min: 0, max: 5, step: 1, "aria-label": `Severity of ${plain(name)}` });
      const shown = html("output", {});
      kind.addEventListener("change", () => this.#corrupt(name, Number(level.value) || 5));
      level.addEventListener("input", () => this.#corrupt(name, Number(level.value)));
      place.append(html("fieldset", {}, html("legend", {}, plain(name)), kind, html("label", { class: "level" }, level, shown)));
      this.damage[name] = { kind, level, shown };
    }
  }

  #corrupt(modality, severity) {
    const own = this.damage[modality];
    own.shown.textContent = said(severity);
    this.send({ do: "corrupt", modality, corruption: own.kind.value, severity });
  }

  show(state) {
    this.state = state;
    const word = this.parts.play.querySelector(".word");
    word.textContent = state.playing ? "Pause" : "Play";
    if (!this.parts.speed.options.length) options(this.parts.speed, state.speeds, (one) => `${one} per second`);
    this.parts.speed.value = state.speed;
    if (state.method) this.parts.method.value = state.method;
    if (state.stage) this.parts.stage.value = state.stage;
    if (!state.damage) return;
    for (const radio of document.getElementsByName("order")) radio.checked = radio.value === state.order;
    this.parts.severity.value = state.severity;
    for (const [name, own] of Object.entries(state.damage)) {
      if (!this.damage[name]) continue; // the stage is being switched
      const { kind, level, shown } = this.damage[name];
      if (document.activeElement !== kind) kind.value = own.corruption;
      if (document.activeElement !== level) level.value = own.severity;
      shown.textContent = said(own.severity);
    }
  }
}

// Connect the elements of index.html; `controls()` returns the current Controls, or undefined.
export function wire(send, controls) {
  const on = (id, event, act) => document.getElementById(id).addEventListener(event, act);
  const toggle = () => send({ do: controls()?.state.playing ? "pause" : "play" });
  on("play", "click", toggle);
  on("step", "click", () => send({ do: "step" }));
  on("reset", "click", () => send({ do: "reset" }));
  on("speed", "change", (event) => send({ do: "speed", value: Number(event.target.value) }));
  on("severity", "change", (event) => send({ do: "severity", value: Number(event.target.value) }));
  on("orders", "change", (event) => {
    if (event.target.value === "story") tell(send);
    else if (event.target.name === "order") send({ do: "order", value: event.target.value });
  });
  on("method", "change", (event) => send({ do: "method", value: event.target.value }));
  on("stage", "change", (event) => {
    send({ do: "stage", value: event.target.value });
    event.target.value = controls().state.stage; // until the server agrees
  });
  document.addEventListener("keydown", (event) => {
    const taken = event.target.closest?.("button, select, input, summary, a, textarea");
    if (event.ctrlKey || event.metaKey || event.altKey || !controls()?.about.can.length) return;
    if (event.key === " " && !taken) toggle();
    else if (event.key === "ArrowRight" && !event.target.closest?.("select, input")) send({ do: "step" });
    else if (event.key === "r" && !event.target.closest?.("select, input")) send({ do: "reset" });
    else return;
    event.preventDefault();
  });
}

function options(select, values, text) {
  select.replaceChildren(...values.map((one) => html("option", { value: one }, text(one))));
}

function said(severity) {
  return severity === 0 ? "clean" : `severity ${severity}`;
}
