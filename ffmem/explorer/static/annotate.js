import { ask } from "./ask.js";
import { rememberName } from "./name.js";

rememberName();

const form = document.querySelector("#draw");
form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const said = document.querySelector("#said");
  const wanted = Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, Number(value)]));
  said.textContent = "Drawing …";
  try {
    const { new: count } = await ask("/api/sheets", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(wanted) });
    if (!count) throw new Error("no key has enough triggers; scan more text");
    location.reload();
  } catch (error) {
    said.classList.add("wrong");
    said.textContent = error.message;
  }
});
