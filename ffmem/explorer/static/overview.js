import { onKeys, toSearch } from "./keys.js";

// A stripe stands for a block of neighbouring memories; a click leads to its first one.
for (const map of document.querySelectorAll(".stripes")) {
  const { layer, memories, size } = map.dataset;
  const block = (event) => {
    const box = map.getBoundingClientRect();
    const share = (event.clientX - box.left) / box.width;
    return Math.min(Math.floor((share * memories) / size), Math.ceil(memories / size) - 1);
  };
  map.addEventListener("click", (event) => location.assign(`/memory/L${layer}.${block(event) * size}`));
  map.addEventListener("mousemove", (event) => {
    map.parentElement.title = `L${layer}.${block(event) * size} and on`;
  });
}

onKeys({ "/": toSearch, r: () => location.assign("/random") });
