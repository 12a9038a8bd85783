import { element, shownToken } from "./ask.js";

// A text coloured by one memory: every token with its coefficient, on hover and on focus.
const LEAST = 0.02; // share of the largest coefficient from which on a token has a colour
const TOLD = 0.1; // and from which on it is told in words
const MOST_TOLD = 8;

export const number = (value) => (Math.abs(value) >= 100 ? value.toFixed(0) : Number(value.toPrecision(3)).toString());

function tokenElement(text, coefficient, largest) {
  const share = largest > 0 ? coefficient / largest : 0;
  const made = element("span", { className: "t", textContent: text, tabIndex: -1, title: `${shownToken(text)} ${number(coefficient)}` });
  made.dataset.said = number(coefficient);
  made.dataset.share = String(share);
  if (Math.abs(share) >= LEAST) {
    made.classList.add(share > 0 ? "fires" : "against");
    made.style.setProperty("--strength", `${Math.round(10 + 60 * Math.min(Math.abs(share), 1))}%`);
  }
  return made;
}

// What a person who does not see colours is told.
function inWords(tokens, coefficients, largest) {
  const strong = coefficients.map((value, place) => ({ value, place })).filter(({ value }) => value >= TOLD * largest);
  const few = strong.sort((one, other) => other.value - one.value).slice(0, MOST_TOLD).sort((one, other) => one.place - other.place);
  const said = few.map(({ value, place }) => `${tokens[place].trim() || shownToken(tokens[place])} ${number(value)}`);
  return element("span", { className: "hidden", textContent: ` Coefficients: ${said.join(", ") || "none of a tenth of the largest"}.` });
}

// Fill a paragraph: `position` tokens were read, then comes the next one; 0 where nothing is marked.
export function paint(paragraph, { tokens, coefficients }, largest, position = 0, agrees = false) {
  const made = tokens.map((text, place) => tokenElement(text, coefficients[place], largest));
  if (!position) {
    paragraph.replaceChildren(...made, inWords(tokens, coefficients, largest));
    return;
  }
  made[position - 1]?.classList.add("last");
  const next = made[position];
  next?.classList.add("next");
  if (agrees) next?.classList.add("agrees");
  const end = next ?? element("span", { className: "next", textContent: "⏹" });
  paragraph.replaceChildren(
    element("span", { className: "read" }, ...made.slice(0, position)), end,
    element("span", { className: "rest" }, ...made.slice(position + 1)), inWords(tokens, coefficients, largest));
}

// One tab stop for a list of texts: ← → along the tokens, ↑ ↓ to the strongest token of another line.
export function walkable(list) {
  const tokens = () => [...list.querySelectorAll(".t")];
  const first = strongest(list.querySelector("p") ?? list);
  if (first) first.tabIndex = 0;
  if (list.dataset.walkable) return;
  list.dataset.walkable = "yes";
  list.addEventListener("keydown", (event) => {
    const here = event.target.closest?.(".t");
    if (!here || event.ctrlKey || event.metaKey || event.altKey) return;
    const to = destination(event.key, here, tokens(), [...list.querySelectorAll("p")]);
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation(); // the page's own keys lead to other memories
    if (!to) return;
    here.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
  });
}

function destination(key, here, all, lines) {
  const place = all.indexOf(here);
  const line = lines.indexOf(here.closest("p"));
  switch (key) {
    case "ArrowRight": return all[place + 1] ?? null;
    case "ArrowLeft": return all[place - 1] ?? null;
    case "ArrowDown": return lines[line + 1] ? strongest(lines[line + 1]) : null;
    case "ArrowUp": return lines[line - 1] ? strongest(lines[line - 1]) : null;
    default: return undefined;
  }
}

function strongest(line) {
  const all = [...line.querySelectorAll(".t")];
  return all.reduce((best, one) => (!best || Number(one.dataset.share) > Number(best.dataset.share) ? one : best), null);
}
