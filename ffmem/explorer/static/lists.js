import { ask, say } from "./ask.js";

const said = document.querySelector("#said");

for (const button of document.querySelectorAll(".take")) {
  button.addEventListener("click", async () => {
    try {
      await ask(button.dataset.path, { method: "DELETE" });
      const row = button.closest("tr");
      const last = row.parentElement.children.length === 1;
      (row.nextElementSibling ?? row.previousElementSibling)?.querySelector("button").focus();
      row.remove();
      if (last) location.assign("/lists");
    } catch (error) {
      say(said, error.message, true);
    }
  });
}

const form = document.querySelector("#import");
form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const [name, file] = [form.elements.name.value.trim(), form.elements.file.files[0]];
  say(said, "");
  try {
    const text = [form.elements.text.value, file ? await file.text() : ""].join("\n");
    if (!text.trim()) throw new Error("give a file or addresses");
    await ask(`/api/lists/${encodeURIComponent(name)}`, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ text }),
    });
    location.assign(`/lists/${encodeURIComponent(name)}`);
  } catch (error) {
    say(said, error.message, true);
  }
});
