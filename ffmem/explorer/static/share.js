import { element, say } from "./ask.js";

// Copies of a page: its link, its tables as one file, and itself as a picture.
const LARGEST = 1e8; // pixels of a picture
const TALLEST = 32_000;
const bar = document.querySelector("#shares");
const file = document.title.split(" · ")[0].replace(/[^\p{L}\p{N}.+-]+/gu, "-").replace(/^[-.]+|-+$/g, "").slice(0, 80) || "page";

function save(content, type, ending) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  element("a", { href: address, download: `${file}.${ending}` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

async function copyLink() {
  try {
    await navigator.clipboard.writeText(location.href);
    return "The link is copied; it opens this very view.";
  } catch {
    return `The browser does not let pages copy; the link is ${location.href}`;
  }
}

// The parts of a cell stand apart on the page, so they do in the file.
const text = (node) => (node.nodeType === Node.TEXT_NODE ? node.data : [...node.childNodes].map(text).join(" ")).replace(/\s+/g, " ").trim();
const quote = (words) => (/[",]/.test(words) ? `"${words.replaceAll('"', '""')}"` : words);
const titleOf = (table) => {
  const region = table.closest(".scroll");
  return region?.ariaLabel ?? text(document.getElementById(region?.getAttribute("aria-labelledby")) ?? document.querySelector("h1"));
};

function saveTables() {
  const tables = [...document.querySelectorAll("main table")].filter((table) => table.rows.length);
  if (!tables.length) return "This page has no table yet.";
  const lines = (table) => [...table.rows].map((row) => [...row.cells].map((cell) => quote(text(cell))).join(","));
  const one = tables.length === 1;
  save(tables.map((table) => [...(one ? [] : [quote(titleOf(table))]), ...lines(table), ""].join("\n")).join("\n"), "text/csv", "csv");
  return "";
}

// What a person has typed or chosen is not part of the markup.
function keepInput(from, to) {
  if (from.type === "checkbox" || from.type === "radio") to.toggleAttribute("checked", from.checked);
  else if (from.tagName === "TEXTAREA") to.textContent = from.value;
  else if (from.tagName === "SELECT") [...to.options].forEach((option, place) => option.toggleAttribute("selected", place === from.selectedIndex));
  else if (from.type !== "file") to.setAttribute("value", from.value);
}

async function keepImage(from, to) {
  const data = await (await fetch(from.src)).blob();
  to.src = await new Promise((resolve, reject) => Object.assign(new FileReader(), { onload: ({ target }) => resolve(target.result), onerror: reject }).readAsDataURL(data));
  to.loading = "eager";
}

async function copyOf(main) {
  const copy = main.cloneNode(true);
  const both = (selector) => {
    const copies = copy.querySelectorAll(selector);
    return [...main.querySelectorAll(selector)].map((one, place) => [one, copies[place]]);
  };
  for (const [from, to] of both("input, textarea, select")) keepInput(from, to);
  await Promise.all(both("img").map(([from, to]) => keepImage(from, to)));
  copy.querySelector("#shares")?.remove();
  copy.append(element("p", { className: "note" }, `${document.title} · ${location.pathname}`));
  return copy;
}

// The page inside an SVG, which a canvas can draw; nothing is loaded from inside a picture.
async function drawing(width, height) {
  const svgElement = (name, attributes = {}) => {
    const one = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
    return one;
  };
  const style = svgElement("style");
  const scheme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  style.textContent = `${await (await fetch("/static/style.css")).text()}\n:root, .page { color-scheme: ${scheme}; } .page { background: var(--ground); color: var(--ink); min-height: 100%; }`;
  const inside = svgElement("foreignObject", { width: "100%", height: "100%" });
  inside.append(element("div", { className: "page" }, await copyOf(document.querySelector("main"))));
  const whole = svgElement("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
  whole.append(style, inside);
  // XML has no control characters and no halves of letters.
  return new XMLSerializer().serializeToString(whole).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ud800-\udfff\ufffe\uffff]/gu, "\ufffd");
}

async function savePicture() {
  const [width, height] = [document.documentElement.clientWidth, document.querySelector("main").scrollHeight + 48];
  const source = await drawing(width, height);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(source)}`;
  await image.decode();
  const scale = Math.min(2, Math.sqrt(LARGEST / (width * height)), TALLEST / height);
  const canvas = element("canvas", { width: Math.round(width * scale), height: Math.round(height * scale) });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  try {
    save(await new Promise((resolve) => canvas.toBlob(resolve, "image/png")), "image/png", "png");
  } catch {
    save(source, "image/svg+xml", "svg"); // some browsers do not let pages read such a canvas
  }
  return "";
}

const acts = { link: copyLink, tables: saveTables, picture: savePicture };
for (const button of bar?.querySelectorAll("[data-copy]") ?? []) {
  button.addEventListener("click", async () => {
    const said = bar.querySelector("[role=status]");
    say(said, button.dataset.copy === "picture" ? "Drawing …" : "");
    try {
      say(said, await acts[button.dataset.copy]());
    } catch (error) {
      say(said, `That did not work: ${error.message}`, true);
    }
  });
}
