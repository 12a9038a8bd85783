// Keys that lead somewhere; never while a person types, never with a modifier.
export function onKeys(actions) {
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, select, textarea, [contenteditable]");
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const act = actions[event.key];
    if (act) {
      event.preventDefault();
      act();
    }
  });
}

export function follow(selector) {
  return () => document.querySelector(selector)?.click();
}

const toSearch = () => document.querySelector("#go")?.focus();

onKeys({ "/": toSearch }); // on every page
