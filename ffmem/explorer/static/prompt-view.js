// What the API says of a prompt, as elements; every text stays text.
import { element, shownToken } from "./ask.js";

const CONTROLS = 4; // that are named
const WIDTH = 32; // characters of what a memory fires after
const SMALL = 0.15; // share of the largest term below which memories are folded into one sum
const part = (id) => document.querySelector(`#${id}`);
export const signed = (number) => (number === 0 ? "0" : (number < 0 ? "−" : "+") + Math.abs(number).toFixed(3));
const percent = (share) => (share < 0.00005 ? "0" : (100 * share).toFixed(2)) + " %";
export const token = (text) => element("bdi", { className: "token" }, shownToken(text));
export const cell = (className, ...children) => element("td", { className }, ...children);
export const row = (...cells) => element("tr", {}, ...cells);
export const heading = (text, className = "") => element("th", { scope: "col", className }, text);

export function head(...cells) {
  return element("thead", {}, row(...cells));
}

// A number with a bar to the left or right of a middle line.
export function bar(number, largest) {
  const fill = element("span", { className: number < 0 ? "fill down" : "fill up" });
  const half = largest ? (50 * Math.abs(number)) / largest : 0;
  fill.style.width = `${half}%`;
  fill.style.left = number < 0 ? `${50 - half}%` : "50%";
  return element("span", { className: "bar", ariaHidden: "true" }, fill);
}

// What was, and what is where it has changed.
function changed(before, after, made) {
  if (after === undefined || after === before) return [made(before)];
  return [element("del", {}, made(before)), " ", element("ins", {}, made(after))];
}

export function button(text, label, act) {
  const made = element("button", { type: "button", className: "small quiet", ariaLabel: label }, text);
  made.addEventListener("click", act);
  return made;
}

export function show(found, acts) {
  showTokens(found, acts);
  showChanges(found, acts);
  showChances(found, acts);
  showWritten(found);
  showSum(found);
  showMemories(found, acts);
  showLayers(found);
}

function showTokens(found, acts) {
  const buttons = found.tokens.map((text, number) => {
    const made = element("button", { type: "button" }, element("bdi", {}, shownToken(text)));
    made.className = number < found.position ? "read" : "unread";
    made.ariaLabel = `position ${number + 1}: ${text}`;
    made.ariaPressed = String(number + 1 === found.position);
    made.addEventListener("click", () => acts.position(number + 1));
    return made;
  });
  part("tokens").replaceChildren(...buttons);
}

function showChanges(found, acts) {
  const chips = found.edits.map((edit, number) => {
    const [what, at] = edit.split("@");
    const done = what.endsWith("=0") ? `${what.slice(0, -2)} silenced` : what.replace("*", " × ").replace("=", " = ");
    const words = at ? `${done} at ${at}` : done;
    return element("li", {}, words, " ", button("✕", `undo ${edit}`, () => acts.remove(number)));
  });
  part("changes").replaceChildren(...chips);
  if (chips.length) part("change-memory").open = true;
}

function showChances(found, acts) {
  const two = found.edited !== null;
  const largest = Math.max(...found.chances.map((one) => Math.max(one.plain, one.edited ?? 0)));
  const rows = found.chances.map((one) => {
    const name = button(shownToken(one.text), `explain ${shownToken(one.text)}`, () => acts.explain(one.id));
    name.className = "token";
    name.ariaPressed = String(one.id === found.token.id);
    const fill = element("span", { className: "fill" });
    const now = element("span", { className: "fill now" });
    fill.style.width = `${(100 * one.plain) / largest}%`;
    now.style.width = `${(100 * (one.edited ?? 0)) / largest}%`;
    const bars = element("span", { className: "bar chance", ariaHidden: "true" }, fill, ...(two ? [now] : []));
    const cells = [cell("", name), cell("wide", bars), cell("n", percent(one.plain))];
    if (two) cells.push(cell("n", percent(one.edited)));
    if (found.controls.length) cells.push(cell("n", percent(one.control)));
    return row(...cells);
  });
  const titles = [heading("Token"), heading(""), heading(two ? "as it is" : "probability", "n")];
  if (two) titles.push(heading("changed", "n"));
  if (found.controls.length) titles.push(heading("control", "n"));
  titles[1].append(element("span", { className: "hidden" }, "bar"));
  part("chances").replaceChildren(head(...titles), element("tbody", {}, ...rows));
  part("moved").replaceChildren(...(two ? moved(found) : ["Choose a token to see why it is as likely as it is."]));
}

