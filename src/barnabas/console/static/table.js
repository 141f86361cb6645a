// Tables: small ones as they are, and one for any number of rows, of which only those in sight are in the document.

import { h, replace } from "./dom.js";
import { update } from "./update.js";

const ROW = 33;
const AROUND = 20;
const CLICKABLE = "a, button";

// `id` tells rows apart, so that each keeps its place in the document while figures change.
export function table(columns, rows, label, id) {
  return h("div", { class: "table-wrap", key: label }, h("table", { "aria-label": label, onkeydown: moveBetweenRows },
    h("thead", {}, h("tr", {}, columns.map((column) => head(column)))),
    h("tbody", {}, rows.map((row) => h("tr", { key: id(row) }, columns.map((column) => cell(column, row)))))));
}

function head(column) {
  return h("th", { class: [column.kind, column.optional && "optional"].filter(Boolean).join(" ") || null, scope: "col" }, column.name);
}

function cell(column, row) {
  return h("td", { class: [column.kind, column.optional && "optional"].filter(Boolean).join(" ") || null }, column.show(row));
}

// The arrow keys lead to what can be clicked in the next row, in the same column if there is something.
function moveBetweenRows(event) {
  const way = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
  const from = event.target.closest("tbody td");
  if (!way || !from) return;
  event.preventDefault();
  let row = from.parentElement[way];
  while (row && !row.querySelector(CLICKABLE)) row = row[way];
  if (!row) return;
  row.scrollIntoView({ block: "nearest" });
  (row.cells[from.cellIndex]?.querySelector(CLICKABLE) ?? row.querySelector(CLICKABLE)).focus();
}

// columns: name, key (to sort by), kind ("number", "name"), show(row) -> child.
export function bigTable(columns, { label, id, sort, descending = false }) {
  const body = h("tbody");
  const heads = columns.map((column, index) => {
    const th = head(column);
    if (column.key) replace(th, h("button", { type: "button", onclick: () => sortBy(index) }, column.name));
    return th;
  });
  const count = h("span", { class: "muted", role: "status" });
  const element = h("div", { class: "virtual", tabindex: "-1" }, h("table", { "aria-label": label, onkeydown: moveBetweenRows },
    h("thead", {}, h("tr", {}, heads)), body));
  let rows = [];
  let all = 0;
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
    update(count, shown.length === all ? `${all.toLocaleString("en")} in all` : `${shown.length.toLocaleString("en")} of ${all.toLocaleString("en")}`);
    draw(true);
  }

  function spacer(key, height) {
    return h("tr", { key, class: "spacer", "aria-hidden": "true" }, h("td", { colspan: columns.length, style: { height: `${height}px` } }));
  }

  function draw(anew) {
    const scrolls = element.scrollHeight > element.clientHeight + 1;
    const offset = scrolls ? element.scrollTop : Math.max(0, -element.getBoundingClientRect().top);
    const height = scrolls ? element.clientHeight : innerHeight;
    const begin = Math.max(0, Math.floor(offset / ROW) - AROUND);
    if (!anew && Math.abs(begin - first) < AROUND / 2) return;
    first = begin;
    const end = Math.min(shown.length, begin + Math.ceil(height / ROW) + 2 * AROUND);
    update(body, begin ? spacer("above", begin * ROW) : null,
      shown.slice(begin, end).map((row, at) => h("tr", { key: `row ${id(row)}`, "data-index": begin + at, "aria-rowindex": begin + at + 2 },
        columns.map((column) => cell(column, row)))),
      end < shown.length ? spacer("below", (shown.length - end) * ROW) : null);
  }

  element.addEventListener("scroll", () => draw(false), { passive: true });
  const onScroll = () => (element.isConnected ? draw(false) : removeEventListener("scroll", onScroll));
  addEventListener("scroll", onScroll, { passive: true });
  return {
    element, count,
    // `most`: how many there are, where not all are given.
    set(found, most = found.length) { rows = found; all = most; arrange(); narrow(); },
    filter(accepts) { test = accepts; element.scrollTop = 0; narrow(); },
    get shown() { return shown; },
  };
}
