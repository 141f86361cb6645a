// One client, with every figure that it has pushed.

import { get } from "../api.js";
import { h, link, query as search, replace, tile } from "../dom.js";
import { ago, count, duration, rate, short } from "../format.js";
import { bigTable } from "../table.js";
import { update } from "../update.js";
import { perSecond, state } from "./clients.js";

const PREFIX = "org.apache.kafka.";
const KINDS = { gauge: "now", delta: "since the push before", total: "in all" };

export async function show({ root, title, every, signal, parameters, query }) {
  title("Client");
  const heading = h("h1", {}, "Client");
  const who = h("p", { class: "muted" });
  const tiles = h("div", { class: "tiles" });
  const view = bigTable([
    { name: "Metric", kind: "name", key: (row) => row.short, show: (row) => h("span", { title: row.name }, row.short) },
    { name: "Value", kind: "number", key: (row) => row.value, show: (row) => short(row.value) },
    { name: "Of", key: (row) => row.of, show: (row) => row.of || "–" },
    { name: "", optional: true, show: (row) => KINDS[row.kind] },
  ], { label: "Metrics of the client", id: (row) => `${row.name} ${row.of}`, sort: "Metric" });
  const text = h("input", { type: "search", placeholder: "Search metrics", "aria-label": "Search metrics", value: query.get("q") ?? "" });
  const narrow = () => {
    const wanted = text.value.trim().toLowerCase();
    view.filter((row) => row.name.includes(wanted) || row.of.toLowerCase().includes(wanted));
  };
  text.addEventListener("input", narrow);
  replace(root, h("div", { class: "head" }, heading), who, tiles,
    h("div", { class: "tools" }, text, h("span", { class: "grow" }), view.count), h("section", { class: "card" }, view.element));
  narrow();

  every(2, () => get(`/api/clients/${encodeURIComponent(parameters.instance)}`, signal), (found) => {
    title(found.client || "Client");
    update(heading, found.client || "(no client id)", " ", state(found));
    update(who, [found.kind, found.software, found.address && `at ${found.address}`, found.principal].filter(Boolean).join(", "),
      found.group ? [", group ", link(`/group${search({ id: found.group })}`, found.group)] : null,
      ["transactional_id", "client_rack", "group_instance_id"].filter((name) => found.resource[name]).map((name) => `, ${name.replaceAll("_", " ")} ${found.resource[name]}`));
    update(tiles, found.records === null ? null : tile("Records", rate(found.records)), found.bytes === null ? null : tile("Bytes", perSecond(found.bytes)),
      found.latency === null ? null : tile("Latency", duration(found.latency)), found.worst === null ? null : tile("Longest", duration(found.worst)), found.lag === null ? null : tile("Lag", count(found.lag)),
      found.errors ? tile("Records not sent", rate(found.errors), { bad: true }) : null, tile("Last push", ago(found.seen)));
    view.set(found.series.map((row) => ({ ...row, short: row.name.startsWith(PREFIX) ? row.name.slice(PREFIX.length) : row.name,
      of: Object.entries(row.labels).map(([name, value]) => `${name} ${value}`).join(", ") })), found.series.length + found.omitted);
  });
}
