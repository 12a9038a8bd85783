import { ask, say } from "./ask.js";
import { rememberName } from "./name.js";

rememberName();

const form = document.querySelector("#draw");
form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const said = document.querySelector("#said");
  const wanted = Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, Number(value)]));
  say(said, "Drawing …");
  try {
    const { new: count } = await ask("/api/sheets", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(wanted) });
    if (!count) throw new Error("nothing new: these sheets are there already, or no key has enough triggers");
    location.reload();
  } catch (error) {
    say(said, error.message, true);
  }
});

form?.addEventListener("input", () => {
  const [keys, controls] = ["keys", "controls"].map((name) => Number(form.elements[name].value));
  document.querySelector("#many").textContent = (keys + 2 * controls) * Number(form.dataset.layers);
  document.querySelector("#blind").textContent = 2 * controls * Number(form.dataset.layers);
});

document.querySelector("#discard")?.addEventListener("click", async () => {
  const said = document.querySelector("#said");
  try {
    const { discarded } = await ask("/api/sheets", { method: "DELETE" });
    if (discarded) location.reload();
    say(said, "Every sheet has an answer, so all stay.");
  } catch (error) {
    say(said, error.message, true);
  }
});
