import { ask, busy, element, shownToken } from "./ask.js";
import { number, paint, walkable } from "./colour.js";
import { follow, onKeys } from "./keys.js";

const address = document.querySelector("#memory").dataset.address;
const api = `/api/memories/${encodeURIComponent(address)}`;

onKeys({
  ArrowLeft: follow("a[rel=prev]"),
  ArrowRight: follow("a[rel=next]"),
  r: follow("#random"),
});

// A pattern marks the triggers that it covers.
for (const button of document.querySelectorAll(".pattern")) {
  const ranks = new Set(button.dataset.ranks.split(" "));
  button.addEventListener("click", () => {
    const on = button.getAttribute("aria-pressed") !== "true";
    for (const other of document.querySelectorAll(".pattern")) other.setAttribute("aria-pressed", "false");
    button.setAttribute("aria-pressed", String(on));
    for (const line of document.querySelectorAll("#triggers li")) {
      line.classList.toggle("apart", on && !ranks.has(line.dataset.rank));
    }
  });
}

// Colours: what the study keeps or the model reads, fetched so that the page need not wait for it.
const texts = new Map(); // by the sentence's number
const largest = Number(document.querySelector("#memory").dataset.largest);

function colourLines() {
  if (document.querySelector("#needs")?.getAttribute("aria-pressed") === "true") return;
  for (const list of document.querySelectorAll(".triggers")) {
    for (const line of list.querySelectorAll("li[data-sentence]")) {
      const text = texts.get(line.dataset.sentence);
      if (text) paint(line.querySelector("p"), text, largest, Number(line.dataset.position), "agrees" in line.dataset);
    }
    if (list.querySelector(".t")) walkable(list);
  }
}

const colour = document.querySelector("#colour");

async function fetchColours(load) {
  const [said, button] = colour.children;
  const count = new URLSearchParams(location.search).get("triggers") ?? "";
  said.textContent = load ? "The model is reading …" : "";
  try {
    const found = await ask(`${api}/coefficients?load=${load}${count && `&triggers=${encodeURIComponent(count)}`}`);
    for (const text of found.sentences) texts.set(String(text.sentence), text);
    colourLines();
    said.textContent = { model: "", study: "Coefficients as the study keeps them." }[found.source] ?? found.advice;
    button.hidden = found.source !== null;
  } catch (error) {
    said.textContent = error.message;
    button.hidden = false;
  }
}

if (colour) {
  colour.querySelector("button").addEventListener("click", () => fetchColours(true));
  fetchColours(false);
}

// Any texts, coloured by this memory with its numbers; the last few are kept.
const KEPT = 5;
const own = document.querySelector("#own");
own.querySelector("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const place = own.querySelector(".answer");
  await busy(own.querySelector("button"), async () => {
    const reading = element("div", { className: "card" }, element("p", { className: "note", textContent: "The model is reading …" }));
    place.prepend(reading);
    for (const old of [...place.children].slice(KEPT)) old.remove();
    try {
      const found = await ask(`${api}/text?text=${encodeURIComponent(own.querySelector("textarea").value)}`);
      const text = element("p", { className: "own", dir: "auto" });
      paint(text, found, largest);
      const most = Math.max(...found.coefficients);
      const said = most > 0 ? `The largest coefficient is ${number(most)}, ${number((100 * most) / (largest || most))} % of the largest in the corpus.` : "It fires at none of these tokens.";
      reading.replaceChildren(text, element("p", { className: "note", textContent: said }));
      walkable(reading);
    } catch (error) {
      reading.replaceChildren(element("p", { className: "wrong", textContent: error.message }));
    }
  });
});
own.querySelector("textarea").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  own.querySelector("form").requestSubmit();
});

// One colour at a time: where the memory fires, or what its key needs. For the second each token of
// a trigger is removed in turn; the more of the coefficient goes, the darker.
const [fires, needs] = [document.querySelector("#fires"), document.querySelector("#needs")];
const plain = new Map(); // each trigger as it came, without colours
for (const line of document.querySelectorAll("#triggers li")) plain.set(line, [...line.querySelector("p").childNodes].map((node) => node.cloneNode(true)));

