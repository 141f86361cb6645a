// All groups: consumers in both protocols, queues, and those without members, whose lag grows unseen.

import { get } from "../api.js";
import { empty, h, link, path, query as search, replace } from "../dom.js";
import { count } from "../format.js";
import { bigTable } from "../table.js";
import { showEither, update } from "../update.js";
import { groupState } from "./overview.js";

const KINDS = { Classic: "Consumers", Consumer: "Consumers (new protocol)", Share: "Queue", Streams: "Streams" };

export const kindOf = (type) => KINDS[type] ?? type;

export async function show({ root, title, every, signal, query }) {
  title("Groups");
  const view = bigTable([
    { name: "Group", kind: "name", key: (row) => row.id.toLowerCase(), show: (row) => link(`/group${search({ id: row.id })}`, row.id) },
    { name: "Kind", optional: true, key: (row) => row.type, show: (row) => kindOf(row.type) },
    { name: "State", key: (row) => row.state, show: (row) => groupState(row.state) },
    { name: "Topics", optional: true, show: (row) => row.topics.length > 3 ? `${row.topics.length} topics`
      : row.topics.map((each, index) => [index ? ", " : "", link(path("topics", each), each)]) },
    { name: "Lag", kind: "number", key: (row) => row.lag, show: (row) => count(row.lag) },
  ], { label: "Groups", id: (row) => row.id, sort: "Lag", descending: true });
  const text = h("input", { type: "search", placeholder: "Search groups and topics", "aria-label": "Search groups and topics", value: query.get("q") ?? "" });
  const card = h("section", { class: "card" }, view.element);
  const note = h("div");
  const narrow = () => {
    const wanted = text.value.trim().toLowerCase();
    view.filter((row) => row.id.toLowerCase().includes(wanted) || row.topics.some((each) => each.toLowerCase().includes(wanted)));
  };
  text.addEventListener("input", narrow);
  replace(root, h("div", { class: "head" }, h("h1", {}, "Groups")), note, h("div", { class: "tools" }, text, h("span", { class: "grow" }), view.count), card);
  narrow();
  every(1, () => get("/api/groups", signal), (found) => {
    update(note, found.error ? h("div", { class: "notice warning" }, `Some offsets cannot be read: ${found.error}`) : null);
    view.set(found.groups);
    showEither(card, view.element, found.groups.length ? null
      : empty("No groups yet.", "Read a topic as a group:", "barnabas consume --topic greetings --group readers --from-beginning"));
  });
}
