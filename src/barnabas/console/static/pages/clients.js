// Clients that push their metrics (KIP-714): who they are, how fast, how late.

import { get } from "../api.js";
import { badge, copyable, empty, h, link, path, query as search, replace } from "../dom.js";
import { ago, bytes, count, duration, moment, rate } from "../format.js";
import { bigTable } from "../table.js";
import { showEither, update } from "../update.js";

const LATE = 3;

// A client whose next push is overdue: it has ended, or cannot push any more.
export function state(row) {
  const due = row.interval === null ? null : Math.max(5000, LATE * row.interval);
  return due !== null && Date.now() - row.seen > due ? badge("warning", "quiet") : null;
}

export const perSecond = (value) => value === null ? "–" : `${bytes(value)}/s`;

const SEARCHED = ["client", "software", "address", "principal", "group", "kind", "instance"];

export async function show({ root, title, every, signal, query }) {
  title("Clients");
  const view = bigTable([
    { name: "Client", kind: "name", key: (row) => row.client.toLowerCase(),
      show: (row) => h("span", { title: row.client }, link(path("clients", row.instance), row.client || "(no client id)"), " ", state(row)) },
    { name: "Kind", optional: true, key: (row) => row.kind, show: (row) => row.kind || "–" },
    { name: "Records", kind: "number", key: (row) => row.records ?? -1, show: (row) => rate(row.records) },
    { name: "Bytes", kind: "number", optional: true, key: (row) => row.bytes ?? -1, show: (row) => perSecond(row.bytes) },
    { name: "Latency", kind: "number", key: (row) => row.latency ?? -1, show: (row) => duration(row.latency) },
    { name: "Longest", kind: "number", optional: true, key: (row) => row.worst ?? -1, show: (row) => duration(row.worst) },
    { name: "Lag", kind: "number", key: (row) => row.lag ?? -1, show: (row) => count(row.lag) },
    { name: "Last push", kind: "number", optional: true, key: (row) => row.seen, show: (row) => h("span", { title: moment(row.seen) }, ago(row.seen)) },
    { name: "Group", kind: "short", optional: true, key: (row) => row.group ?? "", show: (row) => row.group ? link(`/group${search({ id: row.group })}`, row.group) : "–" },
    { name: "Address", optional: true, key: (row) => row.address, show: (row) => row.address || "–" },
    { name: "Software", kind: "short", optional: true, key: (row) => row.software, show: (row) => h("span", { title: row.software }, row.software || "–") },
  ], { label: "Clients", id: (row) => row.instance, sort: "Client" });
  const text = h("input", { type: "search", placeholder: "Search clients", "aria-label": "Search clients", value: query.get("q") ?? "" });
  const card = h("section", { class: "card" }, view.element);
  const note = h("div");
  const narrow = () => {
    const wanted = text.value.trim().toLowerCase();
    view.filter((row) => SEARCHED.some((name) => row[name]?.toLowerCase().includes(wanted)));
  };
  text.addEventListener("input", narrow);
  replace(root, h("div", { class: "head" }, h("h1", {}, "Clients")), note, h("div", { class: "tools" }, text, h("span", { class: "grow" }), view.count), card);
  narrow();
  every(2, () => get("/api/clients", signal), (found) => {
    update(note, found.forgotten ? h("div", { class: "notice warning" }, `There are more clients than are kept; ${count(found.forgotten)} were left out.`) : null);
    view.set(found.clients);
    showEither(card, view.element, found.clients.length ? null : found.taking ? waiting(found) : off(found));
  });
}

function off(found) {
  const box = empty("This console does not take metrics of clients.", "Start it so, or a broker together with it by barnabas start --console:", "barnabas console --telemetry");
  box.append(h("p", { class: "then" }, "And tell each broker where it is:"), copyable(`telemetry.otlp.endpoint=${found.endpoint}`));
  return box;
}

function waiting(found) {
  const box = empty("No client has pushed metrics yet.", "Clients of Kafka 3.7 and librdkafka 2.5 and newer push them every telemetry.interval.ms to brokers that have the setting:",
    `telemetry.otlp.endpoint=${found.endpoint}`);
  if (found.needs_token) box.append(h("p", { class: "then" }, "They need the token of --telemetry-token-file, too: telemetry.otlp.token."));
  return box;
}