function choose(button) {
  for (const [one, legend] of [[fires, "#legend-fires"], [needs, "#legend-needs"]]) {
    one.setAttribute("aria-pressed", String(one === button));
    document.querySelector(legend).hidden = one !== button;
  }
  for (const [line, nodes] of plain) line.querySelector("p").replaceChildren(...nodes.map((node) => node.cloneNode(true)));
}

fires?.addEventListener("click", () => {
  choose(fires);
  colourLines();
});

needs?.addEventListener("click", async () => {
  choose(needs);
  const said = document.querySelector("#legend-needs [role=status]");
  const chosen = () => needs.getAttribute("aria-pressed") === "true";
  try {
    for (const line of plain.keys()) {
      said.textContent = `Reading trigger ${line.dataset.rank} …`;
      const { tokens } = await ask(`${api}/saliency?trigger=${line.dataset.rank}`);
      if (!chosen()) return;
      if (tokens.length) line.querySelector(".read").replaceChildren(...tokens.map(shaded));
    }
    said.textContent = "";
  } catch (error) {
    said.textContent = error.message;
  }
});

function shaded({ token, change }, place, all) {
  const made = element("span", { textContent: token, className: "shade" });
  if (place === all.length - 1) made.classList.add("final");
  if (change !== null && Math.abs(change) >= 5) {
    const strength = Math.min(Math.abs(change), 100);
    made.style.setProperty("--strength", `${Math.round(strength * 0.6)}%`);
    made.classList.add(change < 0 ? "loss" : "gain");
    made.title = `without it the coefficient changes by ${change.toFixed(0)} %`;
  }
  return made;
}

// The rest is asked for by a button, because it runs the model.
function onRequest(id, show) {
  const card = document.querySelector(id);
  const button = card.querySelector("button");
  const place = card.querySelector(".answer");
  button.addEventListener("click", () => busy(button, async () => {
    place.replaceChildren(element("p", { className: "note", textContent: "The model is reading …" }));
    try {
      place.replaceChildren(...show(await ask(api + button.dataset.path)));
    } catch (error) {
      place.replaceChildren(element("p", { className: "wrong", textContent: error.message }));
    }
  }));
}

function near(title, list) {
  const row = ({ address: other, cosine, promotes, trigger }) =>
    element("tr", {}, element("th", { scope: "row" }, element("a", { href: `/memory/${encodeURIComponent(other)}`, textContent: other })),
      element("td", { className: "n", textContent: cosine.toFixed(3) }),
      element("td", { className: "few" }, ...promotes.map((text) => element("span", { className: "token", textContent: shownToken(text) })),
        ...(trigger ? [element("p", { className: "one", dir: "auto" }, trigger.before, element("span", { className: "last", textContent: trigger.last }), element("span", { className: "next", textContent: trigger.next || "⏹" }))] : [])));
  return element("div", {}, element("h3", { textContent: title }), element("table", {}, element("tbody", {}, ...list.map(row))));
}

onRequest("#nearest", ({ by_key, by_value }) => [
  near("By key", by_key), near("By value", by_value),
]);

function nearTokens(title, list) {
  const row = ({ token, cosine, logit }) =>
    element("tr", {}, element("th", { scope: "row" }, element("span", { className: "token", textContent: shownToken(token) })),
      element("td", { className: "n", textContent: (cosine ?? logit).toFixed(3) }));
  return element("div", {}, element("h3", { textContent: title }), element("table", {}, element("tbody", {}, ...list.map(row))));
}

if (document.querySelector("#value")) {  // the values are not ranked
  onRequest("#value", ({ promoted, suppressed, probability }) => [
    element("div", { className: "pair" }, nearTokens("Promotes", promoted), nearTokens("Suppresses", suppressed)),
    element("p", { className: "note", textContent: `The logit that a coefficient of 1 adds. The first token gets ${(100 * probability).toPrecision(3)} %.` }),
  ]);
}

