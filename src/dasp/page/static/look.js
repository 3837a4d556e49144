// The look of each series: a colour class and a dash, so that series never differ by colour alone.

const MODALITIES = ["audio", "video"];
const LANES = { Source: 0, READ: 1, DASP: 2 };
const LANE_DASHES = ["2 3", "8 3 2 3", "", "6 3", "10 4"];
const MODALITY_DASHES = ["", "7 3", "3 2", "10 3 2 3", "12 4"];

export function modalityLook(name, all) {
  const others = all.filter((one) => !MODALITIES.includes(one));
  const known = MODALITIES.indexOf(name);
  const place = (known >= 0 ? known : 2 + others.indexOf(name)) % 5;
  return { colour: `m${place}`, dash: MODALITY_DASHES[place], hatch: `hatch${place}` };
}

export function laneLook(name, all) {
  const place = LANES[name] ?? (all.length === 1 ? 2 : all.indexOf(name));
  return { colour: `l${place % 5}`, dash: LANE_DASHES[place % 5], wide: name === all.at(-1) };
}

// A name as words: "right_arm" is the right arm.
export function plain(name) {
  return name.replaceAll("_", " ");
}

export function percent(share) {
  return share == null ? "–" : `${(100 * share).toFixed(1)}%`;
}

export function short(value) {
  if (value == null) return "–";
  if (value === 0) return "0";
  return Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(2);
}

export function listed(words) {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}
