import { ask, element, say } from "./ask.js";
import { rememberName } from "./name.js";

rememberName();
const sheet = document.querySelector("#sheet");
const said = document.querySelector("#said");
const list = document.querySelector("#patterns");
const none = document.querySelector("#none");
const ticks = [...document.querySelectorAll("#prefixes input")];
const COLOURS = 6;

let patterns = []; // { description, kind, ranks: Set, box }
let active = null; // the pattern that ticks belong to
let waiting = 0; // the timer of the next save
let saving = Promise.resolve();
let boxes = 0;

async function begin() {
  const { save, annotator } = sheet.dataset;
  const draft = JSON.parse(localStorage.getItem(draftName()) ?? "null");
  try {
    const found = await ask(`${save}?${new URLSearchParams({ annotator })}`);
    none.checked = draft ? draft.none : found.said?.length === 0;
    for (const one of draft?.patterns ?? found.said ?? []) add(one);
    if (found.said && !draft) tell("Saved");
  } catch (error) {
    tell(error.message, true);
  }
  if (!patterns.length && !none.checked) add();
  choose(patterns[0] ?? null);
  if (draft) changed();
}

const draftName = () => `ffmem-draft ${sheet.dataset.save} ${sheet.dataset.annotator}`;

function add(from = { description: "", kind: "", ranks: [] }) {
  const pattern = { description: from.description, kind: from.kind, ranks: new Set(from.ranks) };
  patterns.push(pattern);
  none.checked = false;
  pattern.box = box(pattern);
  list.append(pattern.box);
  return pattern;
}

function box(pattern) {
  const description = element("input", { value: pattern.description, maxLength: Number(sheet.dataset.longest), placeholder: "what they share", autocomplete: "off", ariaLabel: "Description" });
  description.addEventListener("input", () => {
    pattern.description = description.value;
    changed();
  });
  const name = `kind-${++boxes}`;
  const kinds = ["shallow", "semantic"].map((kind) => {
    const radio = element("input", { type: "radio", name, value: kind, checked: pattern.kind === kind });
    radio.addEventListener("change", () => {
      pattern.kind = kind;
      changed();
    });
    return element("label", { className: "inline" }, radio, kind);
  });
  const drop = element("button", { type: "button", className: "small quiet", ariaLabel: "Remove this pattern" }, "✕");
  drop.addEventListener("click", () => remove(pattern));
  const made = element("fieldset", { className: "patternbox" }, element("legend", {}), element("div", { className: "field" }, description, drop), element("div", { className: "field" }, ...kinds, element("span", { className: "note tally" })));
  made.addEventListener("focusin", () => choose(pattern));
  made.addEventListener("click", () => choose(pattern));
  return made;
}

function remove(pattern) {
  patterns = patterns.filter((one) => one !== pattern);
  pattern.box.remove();
  if (active === pattern) active = null;
  choose(active ?? patterns[0] ?? null);
  changed();
}

// Ticks show and change the pattern that is chosen.
function choose(pattern) {
  active = patterns.includes(pattern) ? pattern : null;
  paint();
}

function paint() {
  patterns.forEach((pattern, place) => {
    const colour = `colour${(place % COLOURS) + 1}`;
    pattern.box.className = `patternbox ${colour}${pattern === active ? " active" : ""}`;
    pattern.box.querySelector("legend").textContent = `Pattern ${place + 1}`;
    pattern.box.querySelector(".tally").textContent = `${pattern.ranks.size} prefixes`;
  });
  for (const tick of ticks) {
    const rank = Number(tick.value);
    tick.disabled = active === null;
    tick.checked = active?.ranks.has(rank) ?? false;
    const marks = patterns.flatMap((pattern, place) => (pattern.ranks.has(rank) ? [element("span", { className: `mark colour${(place % COLOURS) + 1}` }, String(place + 1))] : []));
    tick.closest("li").querySelector(".marks").replaceChildren(...marks);
  }
}

function problem() {
  const least = Number(sheet.dataset.least);
  if (none.checked) return patterns.some((one) => !empty(one)) ? "nothing repeats is ticked, yet there are patterns" : "";
  if (patterns.every(empty)) return "describe a pattern, or tick that nothing repeats";
  const seen = new Set();
  for (const [place, one] of patterns.entries()) {
    if (empty(one)) continue;
    const words = one.description.trim().toLowerCase();
    if (!words) return `pattern ${place + 1} has no description`;
    if (seen.has(words)) return `pattern ${place + 1} is described as one before`;
    seen.add(words);
    if (!one.kind) return `is pattern ${place + 1} shallow or semantic?`;
    if (one.ranks.size < least) return `pattern ${place + 1} needs ${least} prefixes`;
  }
  return "";
}

const empty = (one) => !one.description.trim() && !one.kind && !one.ranks.size;

// Every change is kept in this browser at once, and on the server as soon as it is whole.
function changed() {
  paint();
  const kept = patterns.map(({ description, kind, ranks }) => ({ description, kind, ranks: [...ranks] }));
  localStorage.setItem(draftName(), JSON.stringify({ none: none.checked, patterns: kept }));
  clearTimeout(waiting);
  const wrong = problem();
  if (wrong) {
    tell(`Not saved yet: ${wrong}${wrong.endsWith("?") ? "" : "."}`);
    return;
  }
  tell("Saving …");
  waiting = setTimeout(() => (saving = saving.then(save)), 350);
}

async function save() {
  const whole = patterns.filter((one) => !empty(one)).map(({ description, kind, ranks }) => ({ description, kind, ranks: [...ranks].sort((a, b) => a - b) }));
  const before = localStorage.getItem(draftName());
  try {
    const body = JSON.stringify({ annotator: sheet.dataset.annotator, patterns: whole });
    await ask(sheet.dataset.save, { method: "PUT", headers: { "Content-Type": "application/json" }, body });
    if (localStorage.getItem(draftName()) !== before) return; // changed meanwhile: a save follows
    localStorage.removeItem(draftName());
    tell("Saved");
  } catch (error) {
    tell(`Not saved: ${error.message}`, true);
  }
}

function tell(text, wrong = false) {
  say(said, text, wrong);
  said.classList.toggle("good", text === "Saved");
}

document.querySelector("#add")?.addEventListener("click", () => {
  const made = add();
  choose(made);
  made.box.querySelector("input").focus();
});

none?.addEventListener("change", changed);

for (const tick of ticks) {
  tick.addEventListener("change", () => {
    const rank = Number(tick.value);
    if (tick.checked) active.ranks.add(rank);
    else active.ranks.delete(rank);
    changed();
  });
}

if (sheet) begin();
