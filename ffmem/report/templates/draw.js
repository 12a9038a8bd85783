for (const place of document.querySelectorAll("[data-chart]")) {
  const spec = JSON.parse(document.getElementById("spec-" + place.dataset.chart).textContent);
  const chart = document.createElement("div");
  window.vegaEmbed(chart, spec, { actions: { export: true, source: false, compiled: false, editor: false }, renderer: "svg" })
    .then(() => {
      chart.querySelector("summary")?.setAttribute("aria-label", "Save the chart");
      for (const mark of chart.querySelectorAll('[role="graphics-symbol"]:not([aria-label])')) {
        mark.setAttribute("aria-label", mark.getAttribute("aria-roledescription"));
      }
      place.replaceChildren(chart);
    })
    .catch((error) => console.error(error));
}
