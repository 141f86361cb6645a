// What the keyboard does.

import { h } from "./dom.js";

const KEYS = [
  ["/", "Search this page"],
  ["↑ ↓", "Move between rows of a table"],
  ["Esc", "Leave a field, close a dialog"],
  ["?", "This list"],
];

// `ways`: the keys that lead to pages, with their names.
export function openHelp(ways) {
  const dialog = h("dialog", { "aria-labelledby": "keys-title" },
    h("h2", { id: "keys-title" }, "Keyboard"),
    h("dl", { class: "keys" }, [...ways, ...KEYS].map(([keys, does]) => [
      h("dt", {}, keys.split(" ").map((key) => h("kbd", {}, key))), h("dd", {}, does)])),
    h("form", { method: "dialog", class: "dialog-actions" }, h("button", { class: "primary" }, "Close")));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
