import { ask } from "./ask.js";
import { onKeys, toSearch } from "./keys.js";

// The picture that the page came with stays until the living chart is there.
async function bringToLife(place) {
  try {
    const [specification] = await Promise.all([ask(place.dataset.spec), import("/vega.js")]);
    const chart = document.createElement("div");
    await window.vegaEmbed(chart, { ...specification, title: undefined }, {
      ast: true, // expressions are interpreted: the page may not evaluate text as a script
      actions: false,
      defaultStyle: false,
      renderer: "svg",
      tooltip: { disableDefaultStyle: true },
    });
    place.replaceChildren(chart);
  } catch (error) {
    console.warn(`the chart stays a picture: ${error.message}`);
  }
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

onKeys({ "/": toSearch });
