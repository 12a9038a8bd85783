import { ask, say } from "./ask.js";
import { offer } from "./prompt-picture.js";
import { show } from "./prompt-view.js";
import { ready, showEffects } from "./prompt-why.js";

// The address of the page is the whole state: what is asked stands there, and nothing else does.
const form = document.querySelector("#prompt");
const change = document.querySelector("#change");
const other = document.querySelector("#other");
const said = document.querySelector("#said");
const answer = document.querySelector("#answer");
const limits = document.querySelector("#limits");
const examples = document.querySelector("#examples");
const json = document.querySelector("#json");
const ADDRESS = /^L\d+\.((E\d+|S\d*)(\.\d+[+-]?)?|\d+[+-]?)$/; // or a whole expert
let turn = 0;

function asked() {
  return new URLSearchParams(location.search);
}

function go(edit) {
  const wanted = asked();
  edit(wanted);
  history.pushState(null, "", `${location.pathname}?${wanted}`);
  run();
}

async function run() {
  const wanted = asked();
  json.hidden = !wanted.get("text");
  json.href = `/api/prompt?${wanted}`;
  examples?.toggleAttribute("hidden", Boolean(wanted.get("text")));
  if (!wanted.get("text")) {
    answer.hidden = true;
    say(said, "");
    return;
  }
  form.elements.text.value = wanted.get("text");
  form.elements.write.value = wanted.get("write") ?? 0;
  form.elements.chat.checked = wanted.get("chat") === "true";
  const mine = ++turn;
  say(said, form.dataset.loaded ? "Reading …" : "Loading the model …");
  answer.setAttribute("aria-busy", "true");
  try {
    const found = await ask(`/api/prompt?${wanted}`);
    if (mine !== turn) return;
    show(found, { position, explain, apply, remove, choose });
    offer(found, wanted);
    ready(found, wanted, { apply });
    say(said, "");
    limits.textContent = `At most ${found.most_tokens.toLocaleString("en")} tokens, the model’s context.`;
    answer.hidden = false;
    form.dataset.loaded = "yes";
    if (wanted.get("effects")) showEffects();
  } catch (error) {
    if (mine !== turn) return;
    say(said, error.message, true);
  } finally {
    if (mine === turn) answer.removeAttribute("aria-busy");
  }
}

const position = (number) => go((wanted) => wanted.set("position", number));

function explain(token) {
  go((wanted) => {
    wanted.delete("word");
    wanted.set("token", token);
  });
}

// What an edit is about: its memory, and the positions if there are any.
const place = (edit) => `${edit.split(/[=*]/)[0]}@${edit.split("@")[1] ?? ""}`;

function apply(...edits) {
  go((wanted) => {
    const places = new Set(edits.map(place));
    const kept = wanted.getAll("edit").filter((one) => !places.has(place(one)));
    wanted.delete("edit");
    for (const one of [...kept, ...edits]) wanted.append("edit", one);
  });
}

// The answer has the edits in the order of the address.
function remove(number) {
  go((wanted) => {
    const kept = wanted.getAll("edit").filter((_, place) => place !== number);
    wanted.delete("edit");
    for (const one of kept) wanted.append("edit", one);
  });
}

// Bring a memory into the form of changes.
function choose(address) {
  change.closest("details").open = true;
  change.elements.address.value = address;
  change.scrollIntoView({ block: "center" });
  change.elements.action.focus();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const same = form.elements.text.value === asked().get("text");
  go((wanted) => {
    wanted.set("text", form.elements.text.value);
    wanted.set("write", form.elements.write.value || 0);
    wanted.delete("effects");
    if (form.elements.chat.checked) wanted.set("chat", "true");
    else wanted.delete("chat");
    if (!same) for (const name of ["position", "token", "word"]) wanted.delete(name);
  });
});

form.elements.text.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
});

change.elements.action.addEventListener("change", () => {
  change.elements.amount.parentElement.hidden = change.elements.action.value === "silence";
});

// One address or several, as a set has them: with spaces, commas or lines between, # begins a comment.
function addresses(text) {
  const words = text.replace(/#.*$/gm, " ").split(/[\s,;]+/).filter(Boolean);
  return words.map((word) => (/^l/i.test(word) ? word.toUpperCase() : `L${word.toUpperCase()}`));
}

change.addEventListener("submit", (event) => {
  event.preventDefault();
  const { address, action, amount, positions } = change.elements;
  const what = action.value === "silence" ? "=0" : `${action.value}${amount.value || 0}`;
  const at = positions.value.replaceAll(" ", "");
  const wrong = addresses(address.value).find((one) => !ADDRESS.test(one));
  if (wrong) {
    say(said, `${wrong} is not an address; write layer and memory, as in L2.7.`, true);
    return;
  }
  apply(...addresses(address.value).map((one) => `${one}${what}${at ? `@${at}` : ""}`));
});

other.addEventListener("submit", (event) => {
  event.preventDefault();
  const word = other.elements.word.value.replaceAll("·", " ");
  if (!word) return;
  go((wanted) => {
    wanted.delete("token");
    wanted.set("word", word);
  });
});

document.querySelector("#effects").addEventListener("submit", (event) => {
  event.preventDefault();
  go((wanted) => wanted.set("effects", "true"));
});

addEventListener("popstate", run);
run();
