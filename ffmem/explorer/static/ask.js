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

// An element with properties and children; text stays text.
export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// A token with its spaces and line breaks visible, as the templates show it.
export function shownToken(text) {
  return text.replaceAll(" ", "·").replaceAll("\n", "\\n").replaceAll("\t", "\\t") || "∅";
}
