// Retention and compaction: what is kept for how long, and what has gone already.

import { get } from "../api.js";
import { badge, copyable, empty, h, link, path, replace } from "../dom.js";
import { bytes, count, duration, plural } from "../format.js";
import { bigTable, table } from "../table.js";
import { update } from "../update.js";

const long = (value) => Number(value) > 9e18 || Number(value) < 0;

export async function show({ root, title, every, signal }) {
  title("Retention");
  const cleaners = h("section", { class: "card" });
  const view = bigTable([
    { name: "Topic", kind: "name", key: (row) => row.name, show: (row) => link(`${path("topics", row.name)}/settings`, row.name) },
    { name: "Old records", key: (row) => row["cleanup.policy"] ?? "", show: (row) => (row["cleanup.policy"] ?? "–").split(",").map((each) => [badge(each === "compact" ? "" : "ok", each), " "]) },
    { name: "Kept for", kind: "number", key: (row) => Number(row["retention.ms"] ?? 0), show: (row) => !row["cleanup.policy"]?.includes("delete") ? "by key"
      : long(row["retention.ms"]) ? "ever" : duration(Number(row["retention.ms"])) },
    { name: "Kept at most", kind: "number", optional: true, key: (row) => Number(row["retention.bytes"] ?? -1), show: (row) => long(row["retention.bytes"] ?? -1) ? "no limit" : `${bytes(Number(row["retention.bytes"]))} a partition` },
    { name: "Size", kind: "number", key: (row) => row.size, show: (row) => bytes(row.size) },
    { name: "Offsets held", kind: "number", optional: true, key: (row) => row.records, show: (row) => count(row.records) },
    { name: "Removed so far", kind: "number", optional: true, key: (row) => row.removed, show: (row) => count(row.removed) },
  ], { label: "Retention of topics", id: (row) => row.name, sort: "Size", descending: true });
  const search = h("input", { type: "search", placeholder: "Search topics", "aria-label": "Search topics" });
  const internal = h("input", { type: "checkbox" });
  const narrow = () => view.filter((row) => (internal.checked || !row.internal) && row.name.toLowerCase().includes(search.value.trim().toLowerCase()));
  search.addEventListener("input", narrow);
  internal.addEventListener("change", narrow);
  replace(root, h("div", { class: "head" }, h("h1", {}, "Retention and compaction")),
    h("div", { class: "tools" }, search, h("label", { class: "check" }, internal, "Internal topics"), h("span", { class: "grow" }), view.count),
    cleaners, h("section", { class: "card" }, view.element),
    h("p", { class: "tools" }, h("span", { class: "muted" }, "What is still to be compacted, log by log, on a broker's machine: "), copyable("barnabas log cleaner ./data")));
  narrow();
  every(2, () => get("/api/retention", signal), (found) => {
    view.set(found.topics);
    update(cleaners, h("h2", {}, "Cleaner"), found.cleaners.length ? table(CLEANER, found.cleaners, "Cleaner", (row) => row.address)
      : empty("Brokers do not tell what their cleaners do.", "Start them with metrics, and this console reads them:", "barnabas start --metrics 9404"));
  });
}

const CLEANER = [
  { name: "Broker", show: (row) => row.broker === null ? h("span", { class: "mono wrap" }, row.address)
    : [h("span", { class: "keep" }, link(path("brokers", row.broker), `Broker ${row.broker}`)), h("div", { class: "meaning mono wrap optional" }, row.address)] },
  { name: "State", show: (row) => row.silent ? badge("warning", "no answer") : row.dead_threads ? badge("error", `${count(row.dead_threads)} threads ended`)
    : row.uncleanable ? badge("warning", `${plural(row.uncleanable, "partition")} given up`) : badge("ok", "well") },
  { name: "Last run", kind: "number", show: (row) => row.silent ? "–" : row.since_ms === undefined || row.since_ms < 0 ? "none yet" : `${duration(row.since_ms)} ago` },
  { name: "Compacted", kind: "number", show: (row) => row.silent ? "–" : count(row.cleanings ?? 0) },
  { name: "Gone over", kind: "number", optional: true, show: (row) => row.silent ? "–" : bytes(row.read ?? 0) },
  { name: "Kept of it", kind: "number", optional: true, show: (row) => row.read ? `${Math.round(((row.kept ?? 0) / row.read) * 100)} %` : "–" },
  { name: "Took", kind: "number", optional: true, show: (row) => row.silent ? "–" : duration((row.seconds ?? 0) * 1000) },
];
