// The story of the demo: its scenes, where it is, what is said. It begins when somebody looks.

import { html } from "./draw.js";

const PAUSE = 2500; // milliseconds to look at the still page before the story begins

export class Story {
  constructor(about, send) {
    this.about = about;
    this.send = send;
    this.place = document.getElementById("story");
    this.caption = document.getElementById("caption");
    this.scenes = (about.scenes ?? []).map((words) => html("li", {}, words));
    document.getElementById("scenes").replaceChildren(...this.scenes);
    this.again = html("button", { type: "button", id: "again" }, "Tell the story again");
    this.again.addEventListener("click", () => tell(send));
  }

  show(state) {
    this.place.hidden = !this.scenes.length;
    if (this.place.hidden) return;
    this.scenes.forEach((item, i) => {
      if (i === state.scene) item.setAttribute("aria-current", "step");
      else item.removeAttribute("aria-current");
      item.classList.toggle("past", state.scene == null || i < state.scene);
    });
    const telling = state.scene != null;
    const words = telling ? state.caption : "You choose the damage.";
    if (this.words !== words) this.caption.replaceChildren(words, " ", ...(telling ? [] : [this.again]));
    this.words = words;
    this.#begin(state);
  }

  // Nobody may be looking yet, and nothing moves for those who asked for that.
  #begin(state) {
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (!state.waiting || still || document.hidden) {
      clearTimeout(this.timer);
      this.timer = undefined;
      if (state.waiting && document.hidden) {
        document.addEventListener("visibilitychange", () => this.#begin(state), { once: true });
      }
      return;
    }
    this.timer ??= setTimeout(() => this.send({ do: "play" }), PAUSE);
  }
}

export function tell(send) {
  send({ do: "order", value: "story" });
  send({ do: "reset" });
  send({ do: "play" });
}
