// Tabs: click, arrow keys, Home and End. The page's open tab is the address's hash.
import { $ } from "./show.mjs";

const NAMES = ["language", "search", "onnx"];
const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

export const openTab = () => NAMES.find((name) => !$(`${name}-panel`).hidden);

// Lets tabs with ids `<name>-tab` be chosen by mouse and keys; returns a function that shows one.
export function tablist(names, choose) {
  const select = (name) => {
    for (const other of names) {
      $(`${other}-tab`).setAttribute("aria-selected", String(other === name));
      $(`${other}-tab`).tabIndex = other === name ? 0 : -1;
    }
  };
  for (const name of names) {
    const tab = $(`${name}-tab`);
    tab.addEventListener("click", () => choose(name));
    tab.addEventListener("keydown", (event) => {
      const enabled = names.filter((other) => !$(`${other}-tab`).disabled);
      const backwards = event.key.endsWith("Right") || event.key.endsWith("Left") ? getComputedStyle(tab).direction === "rtl" : false;
      let next;
      if (event.key in STEPS) next = enabled.indexOf(name) + (backwards ? -STEPS[event.key] : STEPS[event.key]);
      else if (event.key === "Home") next = 0;
      else if (event.key === "End") next = -1;
      else return;
      event.preventDefault();
      const other = enabled.at(next % enabled.length);
      choose(other);
      $(`${other}-tab`).focus();
    });
  }
  return select;
}

// The page's tabs. Calls `opened(name)` whenever one is opened; Back and Forward move between them.
export function tabs(opened) {
  const fromAddress = () => NAMES.find((name) => location.hash === `#${name}`) ?? NAMES[0];
  function show(name) {
    select(name);
    for (const other of NAMES) $(`${other}-panel`).hidden = other !== name;
    opened(name);
  }
  function open(name) {
    if (name !== fromAddress()) history.pushState(null, "", name === NAMES[0] ? location.pathname + location.search : `#${name}`);
    show(name);
  }
  const select = tablist(NAMES, open);
  window.addEventListener("popstate", () => show(fromAddress()));
  if (fromAddress() !== NAMES[0]) show(fromAddress());
  return open;
}
