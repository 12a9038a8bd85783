import { onKeys } from "./keys.js";

// A stripe stands for a block of neighbouring memories; it leads to the one that fires most.
const said = document.querySelector("#stripe");

for (const map of document.querySelectorAll(".stripes")) {
  const densest = map.dataset.densest.split(" ");
  const shares = map.dataset.shares.trim().split(" ");
  let block = 0;

  const address = () => `L${map.dataset.layer}.${densest[block]}`;
  const show = (next) => {
    block = Math.min(Math.max(next, 0), densest.length - 1);
    const words = `${address()} fires on ${shares[block]} % of the prefixes`;
    map.setAttribute("aria-valuenow", block);
    map.setAttribute("aria-valuetext", words);
    map.parentElement.title = words;
    said.textContent = `${words}, the densest of memories ${span()}.`;
  };
  const span = () => {
    const size = Math.max(1, Math.ceil(Number(map.dataset.memories) / densest.length));
    return `${block * size} to ${Math.min((block + 1) * size, Number(map.dataset.memories)) - 1}`;
  };
  const under = (event) => {
    const box = map.getBoundingClientRect();
    return Math.floor(((event.clientX - box.left) / box.width) * densest.length);
  };
  const open = () => location.assign(`/memory/${address()}`);

  map.addEventListener("mousemove", (event) => show(under(event)));
  map.addEventListener("focus", () => show(block));
  map.addEventListener("click", (event) => {
    show(under(event));
    open();
  });
  const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity };
  map.addEventListener("keydown", (event) => {
    if (event.key === "Enter") open();
    else if (event.key in steps) show(block + steps[event.key]);
    else return;
    event.preventDefault();
  });
}

onKeys({ r: () => location.assign("/random") });
