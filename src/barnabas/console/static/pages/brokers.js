// All brokers: who leads how much, and what is being moved between them.

import { get, post } from "../api.js";
import { bar } from "../chart.js";
import { ask, tell } from "../dialog.js";
import { empty, h, link, path, replace } from "../dom.js";
import { bytes, count, plural } from "../format.js";
import { table } from "../table.js";
import { update } from "../update.js";
import { brokerTable } from "./overview.js";

export async function show({ root, title, every, signal, session }) {
  title("Brokers");
  const brokers = h("section", { class: "card" });
  const spread = h("section", { class: "card" });
  const moves = h("section", { class: "card" });
  replace(root, h("div", { class: "head" }, h("h1", {}, "Brokers"), h("div", { class: "head-actions" },
    session.read_only ? null : [h("a", { class: "button", href: "/brokers/move" }, "Move partitions"),
      h("button", { type: "button", onclick: elect }, "Elect preferred leaders")])), brokers, spread, moves);

  async function elect() {
    let elected = 0;
    const done = await ask({ title: "Elect preferred leaders?", action: "Elect",
      text: "Each partition gets its first replica as leader, where that is in sync. Clients notice nothing but a moment's wait.",
      act: async () => { ({ elected } = await post("/api/brokers/elect")); } });
    if (done) tell(root, elected ? `${count(elected)} partitions have a new leader.` : "Every partition had its preferred leader.");
  }

  async function cancel(row) {
    const done = await ask({ title: `Cancel the move of ${row.topic}-${row.partition}?`, action: "Cancel the move", danger: true,
      text: "The partition stays on the brokers that it was on. What was copied is removed.",
      act: () => post("/api/brokers/cancel", { topic: row.topic, partition: row.partition }) });
    if (done) tell(root, "The move was cancelled.");
  }

  every(1, () => get("/api/brokers", signal), (now) => {
    update(brokers, h("h2", {}, "Brokers"), brokerTable(now.brokers));
    const most = Math.max(1, ...now.brokers.map((each) => each.size));
    update(spread, h("h2", {}, "Spread"), table([
      { name: "Broker", show: (row) => h("span", { class: "keep" }, link(path("brokers", row.id), `Broker ${row.id}`)) },
      { name: "Leads", kind: "number", show: (row) => count(row.leads) },
      { name: "Should lead", kind: "number", optional: true, show: (row) => count(row.preferred) },
      { name: "Holds", kind: "number", optional: true, show: (row) => count(row.holds) },
      { name: "On disk", kind: "number", show: (row) => row.up && !row.silent ? [bar(row.size / most), ` ${bytes(row.size)}`] : "–" },
      { name: "Free", kind: "number", show: (row) => {
        const [usable, total] = ["usable", "total"].map((key) => row.directories.reduce((sum, each) => sum + (each[key] ?? 0), 0));
        return total ? `${bytes(usable)} of ${bytes(total)}` : "–";
      } },
    ], now.brokers, "Spread of leaders and data", (row) => row.id));
    update(moves, h("h2", {}, "Reassignments under way"), now.moves.length ? [progress(now.moves), table([
      { name: "Partition", show: (row) => h("span", { class: "wrap" }, link(path("topics", row.topic), `${row.topic}-${row.partition}`)) },
      { name: "Coming", show: (row) => row.adding.join(", ") || "–" },
      { name: "Going", show: (row) => row.removing.join(", ") || "–" },
      { name: "Copied", kind: "number", show: (row) => row.size ? [bar(row.copied / row.size), ` ${share(row)} of ${bytes(row.size)}`] : "–" },
      { name: "", show: (row) => session.read_only ? "" : h("button", { type: "button", class: "plain", onclick: () => cancel(row) }, "Cancel") },
    ], now.moves, "Reassignments", (row) => `${row.topic}-${row.partition}`)]
      : empty("Nothing is being moved.", session.read_only ? "Plan a move with:" : "Move partitions plans a move, and shows what it copies before it begins.", session.read_only
        ? "barnabas reassign-partitions --generate --broker-list 0,1,2 --topics-to-move-json-file topics.json" : null));
  });
}

const share = (row) => `${Math.floor((row.copied / Math.max(1, row.size)) * 100)} %`;

// All moves together.
function progress(moves) {
  const all = { copied: moves.reduce((sum, row) => sum + row.copied, 0), size: moves.reduce((sum, row) => sum + row.size, 0) };
  return h("p", { class: "card-body", role: "status" }, bar(all.copied / Math.max(1, all.size)), ` ${plural(moves.length, "partition")}, ${share(all)} of ${bytes(all.size)} copied`);
}
