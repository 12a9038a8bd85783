import { ask } from "./ask.js";

// The picture that the page came with stays until the living chart is there.
const place = document.querySelector("#chart");
try {
  const [specification] = await Promise.all([ask(`/api/figures/${place.dataset.name}`), import("/vega.js")]);
  const chart = document.createElement("div");
  await window.vegaEmbed(chart, specification, {
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
