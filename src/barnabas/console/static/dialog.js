// Questions before something is changed.

import { h, replace } from "./dom.js";

// fields: {name, label, hint, type, value, options, required, placeholder}. Calls `act(values)`, stays open with the reason
// if that fails, and resolves to true when it was done, or false when it was left.
export function ask({ title, text, fields = [], confirm, action, danger = false, act, extra }) {
  return new Promise((resolve) => {
    const told = h("p", { class: "form-error", role: "alert" });
    const inputs = new Map();
    const rows = fields.map((field) => {
      const id = `field-${field.name}`;
      const common = { id, name: field.name, required: field.required, placeholder: field.placeholder, autocomplete: "off" };
      let input;
      if (field.type === "select") {
        input = h("select", common, field.options.map(([value, name]) => h("option", { value, selected: value === field.value }, name)));
      } else if (field.type === "textarea") {
        input = h("textarea", { ...common, rows: field.rows ?? 5, spellcheck: "false" });
        input.value = field.value ?? "";
      } else {
        input = h("input", { ...common, type: field.type ?? "text", min: field.min, max: field.max, step: field.step, value: field.value ?? "", spellcheck: "false" });
      }
      if (field.onchange) input.addEventListener("change", () => field.onchange(values(), row));
      inputs.set(field.name, input);
      const row = h("div", { class: "form-row", "data-field": field.name }, h("label", { for: id }, field.label), input,
        field.hint ? h("span", { class: "hint" }, field.hint) : null);
      return row;
    });
    const typed = confirm ? h("input", { id: "field-confirm", autocomplete: "off", spellcheck: "false" }) : null;
    const go = h("button", { class: danger ? "primary danger" : "primary" }, action);
    const leave = h("button", { type: "button" }, "Cancel");
    const form = h("form", {}, text ? [].concat(text).map((each) => h("p", {}, each)) : null, rows, extra?.node,
      confirm ? h("div", { class: "form-row" }, h("label", { for: "field-confirm" }, "Type ", h("code", {}, confirm), " to confirm"), typed) : null,
      told, h("div", { class: "dialog-actions" }, leave, go));
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, h("h2", { id: "dialog-title" }, title), form);
    let done = false;

    function values() {
      return Object.fromEntries([...inputs].map(([name, input]) => [name, input.value]));
    }

    if (typed) {
      go.disabled = true;
      typed.addEventListener("input", () => { go.disabled = typed.value !== confirm; });
    }
    leave.addEventListener("click", () => dialog.close());
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      go.disabled = true;
      replace(told);
      try {
        await act({ ...values(), confirm: typed?.value });
        done = true;
        dialog.close();
      } catch (error) {
        told.textContent = error.message;
        go.disabled = false;
      }
    });
    dialog.addEventListener("close", () => { dialog.remove(); resolve(done); });
    document.body.append(dialog);
    dialog.showModal();
    (inputs.values().next().value ?? typed ?? leave).focus();
  });
}

// A word about what was done, which goes away by itself, and moves nothing.
export function tell(root, text) {
  const note = h("div", { class: "notice ok told", role: "status" }, text);
  root.prepend(note);
  setTimeout(() => note.remove(), 6000);
}
