// Transactions: what is open, and for how long.

import { get, post } from "../api.js";
import { ask, tell } from "../dialog.js";
import { badge, empty, h, replace } from "../dom.js";
import { duration } from "../format.js";
import { bigTable } from "../table.js";
import { showEither, update } from "../update.js";

export async function show({ root, title, every, signal, session }) {
  title("Transactions");
  const view = bigTable([
    { name: "Id", kind: "name", key: (row) => row.id, show: (row) => row.id },
    { name: "State", key: (row) => row.state, show: (row) => badge(row.late ? "error" : row.age === null ? "" : "ok", row.late ? "overdue" : row.state) },
    { name: "Open for", kind: "number", key: (row) => row.age ?? -1, show: (row) => row.age === null ? "–" : duration(row.age) },
    { name: "Timeout", kind: "number", optional: true, key: (row) => row.timeout, show: (row) => duration(row.timeout) },
    { name: "Producer", kind: "number", optional: true, key: (row) => row.producer, show: (row) => `${row.producer}, epoch ${row.epoch}` },
    { name: "Partitions", optional: true, show: (row) => row.partitions.length > 4 ? `${row.partitions.length} partitions` : row.partitions.join(", ") || "–" },
    { name: "", show: (row) => row.age === null || session.read_only ? "" : h("button", { type: "button", class: "plain", onclick: () => abort(row) }, "Abort") },
  ], { label: "Transactions", id: (row) => row.id, sort: "Open for", descending: true });
  const card = h("section", { class: "card" }, view.element);
  const note = h("div");
  replace(root, h("div", { class: "head" }, h("h1", {}, "Transactions")), note, h("div", { class: "tools" }, h("span", { class: "grow" }), view.count), card);

  async function abort(row) {
    const done = await ask({ title: `Abort the transaction of ${row.id}?`, action: "Abort", danger: true, confirm: row.id,
      text: "Nothing of it becomes visible. Its producer is fenced: it has to start again.",
      act: (values) => post("/api/transactions/abort", { id: row.id, confirm: values.confirm }) });
    if (done) tell(root, "The transaction was aborted.");
  }

  every(2, () => get("/api/transactions", signal), (found) => {
    view.set(found.transactions.map((row) => ({ ...row, late: row.age !== null && row.age > row.timeout + 10000 })), found.count);
    update(note, found.silent.length ? h("div", { class: "notice warning" },
      `${found.silent.length === 1 ? "Broker" : "Brokers"} ${found.silent.join(", ")} ${found.silent.length === 1 ? "does" : "do"} not answer. What is coordinated there is not shown.`) : null);
    showEither(card, view.element, found.count ? null : empty("No transactions yet.", "A producer with a transactional.id shows here. Transactions that hang are found with:", "barnabas transactions find-hanging --broker-id 0"));
  });
}
