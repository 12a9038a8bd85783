// Questions to the API: JSON, or one sentence of what went wrong.
export async function ask(address, options = {}) {
  let answer;
  try {
    answer = await fetch(address, { headers: { Accept: "application/json" }, ...options });
  } catch {
    throw new Error("the explorer does not answer; is it still running?");
  }
  const data = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(data.detail ?? `the explorer answered ${answer.status}`);
  return data;
}

// What a page says of what was asked; red where it went wrong.
export function say(where, text, wrong = false) {
  where.textContent = text;
  where.classList.toggle("wrong", wrong);
}

// Work during which a button cannot be pressed again; whoever pressed it by key stays there.
export async function busy(button, work) {
  const here = document.activeElement === button;
  button.disabled = true;
  try {
    await work();
  } finally {
    button.disabled = false;
    if (here && document.activeElement === document.body) button.focus();
  }
}

// An element with properties and children; text stays text.
export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// A token with its spaces and control characters visible, as the templates show it.
const SHORT = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t" };

function visible(letter) {
  const code = letter.codePointAt(0).toString(16);
  const long = code.length <= 2 ? `x${code.padStart(2, "0")}` : code.length <= 4 ? `u${code.padStart(4, "0")}` : `U${code.padStart(8, "0")}`;
  return SHORT[letter] ?? `\\${long}`;
}

export function shownToken(text) {
  return text.replace(/[\\\p{C}]|(?! )[\p{Z}]/gu, visible).replaceAll(" ", "·") || "∅";
}
