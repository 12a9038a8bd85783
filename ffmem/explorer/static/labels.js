import { ask, element, say } from "./ask.js";

// Label, note, star and lists of a memory; each is saved as soon as it is changed.
const STARRED = "starred";
const address = document.querySelector("#memory").dataset.address;
const path = `/api/memories/${encodeURIComponent(address)}/label`;
const at = (id) => document.querySelector(`#${id}`);
const [star, label, note, said] = ["star", "label", "note", "labels-said"].map(at);

function show(found) {
  const starred = found.lists.includes(STARRED);
  star.setAttribute("aria-pressed", String(starred));
  star.textContent = starred ? "★ Starred" : "☆ Star";
  if (document.activeElement !== label) label.value = found.label;
  if (document.activeElement !== note) note.value = found.note;
  const lists = found.lists.filter((name) => name !== STARRED);
  at("on-lists").replaceChildren(lists.length ? "On the lists " : "On no list.", ...lists.flatMap((name) => [onList(name), " "]));
  at("lists").replaceChildren(...found.known_lists.filter((name) => name !== STARRED).map((value) => element("option", { value })));
}

function onList(name) {
  const off = element("button", { type: "button", className: "quiet small", textContent: "✕" });
  off.setAttribute("aria-label", `Take it off the list ${name}`);
  off.addEventListener("click", () => change(() => put(name, "DELETE"), `Off the list ${name}.`));
  return element("span", { className: "chip" }, element("a", { href: `/lists/${encodeURIComponent(name)}` }, element("bdi", { textContent: name })), off);
}

const put = (list, method) => ask(`/api/lists/${encodeURIComponent(list)}/${encodeURIComponent(address)}`, { method });

async function change(work, done) {
  try {
    await work();
    show(await ask(path));
    say(said, done);
  } catch (error) {
    say(said, error.message, true);
  }
}

const save = () => change(() => ask(path, {
  method: "PUT", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ label: label.value, note: note.value }),
}), "Saved.");
label.addEventListener("change", save);
note.addEventListener("change", save);
star.addEventListener("click", () => {
  const on = star.getAttribute("aria-pressed") === "true";
  change(() => put(STARRED, on ? "DELETE" : "PUT"), on ? "No longer starred." : "Starred.");
});
at("to-list").addEventListener("submit", (event) => {
  event.preventDefault();
  const name = at("list").value.trim();
  at("list").value = "";
  change(() => put(name, "PUT"), `On the list ${name}.`);
});
ask(path).then(show, (error) => say(said, error.message, true));
