// One layer at this place of the text, drawn by the server; its address is that of the page and the layer.
import { ask, busy, element, say } from "./ask.js";

const form = document.querySelector("#picture");
const said = form.closest("section").querySelector("[role=status]");
const figure = form.closest("section").querySelector("figure");
const image = figure.querySelector("img");
const hint = said.textContent;
let about = new URLSearchParams();

// A new answer: its layers to choose from, the last one first, and no picture of another one.
export function offer(found, wanted) {
  about = wanted;
  const { layer } = form.elements;
  const chosen = layer.value;
  const numbers = found.plain.steps.map((step) => String(step.layer)).reverse();
  layer.replaceChildren(...numbers.map((number) => element("option", {}, number)));
  if (numbers.includes(chosen)) layer.value = chosen;
  figure.hidden = true;
  say(said, hint);
}

export function load(image, address) {
  return new Promise((resolve, reject) => {
    image.addEventListener("load", resolve, { once: true });
    image.addEventListener("error", reject, { once: true });
    image.src = address;
  });
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const asked = new URLSearchParams(about);
  asked.set("layer", form.elements.layer.value);
  const address = `/api/prompt/picture.svg?${asked}`;
  say(said, "Drawing …");
  busy(form.querySelector("button"), async () => {
    try {
      await load(image, address);
      image.alt = `Layer ${asked.get("layer")} after “${asked.get("text")}”: keys, coefficients, values and their sum`;
      figure.querySelector("a").href = address;
      figure.hidden = false;
      say(said, hint);
    } catch {
      say(said, "The picture could not be drawn.", true);
      await ask(address).catch((error) => say(said, error.message, true));
    }
  });
});
