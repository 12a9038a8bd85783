
function save(name, address) {
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
}

function asCsv(spec) {
  const rows = spec.data?.values ?? Object.values(spec.datasets ?? {}).flat();
  const columns = [...new Set(rows.flatMap(Object.keys))];
  const quote = (value) => (/[",\n]/.test(value ?? "") ? `"${String(value).replaceAll('"', '""')}"` : (value ?? ""));
  return [columns, ...rows.map((row) => columns.map((column) => quote(row[column])))].map((row) => row.join(",")).join("\n");
}

// What can be done with a chart, in sight below it.
function controls(place, view, spec) {
  const line = document.createElement("p");
  line.className = "controls";
  const hint = document.createElement("span");
  hint.className = "hint";
  hint.textContent = "Hover for numbers. ";
  line.append(hint, "Save as ");
  const name = place.dataset.chart;
  const ways = {
    SVG: async () => save(`${name}.svg`, await view.toImageURL("svg")),
    PNG: async () => save(`${name}.png`, await view.toImageURL("png", 2)),
    CSV: () => save(`${name}.csv`, "data:text/csv;charset=utf-8," + encodeURIComponent(asCsv(spec))),
  };
  for (const [kind, way] of Object.entries(ways)) {
    const button = document.createElement("button");
    button.textContent = kind;
    button.setAttribute("aria-label", `Save the chart as ${kind}`);
    button.addEventListener("click", way);
    line.append(button);
  }
  return line;
}

// `ffmem explore` serves this page beside the memories that it names, and lets it save nothing.
const explored = location.pathname.startsWith("/report");

async function draw(place) {
  const width = place.clientWidth;
  const seen = width && place.checkVisibility(); // not while it is hidden or folded
  if (!seen || place.dataset.width === String(width)) return;
  place.dataset.width = width;
  const spec = JSON.parse(document.getElementById("spec-" + place.dataset.chart).textContent);
  const small = place.classList.contains("small-chart");
  const wide = fit(small ? { ...spec, height: spec.height && 200 } : spec, width);
  const chart = document.createElement("div");
  const options = {
    ast: true, // expressions are interpreted: the page may not evaluate text as a script
    actions: false,
    renderer: "svg",
    logLevel: 1, // errors; a figure without enough cases is empty, and its caption says so
  };
  const { view } = await window.vegaEmbed(chart, wide, options);
  for (const mark of chart.querySelectorAll('[role="graphics-symbol"]:not([aria-label])')) {
    mark.setAttribute("aria-label", mark.getAttribute("aria-roledescription"));
  }
  if (!small && !explored) chart.append(controls(place, view, spec));
  place.replaceChildren(chart);
}

// A link to a folded figure opens it.
function unfold() {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (!target) return;
  for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  target.scrollIntoView();
}
addEventListener("hashchange", unfold);
unfold();

const places = [...document.querySelectorAll("[data-chart]")];
Promise.all(places.map((place) => draw(place)))
  .then(() => {
    unfold();
    const watch = new ResizeObserver((changes) => changes.forEach((change) => draw(change.target)));
    for (const place of places) watch.observe(place);
    const drawInside = (event) => event.target.querySelectorAll("[data-chart]").forEach(draw);
    document.addEventListener("toggle", drawInside, true);
  })
  .catch((error) => console.error(error));

if (explored) {
  for (const name of document.querySelectorAll("code.address")) {
    const link = document.createElement("a");
    link.href = "/memory/" + encodeURIComponent(name.textContent);
    name.replaceWith(link);
    link.append(name);
  }
}
