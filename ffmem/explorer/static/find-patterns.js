import { ask } from "./ask.js";

// A search for patterns runs in the background; the page watches it and shows what it has left.
const PAUSE = 700; // milliseconds between two looks
const place = document.querySelector("#find-patterns");

async function watch(job, said, bar) {
  let now = job;
  while (now.state === "waiting" || now.state === "running") {
    bar.hidden = false;
    bar.value = now.share;
    const far = now.keys > 1 && now.done ? `${now.done} of ${now.keys} memories` : now.doing || "looking";
    said.textContent = now.state === "waiting" ? "Waiting for other searches …" : `${far} …`;
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
    now = await ask(`/api/jobs/${now.number}`);
  }
  bar.hidden = true;
  if (now.state !== "done") throw new Error(now.error || "The search was stopped.");
  return now;
}

for (const button of place?.querySelectorAll("button") ?? []) {
  button.addEventListener("click", async () => {
    const [said, bar, base] = [place.querySelector("[role=status]"), place.querySelector("progress"), place.dataset.base];
    button.disabled = true;
    said.classList.remove("wrong");
    try {
      const done = await watch(await ask(base + button.dataset.path, { method: "POST" }), said, bar);
      if (place.dataset.stay === undefined) location.reload();
      said.textContent = `${done.patterns} patterns found in ${done.done} memories; their pages and the search by pattern show them.`;
    } catch (error) {
      bar.hidden = true;
      said.classList.add("wrong");
      said.textContent = error.message;
    }
    button.disabled = false;
  });
}
