// True effects: the strongest memories of this prompt, silenced one by one; a map; who wakes them.
import { ask, busy, element, say, shownToken } from "./ask.js";
import { load } from "./prompt-picture.js";
import { bar, button, cell, head, heading, memoryLink, moved, row, signed, token } from "./prompt-view.js";

const MOST_PLACES = 48; // of a text, the last ones, in the map
const form = document.querySelector("#effects");
const said = form.closest("section").querySelector("[role=status]");
const body = said.nextElementSibling;
const graph = document.querySelector("#graph");
const drawing = body.querySelector("figure");
const image = drawing.querySelector("img");
const hint = said.textContent;
let question = ""; // what the page is about now
let answered = ""; // what the effects that are there answer
let latest = null; // the page's answer, with its changes
let acts = {};

// A new answer of the page: effects of another prompt, place or token go away.
export function ready(found, wanted, actions) {
  const about = new URLSearchParams({ text: wanted.get("text"), position: found.position, token: found.token.id });
  if (wanted.get("chat")) about.set("chat", wanted.get("chat"));
  question = about.toString();
  acts = actions;
  latest = found;
  if (question !== answered) {
    body.hidden = true;
    answered = "";
  }
  rest();
}

// Below the heading, in reach of the buttons of the list: what was silenced has done this.
function rest() {
  const done = answered && latest.edited !== null;
  say(said, done ? "" : hint);
  if (done) said.append(...moved(latest));
}

export function showEffects() {
  if (question === answered) return;
  const asked = question;
  say(said, "Silencing the strongest, one by one …");
  busy(form.querySelector("button"), async () => {
    try {
      const found = await ask(`/api/why?${asked}`);
      if (asked !== question) return;
      answered = asked;
      showPairs(found);
      showTrust(found);
      showHeat(found);
      drawing.hidden = true;
      body.hidden = false;
      rest();
    } catch (error) {
      if (asked === question) say(said, error.message, true);
    }
  });
}

const number = (value) => (value === null ? "–" : signed(value));

function showPairs(found) {
  const labels = new Map(found.memories.map((one) => [one.address, one.notes?.label]));
  const largest = Math.max(...found.effects.map((one) => Math.abs(one.true)));
  const rows = found.effects.map((one) => {
    const label = labels.get(one.address);
    return row(
      element("th", { scope: "row" }, memoryLink(one.address), ...(label ? [" ", element("small", {}, label)] : [])),
      cell("term", `${one.place} `, token(one.token)),
      cell("term", bar(one.true, largest), number(one.true)), // it decides, so a phone shows it first
      cell("n", number(one.predicted)),
      cell("n", number(one.direct)),
      cell("few", ...one.promotes.slice(0, 4).map(token)),
      cell("acts", button("Silence", `silence ${one.address} at ${one.place}`, () => acts.apply(`${one.address}=0@${one.place}`))),
    );
  });
  const titles = [heading("Memory"), heading("At"), heading("true"), heading("predicted", "n"), heading("direct", "n"), heading("it promotes"), heading("", "acts")];
  titles.at(-1).append(element("span", { className: "hidden" }, "Changes"));
  document.querySelector("#pairs").replaceChildren(head(...titles), element("tbody", {}, ...rows));
}

const correlation = (value) => (value === null ? "unknown (too few numbers)" : value.toFixed(2));

function showTrust(found) {
  const { missed } = found;
  const sum = found.effects.reduce((all, one) => all + one.true, 0);
  const sentences = [
    "Direct: coefficient × value, along the token. Predicted: coefficient × gradient. True: the logit less that with the coefficient 0 at this place.",
    `For this text predicted and true effects correlate ${correlation(found.agreement)}, direct and true ones ${correlation(found.direct_agreement)}.`,
    `All pairs silenced together: ${signed(found.joint)}; the sum of the single ones: ${signed(sum)}.`,
  ];
  if (missed.largest) {
    const bound = Math.round(100 * missed.bound);
    sentences.push(`Of ${missed.pairs.toLocaleString("en")} pairs below the list ${missed.sampled} were silenced at random: the largest effect is ${signed(missed.largest.true)}, and ${missed.above} exceed the smallest of the list (of all, with 95 % confidence, at most ${bound} %).`);
  }
  document.querySelector("#trust").textContent = sentences.join(" ");
}

function showHeat(found) {
  const first = Math.max(0, found.tokens.length - MOST_PLACES);
  const shown = found.layers.map((one) => ({ layer: one.layer, cells: one.predicted.slice(first) }));
  const largest = Math.max(...shown.flatMap((one) => one.cells.map(Math.abs))) || 1;
  const rows = shown.map((one) => {
    const cells = one.cells.map((value) => {
      const made = cell(value < 0 ? "n down" : "n", Math.abs(value) < largest / 40 ? "·" : signed(value).slice(0, 5));
      made.style.setProperty("--share", Math.abs(value) / largest);
      return made;
    });
    return row(element("th", { scope: "row" }, String(one.layer)), ...cells);
  });
  const places = found.tokens.slice(first).map((text, place) => heading(`${first + place + 1} ${shownToken(text)}`, "n"));
  const heat = document.querySelector("#heat");
  heat.replaceChildren(head(heading("Layer"), ...places), element("tbody", {}, ...rows.reverse()));
  requestAnimationFrame(() => { heat.parentElement.scrollLeft = heat.scrollWidth; }); // the last place has most
}

graph.addEventListener("submit", (event) => {
  event.preventDefault();
  const note = graph.closest("div").nextElementSibling;
  const address = `/api/why/graph.svg?${answered}`;
  const words = note.dataset.hint ?? note.textContent;
  note.dataset.hint = words;
  say(note, "Silencing what may wake them …");
  busy(graph.querySelector("button"), async () => {
    try {
      await load(image, address);
      image.alt = "Memories by place and layer; a line leads from each to one that it wakes";
      drawing.querySelector("a").href = address;
      drawing.hidden = false;
      say(note, words);
    } catch {
      say(note, "The graph could not be drawn.", true);
      await ask(address).catch((error) => say(note, error.message, true));
    }
  });
});
