// Tables: small ones as they are, and one for any number of rows, of which only those in sight are in the document.

import { h, replace } from "./dom.js";

const ROW = 33;
const AROUND = 20;

export function table(columns, rows, label) {
  return h("div", { class: "table-wrap" }, h("table", { "aria-label": label },
    h("thead", {}, h("tr", {}, columns.map((column) => head(column)))),
    h("tbody", {}, rows.map((row) => h("tr", { class: row.class }, columns.map((column) => cell(column, row)))))));
}

function head(column) {
  return h("th", { class: [column.kind, column.optional && "optional"].filter(Boolean).join(" ") || null, scope: "col" }, column.name);
}

function cell(column, row) {
  return h("td", { class: [column.kind, column.optional && "optional"].filter(Boolean).join(" ") || null }, column.show(row));
}

// columns: name, key (to sort by), kind ("number", "name"), show(row) -> child. Rows keep their place while figures change.
export function bigTable(columns, { label, sort, descending = false, onSort }) {
  const body = h("tbody");
  const heads = columns.map((column, index) => {
    const th = head(column);
    if (column.key) replace(th, h("button", { type: "button", onclick: () => sortBy(index) }, column.name));
    return th;
  });
  const count = h("span", { class: "muted", role: "status" });
  const element = h("div", { class: "virtual", tabindex: "-1" }, h("table", { "aria-label": label }, h("thead", {}, h("tr", {}, heads)), body));
  let rows = [];
  let ordered = [];
  let shown = [];
  let test = () => true;
  let by = columns.findIndex((column) => column.name === sort);
  let down = descending;
  let first = -1;

  function sortBy(index) {
    if (by === index) down = !down;
    else {
      by = index;
      down = columns[index].kind === "number";
    }
    onSort?.(columns[by].name, down);
    arrange();
    narrow();
  }

  // Keys are made once for each row, and rows are sorted when they come, not with each letter of a search.
  function arrange() {
    heads.forEach((th, index) => {
      if (index === by) th.setAttribute("aria-sort", down ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
    });
    const key = columns[by]?.key;
    if (!key) {
      ordered = rows;
      return;
    }
    const sign = down ? -1 : 1;
    ordered = rows.map((row) => [key(row), row]).sort((a, b) => (a[0] < b[0] ? -sign : a[0] > b[0] ? sign : 0)).map((pair) => pair[1]);
  }

  function narrow() {
    shown = ordered.filter(test);
    count.textContent = shown.length === rows.length ? `${rows.length.toLocaleString("en")} in all`
      : `${shown.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")}`;
    draw(true);
  }

  function spacer(height) {
    return h("tr", { class: "spacer", "aria-hidden": "true" }, h("td", { colspan: columns.length, style: { height: `${height}px` } }));
  }

  function draw(anew) {
    const scrolls = element.scrollHeight > element.clientHeight + 1;
    const offset = scrolls ? element.scrollTop : Math.max(0, -element.getBoundingClientRect().top);
    const height = scrolls ? element.clientHeight : innerHeight;
    const begin = Math.max(0, Math.floor(offset / ROW) - AROUND);
    if (!anew && Math.abs(begin - first) < AROUND / 2) return;
    first = begin;
    const end = Math.min(shown.length, begin + Math.ceil(height / ROW) + 2 * AROUND);
    const focused = body.contains(document.activeElement) ? document.activeElement.closest("tr")?.dataset.index : undefined;
    replace(body, begin ? spacer(begin * ROW) : null,
      shown.slice(begin, end).map((row, at) => {
        const tr = h("tr", { "data-index": begin + at, "aria-rowindex": begin + at + 2 }, columns.map((column) => cell(column, row)));
        return tr;
      }),
      end < shown.length ? spacer((shown.length - end) * ROW) : null);
    if (focused !== undefined) body.querySelector(`tr[data-index="${focused}"] a`)?.focus({ preventScroll: true });
  }

  element.addEventListener("scroll", () => draw(false), { passive: true });
  const onScroll = () => (element.isConnected ? draw(false) : removeEventListener("scroll", onScroll));
  addEventListener("scroll", onScroll, { passive: true });
  element.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const row = document.activeElement?.closest("tr[data-index]");
    if (!step || !row) return;
    event.preventDefault();
    const next = element.querySelector(`tr[data-index="${Number(row.dataset.index) + step}"]`);
    if (!next) return;
    next.scrollIntoView({ block: "nearest" });
    next.querySelector("a")?.focus();
  });
  return {
    element, count,
    set(found) { rows = found; arrange(); narrow(); },
    filter(accepts) { test = accepts; element.scrollTop = 0; narrow(); },
    get shown() { return shown; },
  };
}
