// The samples of the newest batch: pictures, a sound to play, true and predicted classes.

import { html, svg } from "./draw.js";
import { laneLook, percent, plain } from "./look.js";

export class Samples {
  constructor(section, about) {
    this.section = section;
    this.about = about;
    this.cards = [];
    this.place = section.querySelector("#cards");
    this.pair = section.querySelector("#pair");
    this.pair.replaceChildren();
    this.held = section.querySelector("#held");
    this.place.replaceChildren();
    this.player = new Audio();
    this.player.volume = 0.6;
    this.player.addEventListener("ended", () => this.#playing(null));
    this.player.addEventListener("error", () => this.#playing(null));
  }

  // Samples are not replaced while the pointer or the focus is on them.
  isHeld() {
    return [this.place, this.pair].some((one) => one.matches(":hover") || one.querySelector(":focus-visible"));
  }

  draw(samples) {
    if (!samples) return;
    const held = this.cards.length > 0 && this.isHeld();
    this.held.hidden = !held;
    if (held) return;
    this.section.hidden = false;
    this.key = samples.key;
    this.#beside(samples.list[0]);
    while (this.cards.length < samples.list.length) this.cards.push(this.#card(this.cards.length));
    this.cards.forEach((card, i) => {
      card.box.hidden = i >= samples.list.length;
      if (!card.box.hidden) this.#fill(card, samples.list[i]);
    });
  }

  // The first sample as it was recorded, and as the model gets it.
  #beside(sample) {
    if (!sample?.originals) return this.pair.replaceChildren();
    const column = (words, pictures, sound) => {
      const names = Object.keys(pictures).sort().reverse();
      const images = names.map((name) => {
        const image = html("img", { src: pictures[name], alt: `${plain(name)}, ${words}`, title: plain(name) });
        return names.length > 2 ? html("label", {}, image, plain(name)) : image; // three alike need their names
      });
      const play = html("button", { type: "button", class: "sound", "aria-label": `Play the sound, ${words}` }, "▶ listen");
      play.addEventListener("click", () => this.#listen(sound, play));
      return html("figure", {}, html("figcaption", {}, words), html("div", { class: "pictures" }, ...images, ...(sound == null ? [] : [play])));
    };
    this.pair.replaceChildren(
      column("as recorded", sample.originals, sample.original_sound),
      column("as the model gets it", sample.pictures, sample.sound ? 0 : null),
    );
  }

  #card(place) {
    const pictures = html("div", { class: "pictures" });
    const words = html("div", { class: "words" });
    const play = html("button", { type: "button", class: "sound", "aria-label": `Play the sound of sample ${place + 1}` }, "▶ listen");
    play.addEventListener("click", () => this.#listen(place, play));
    const box = html("article", { class: "sample" }, pictures, words);
    this.place.append(box);
    return { box, pictures, words, play };
  }

  #fill(card, sample) {
    const names = Object.keys(sample.pictures).sort().reverse();
    while (card.pictures.querySelectorAll("img").length > names.length) card.pictures.querySelector("img").remove();
    while (card.pictures.querySelectorAll("img").length < names.length) card.pictures.prepend(html("img"));
    [...card.pictures.querySelectorAll("img")].forEach((image, i) => {
      image.src = sample.pictures[names[i]];
      image.alt = `${plain(names[i])} of a sample${sample.class ? `: ${sample.class}` : ""}`;
      image.title = plain(names[i]);
    });
    if (sample.sound && !card.play.isConnected) card.pictures.append(card.play);
    if (!sample.sound) card.play.remove();
    const lines = Object.entries(sample.predictions).map(([lane, said]) => this.#line(lane, said));
    const truth = sample.class ? [html("p", { class: "truth" }, sample.class)] : [];
    card.words.replaceChildren(...truth, ...lines);
  }

  #line(lane, said) {
    const look = laneLook(lane, this.about.lanes);
    const mark = svg("svg", { class: "swatch", width: 16, height: 10, "aria-hidden": "true" });
    mark.append(svg("path", { class: `stroke ${look.colour}`, "stroke-width": 2.4, "stroke-dasharray": look.dash || "none", d: "M0 5H16" }));
    const verdict = said.right == null ? "" : said.right ? "✓" : "✗";
    const name = said.right ? "" : ` ${said.class}`;
    const kind = said.right === false ? "wrong" : "right";
    return html("p", { class: kind }, mark, ` ${lane} ${verdict}${name} `, html("small", {}, percent(said.share)));
  }

  #listen(place, button) {
    this.player.src = `sound/${this.key}/${place}.wav`;
    this.#playing(button);
    this.player.play().catch(() => this.#playing(null));
  }

  #playing(button) {
    for (const play of this.section.querySelectorAll(".sound")) play.textContent = play === button ? "♪ playing" : "▶ listen";
  }
}