const wakes = document.querySelector("#wakes");
wakes.addEventListener("change", () => {
  document.querySelector("#key button").dataset.path = `/key?wakes=${encodeURIComponent(wakes.value.trim())}`;
});

onRequest("#key", ({ key, gate, link }) => {
  const gated = link && link.gate !== null ? `; v · gate = ${link.gate.toPrecision(3)} (cosine ${link.gate_cosine.toFixed(3)})` : "";
  const said = link ? [element("p", { textContent: `v · k = ${link.key.toPrecision(3)} (cosine ${link.key_cosine.toFixed(3)})${gated}` })] : [];
  return [...said, element("div", { className: "pair" }, nearTokens("Key", key), ...(gate.length ? [nearTokens("Gate", gate)] : []))];
});

const percent = (share) => (share === null ? "–" : `${(100 * share).toPrecision(3)}\u00a0%`);

function effectAtTrigger(found) {
  const cells = found.chances.map(({ token, before, after }) =>
    element("tr", {}, element("th", { scope: "row" }, element("span", { className: "token", textContent: shownToken(token) })),
      element("td", { className: "n", textContent: percent(before) }), element("td", { className: "n", textContent: percent(after) })));
  const head = element("tr", {}, ...["Next token", "As it is", "Changed"].map((name, place) =>
    element("th", { scope: "col", textContent: name, className: place ? "n" : "" })));
  const really = found.next === null ? "" : `; ${shownToken(found.next)} follows: ${percent(found.next_before)} → ${percent(found.next_after)}`;
  return element("details", {}, element("summary", { textContent: `Trigger ${found.rank}: moves ${found.kl.toPrecision(2)} nats${really}` }),
    element("table", {}, element("thead", {}, head), element("tbody", {}, ...cells)));
}

function controlWords(found) {
  if (found.control_kl === null) return ["There is no control: no other memory of the layer adds something there and promotes other tokens."];
  const names = [...new Set(found.triggers.map((one) => one.control))];
  const links = names.flatMap((name, place) => [place ? ", " : "", element("a", { href: `/memory/${encodeURIComponent(name)}`, textContent: name })]);
  return [`Control: the same change of a memory that adds as much there but promotes other tokens (`, ...links,
    `) moves it by ${found.control_kl.toPrecision(3)} nats; the ten tokens go to ${percent(found.control_value_after)}.`];
}

const DONE = { silence: "silenced", boost: "boosted", hold: "held" };
const effect = document.querySelector("#effect");
const [edit, amount] = [effect.querySelector("#edit"), effect.querySelector("#amount")];
edit.addEventListener("change", () => {
  amount.parentElement.hidden = edit.value === "silence";
  amount.previousElementSibling.textContent = edit.value === "boost" ? "times" : "at";
  amount.value = edit.value === "boost" ? "2" : Number(largest.toPrecision(3));
});
effect.querySelector("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const place = effect.querySelector(".answer");
  await busy(effect.querySelector("button"), async () => {
    place.replaceChildren(element("p", { className: "note", textContent: "The model is reading …" }));
    try {
      const size = edit.value === "silence" ? "" : `&amount=${encodeURIComponent(amount.value)}`;
      const found = await ask(`${api}/effect?edit=${edit.value}${size}`);
      place.replaceChildren(
        element("p", { textContent: `When it is ${DONE[edit.value]}, the next-token distribution moves by ${found.kl.toPrecision(3)} nats (KL), the mean over ${found.triggers.length === 1 ? "one trigger" : `its ${found.triggers.length} strongest triggers`}. The value’s ten top tokens together go from ${percent(found.value_before)} to ${percent(found.value_after)}.` }),
        element("p", {}, ...controlWords(found)),
        ...found.triggers.map(effectAtTrigger));
    } catch (error) {
      place.replaceChildren(element("p", { className: "wrong", textContent: error.message }));
    }
  });
});
