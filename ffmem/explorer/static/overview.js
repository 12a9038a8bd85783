import { onKeys, toSearch } from "./keys.js";

// A stripe stands for a block of neighbouring memories; a click leads to the one that fires most.
for (const map of document.querySelectorAll(".stripes")) {
  const densest = map.dataset.densest.split(" ");
  const memory = (event) => {
    const box = map.getBoundingClientRect();
    const block = Math.floor(((event.clientX - box.left) / box.width) * densest.length);
    return `L${map.dataset.layer}.${densest[Math.min(Math.max(block, 0), densest.length - 1)]}`;
  };
  map.addEventListener("click", (event) => location.assign(`/memory/${memory(event)}`));
  map.addEventListener("mousemove", (event) => {
    map.parentElement.title = memory(event);
  });
}

onKeys({ "/": toSearch, r: () => location.assign("/random") });
