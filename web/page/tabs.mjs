// The page's tabs: click, arrow keys, Home and End; the address's hash is the open tab.
import { $ } from "./show.mjs";

const NAMES = ["language", "search", "onnx"];

export const openTab = () => NAMES.find((name) => !$(`${name}-panel`).hidden);

// Calls `opened(name)` whenever a tab is opened.
export function tabs(opened) {
  function open(name, focus) {
    for (const other of NAMES) {
      const tab = $(`${other}-tab`);
      tab.setAttribute("aria-selected", String(other === name));
      tab.tabIndex = other === name ? 0 : -1;
      $(`${other}-panel`).hidden = other !== name;
    }
    if (focus) $(`${name}-tab`).focus();
    history.replaceState(null, "", name === NAMES[0] ? location.pathname + location.search : `#${name}`);
    opened(name);
  }

  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  NAMES.forEach((name, index) => {
    $(`${name}-tab`).addEventListener("click", () => open(name));
    $(`${name}-tab`).addEventListener("keydown", (event) => {
      let next;
      if (event.key in steps) next = (index + steps[event.key] + NAMES.length) % NAMES.length;
      else if (event.key === "Home") next = 0;
      else if (event.key === "End") next = NAMES.length - 1;
      else return;
      event.preventDefault();
      open(NAMES[next], true);
    });
  });
  const fromAddress = () => NAMES.find((name) => location.hash === `#${name}`);
  window.addEventListener("hashchange", () => open(fromAddress() ?? NAMES[0]));
  if (fromAddress()) open(fromAddress());
  return open;
}
