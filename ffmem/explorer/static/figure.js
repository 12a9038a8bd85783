import { fit } from "/fit.js";
import { ask } from "./ask.js";

// The picture that the page came with stays until the living chart is there.
async function bringToLife(place) {
  try {
    const [specification] = await Promise.all([ask(place.dataset.spec), import("/vega.js")]);
    await draw(place, { ...specification, title: undefined });
    new ResizeObserver(() => draw(place, { ...specification, title: undefined })).observe(place);
  } catch (error) {
    console.warn(`the chart stays a picture: ${error.message}`);
  }
}

// As wide as its place; nothing where it is so already, or is hidden.
async function draw(place, specification) {
  const width = place.clientWidth;
  if (!width || place.dataset.width === String(width)) return;
  place.dataset.width = width;
  const chart = document.createElement("div");
  await window.vegaEmbed(chart, fit(structuredClone(specification), width), {
    ast: true, // expressions are interpreted: the page may not evaluate text as a script
    actions: false,
    defaultStyle: false,
    logLevel: 1, // errors; a figure without enough cases is empty, and its caption says so
    renderer: "svg",
    tooltip: { disableDefaultStyle: true },
  });
  place.replaceChildren(chart);
}

// Charts further down wait until they come into view.
const seen = new IntersectionObserver(
  (entries) => {
    for (const entry of entries.filter((one) => one.isIntersecting)) {
      seen.unobserve(entry.target);
      bringToLife(entry.target);
    }
  },
  { rootMargin: "300px" },
);
for (const place of document.querySelectorAll(".living")) seen.observe(place);
