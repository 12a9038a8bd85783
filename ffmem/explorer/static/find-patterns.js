import { ask, element, say } from "./ask.js";

// A search for patterns runs in the background; the page watches it, can stop it, and shows what it has left.
const PAUSE = 700; // milliseconds between two looks
const place = document.querySelector("#find-patterns");

async function watch(job, said, bar) {
  let now = job;
  const stop = element("button", { type: "button", className: "quiet small", textContent: "Stop" });
  stop.addEventListener("click", () => ask(`/api/jobs/${job.number}`, { method: "DELETE" }));
  bar.after(" ", stop);
  bar.hidden = false;
  try {
    while (now.state === "waiting" || now.state === "running") {
      bar.value = now.share;
      const far = now.keys > 1 && now.done ? `${now.done} of ${now.keys} memories` : now.doing || "looking";
      say(said, now.state === "waiting" ? "Waiting for its turn …" : `${far} …`);
      await new Promise((resolve) => setTimeout(resolve, PAUSE));
      now = await ask(`/api/jobs/${now.number}`);
    }
  } finally {
    bar.hidden = true;
    stop.remove();
  }
  if (now.state === "failed") throw new Error(now.error);
  return now;
}

const found = ({ state, patterns, done }) =>
  `${state === "stopped" ? "Stopped. " : ""}${patterns} patterns found in ${done} memories; their pages and the search by pattern show them.`;

const buttons = [...(place?.querySelectorAll("button") ?? [])];
for (const button of buttons) {
  button.addEventListener("click", async () => {
    const [said, bar, base] = [place.querySelector("[role=status]"), place.querySelector("progress"), place.dataset.base];
    for (const one of buttons) one.disabled = true;
    try {
      const now = await watch(await ask(base + button.dataset.path, { method: "POST" }), said, bar);
      say(said, found(now));
      if (place.dataset.stay === undefined && now.state === "done") location.reload();
    } catch (error) {
      say(said, error.message, true);
    }
    for (const one of buttons) one.disabled = false;
  });
}
