const NARROWEST = 290; // pixels: of a panel that can be read
const AXIS = 84; // beside a panel
const LETTER = 7, SYMBOL = 36; // of a letter of a legend, and of what stands beside its words

// A chart as wide as its place; panels that would be too narrow stand below each other.
export function fit(spec, width, alone = true) {
  const { hconcat, concat = hconcat, ...rest } = spec;
  const panels = concat ? concat.length : spec.facet?.sort?.length;
  const columns = Math.max(1, Math.min(panels ?? 1, 3, Math.floor(width / NARROWEST)));
  if (concat) return { ...rest, columns, concat: concat.map((one) => fit(one, width / columns, false)) };
  fitLegends(spec, width);
  if (spec.facet) return { ...spec, columns, spec: { ...spec.spec, width: width / columns - AXIS } };
  if (alone) return { ...spec, width, autosize: { type: "fit-x", contains: "padding" } };
  return { ...spec, width: width - AXIS };
}

// Legends in as many columns as there is room for.
function fitLegends(part, width) {
  if (part === null || typeof part !== "object") return;
  const names = part.legend && part.scale?.domain;
  if (names) {
    const longest = Math.max(...names.map((name) => name.length));
    part.legend.columns = Math.max(1, Math.min(names.length, Math.floor(width / (LETTER * longest + SYMBOL))));
  }
  for (const [name, inner] of Object.entries(part)) if (name !== "datasets") fitLegends(inner, width);
}
