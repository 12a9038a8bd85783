import { follow, onKeys, toSearch } from "./keys.js";

onKeys({
  ArrowLeft: follow("a[rel=prev]"),
  ArrowRight: follow("a[rel=next]"),
  r: follow("#random"),
  "/": toSearch,
});

// A pattern marks the triggers that it covers.
for (const button of document.querySelectorAll(".pattern")) {
  const ranks = new Set(button.dataset.ranks.split(" "));
  button.addEventListener("click", () => {
    const on = button.getAttribute("aria-pressed") !== "true";
    for (const other of document.querySelectorAll(".pattern")) other.setAttribute("aria-pressed", "false");
    button.setAttribute("aria-pressed", String(on));
    for (const line of document.querySelectorAll("#triggers li")) {
      line.classList.toggle("apart", on && !ranks.has(line.dataset.rank));
    }
  });
}