// What changes do, and their control beside them.
export const moved = (found) => [`The changes move the distribution by ${found.moved.toFixed(4)} nats. `, ...controls(found)];

// What the same changes of other memories do, and which those are.
function controls(found) {
  if (!found.controls.length) return [];
  const names = found.controls.slice(0, CONTROLS).flatMap((one, number) => [
    number ? ", " : "",
    memoryLink(one.control),
    ` for ${one.memory} (${one.strength ? Math.round((100 * one.control_strength) / one.strength) : 100} % as strong here)`,
  ]);
  if (found.controls.length > CONTROLS) names.push(` and ${found.controls.length - CONTROLS} more`);
  return [`The control moves it by ${found.control_moved.toFixed(4)}: memories of the same layer that promote other tokens, changed alike: `, ...names, "."];
}

function showWritten(found) {
  const before = found.tokens.slice(0, found.position).join("");
  const lines = [["as it is", found.plain]].concat(found.edited ? [["changed", found.edited]] : []);
  const short = before.length > 120 ? `…${before.slice(-120)}` : before;
  part("written").replaceChildren(
    ...lines.flatMap(([title, seen]) => [
      element("h3", {}, title),
      element("p", { className: "written", dir: "auto" }, element("bdi", { className: "rest" }, short), element("bdi", { className: "new" }, seen.continuation)),
    ]),
  );
  part("written-card").hidden = lines.every(([, seen]) => !seen.continuation);
}

function sentence(title, explained) {
  const sum = (name) => explained.layers.reduce((all, one) => all + one[name], 0);
  const terms = [["embedding", explained.start], ["attention", sum("attention")], ["memories", sum("memories")], [explained.quantity === "logit" ? "biases" : "biases and softmax sums", sum("bias") + explained.constant]];
  if (Math.abs(sum("rest")) > 0.0005) terms.push(["blocks without memories", sum("rest")]);
  const parts = terms.map(([name, number]) => element("div", {}, element("dt", {}, name), element("dd", {}, signed(number))));
  const whole = element("div", { className: "whole" }, element("dt", {}, title), element("dd", {}, explained.logit.toFixed(3)));
  const off = Math.abs(explained.total - explained.logit);
  const check = `Check: the terms sum to ${explained.total.toFixed(5)}, the model says ${explained.logit.toFixed(5)}; they differ by ${off.toExponential(0)}.`;
  return [element("dl", { className: "facts sum" }, whole, ...parts), element("p", { className: "note check" }, check)];
}

function showSum(found) {
  part("why-title").replaceChildren("Why ", token(found.token.text), "?");
  if (!found.plain.explanation) {
    part("sum").replaceChildren(element("p", { className: "note" }, found.why_not ?? ""));
    return;
  }
  const { quantity } = found.plain.explanation;
  const views = [...sentence(found.edited ? `${quantity} as it is` : quantity, found.plain.explanation)];
  if (found.edited) views.push(...sentence(`${quantity} changed`, found.edited.explanation));
  part("sum").replaceChildren(...views);
}

export function memoryLink(address) {
  return element("a", { href: `/memory/${encodeURIComponent(address)}` }, address);
}

// What a study says a memory fires after: a label, a pattern, or its strongest trigger.
const firesAfter = ({ notes }) => (notes ? [notes.label, notes.patterns[0], notes.triggers[0]].find(Boolean) ?? "" : "");
const theEnd = (text) => (text.length > WIDTH ? `…${text.slice(-WIDTH)}` : text);

function memoryRow(found, one, largest, repeated, acts) {
  const cells = [
    element("th", { scope: "row" }, memoryLink(one.address)),
    cell("term", bar(one.amount, largest), signed(one.amount)),
    cell("n", one.coefficient.toFixed(2)),
    cell("after", element("bdi", {}, repeated ? "″" : theEnd(firesAfter(one)))),
    cell("few", ...one.tokens.slice(0, 4).map(token)),
    cell("acts", button("Silence", `silence ${one.address}`, () => acts.apply(`${one.address}=0`)), button("Change …", `change ${one.address}`, () => acts.choose(one.address))),
  ];
  if (found.edited) cells.splice(2, 0, cell("n", signed(found.edited.explanation.terms[one.address])));
  return row(...cells);
}

// The strongest memories, those that fire after the same together; small ones are one sum.
function showMemories(found, acts) {
  const explained = found.plain.explanation;
  if (!explained) {
    part("memories").replaceChildren();
    return;
  }
  const largest = Math.max(...explained.strongest.map((one) => Math.abs(one.amount)));
  const small = (one) => Math.abs(one.amount) < SMALL * largest;
  const shown = explained.strongest.filter((one) => !small(one));
  const folded = explained.strongest.filter(small);
  const rows = (list) => list.map((one, place) => memoryRow(found, one, largest, place > 0 && firesAfter(one) !== "" && firesAfter(one) === firesAfter(list[place - 1]), acts));
  const titles = [heading("Memory"), heading(found.edited ? "adds, as it is" : "adds"), heading("coefficient", "n"), heading("it fires after"), heading("it promotes"), heading("")];
  if (found.edited) titles.splice(2, 0, heading("changed", "n"));
  titles.at(-1).append(element("span", { className: "hidden" }, "Changes"));
  const others = explained.layers.reduce((all, one) => all + one.memories, 0) - explained.strongest.reduce((all, one) => all + one.amount, 0);
  const sum = (name, amount, ...more) => row(element("th", { scope: "row" }, name), cell("term", element("span", { className: "bar none" }), signed(amount)), ...titles.slice(2).map(() => cell("")), ...more);
  const bodies = [element("tbody", {}, ...rows(shown))];
  if (folded.length) {
    const rest = element("tbody", { hidden: true }, ...rows(folded));
    const line = sum(`${folded.length} smaller`, folded.reduce((all, one) => all + one.amount, 0));
    line.lastChild.className = "acts";
    line.lastChild.append(button("Show", "show smaller memories", (event) => { rest.hidden = !rest.hidden; event.target.textContent = rest.hidden ? "Show" : "Hide"; }));
    bodies.push(element("tbody", {}, line), rest);
  }
  bodies.push(element("tbody", {}, sum("all others", others)));
  part("memories").replaceChildren(head(...titles), ...bodies);
}

function showLayers(found) {
  const terms = new Map((found.plain.explanation?.layers ?? []).map((one) => [one.layer, one]));
  const sizes = [...terms.values()].flatMap((one) => [Math.abs(one.attention), Math.abs(one.memories)]);
  const largest = Math.max(...sizes, 0);
  const rows = found.plain.steps.map((step, place) => {
    const now = found.edited?.steps[place];
    const kind = (text) => element("span", { className: `kind ${text}` }, text);
    const strong = step.strongest.map((one) =>
      element("div", { className: "strong" }, memoryLink(one.address), element("small", {}, ` × ${one.coefficient.toFixed(2)}`), ...one.tokens.slice(0, 2).map(token)),
    );
    const term = terms.get(step.layer);
    const numbers = term ? [term.attention, term.memories].map((number) => cell("term", bar(number, largest), element("small", {}, signed(number)))) : [];
    return row(
      element("th", { scope: "row" }, String(step.layer)),
      cell("", ...changed(step.residual, now?.residual, token)),
      cell("", ...changed(step.feedforward, now?.feedforward, token)),
      cell("", ...changed(step.output, now?.output, token)),
      cell("", ...changed(step.winner, now?.winner, kind)),
      ...numbers,
      cell("n", String(step.active)),
      cell("", ...strong),
    );
  });
  rows.reverse(); // the last layer on top, as on the map of layers
  const name = shownToken(found.token.text);
  const titles = ["Layer", "Residual", "Adds", "Output", "Step"].map((text) => heading(text));
  if (terms.size) titles.push(heading(`Attention for ${name}`), heading(`Memories for ${name}`));
  titles.push(heading("Active", "n"), heading("Strongest memories"));
  part("layers").replaceChildren(head(...titles), element("tbody", {}, ...rows));
}
