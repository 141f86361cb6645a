// The first page: what is wrong before anything else, then what flows.

import { get } from "../api.js";
import { chart } from "../chart.js";
import { badge, copyable, empty, h, link, path, query, replace, tile } from "../dom.js";
import { bytes, count, rate, short } from "../format.js";
import { table } from "../table.js";
import { update } from "../update.js";

const RANGES = [["15 min", 900], ["1 h", 3600], ["6 h", 21600], ["24 h", 86400]];

const UNMEASURED = "Brokers count bytes where they have metrics: start them with barnabas start --metrics 9404.";

export async function show({ root, title, every, signal }) {
  title("Overview");
  const problems = h("section", { "aria-label": "What is wrong", "aria-live": "polite" });
  const tiles = h("section", { class: "tiles", "aria-label": "Figures" });
  const busiest = h("section", { class: "card" });
  const behind = h("section", { class: "card" });
  const brokers = h("section", { class: "card" });
  const figures = [
    ["records", chart("Records in", short, "/s")],
    ["lag", chart("Lag of all groups", short, " records")],
    ["bytes-in", chart("Bytes in", bytes, "/s", UNMEASURED)],
    ["bytes-out", chart("Bytes out", bytes, "/s", UNMEASURED)],
    ["disk", chart("On disk", bytes)],
    ["under-replicated", chart("Under-replicated", short, " partitions")],
  ];
  let seconds = 3600;
  const buttons = RANGES.map(([name, each]) => h("button", { type: "button", "aria-pressed": each === seconds ? "true" : "false",
    onclick: () => {
      seconds = each;
      buttons.forEach((button, index) => button.setAttribute("aria-pressed", RANGES[index][1] === seconds ? "true" : "false"));
      history();
    } }, name));
  replace(root,
    h("div", { class: "head" }, h("h1", {}, "Overview"),
      h("div", { class: "segments", role: "group", "aria-label": "Time of the charts" }, buttons)),
    problems, tiles, h("div", { class: "columns charts" }, figures.map(([, each]) => h("section", { class: "card" }, each.node))),
    h("div", { class: "columns" }, busiest, behind), brokers);

  every(1, () => get("/api/overview", signal), (now) => {
    update(problems, wrong(now), now.history_failure ? h("div", { class: "notice" }, `No figures are kept now. ${now.history_failure}`) : null,
      now.metrics_failure ? h("div", { class: "notice" }, `Bytes a second are not known. ${now.metrics_failure}`) : null);
    update(tiles, figuresNow(now));
    figures.forEach(([name, each]) => each.now(now.at, valueOf(now, name)));
    update(busiest, h("h2", {}, "Busiest topics"), now.busiest.length
      ? table([
        { name: "Topic", show: (row) => h("span", { class: "wrap" }, link(path("topics", row.topic), row.topic)) },
        { name: "Records", kind: "number", show: (row) => rate(row.rate) },
      ], now.busiest, "Busiest topics", (row) => row.topic)
      : empty("Nothing flows now.", "Send something:", "echo hello | barnabas produce --topic greetings"));
    update(behind, h("h2", {}, "Groups furthest behind"), now.behind.length
      ? table([
        { name: "Group", show: (row) => h("span", { class: "wrap" }, link(`/group${query({ id: row.group })}`, row.group)) },
        { name: "State", show: (row) => groupState(row.state) },
        { name: "Lag", kind: "number", show: (row) => count(row.lag) },
      ], now.behind, "Groups furthest behind", (row) => row.group)
      : empty(now.groups ? "No group has lag." : "No groups yet.", now.groups ? null : "Read a topic as a group:",
        now.groups ? null : "barnabas consume --topic greetings --group readers --from-beginning"));
    update(brokers, h("h2", {}, "Brokers"), brokerTable(now.brokers));
  });
  const names = figures.map(([name]) => `name=${name}`).join("&");
  const history = every(10, () => get(`/api/history?${names}&seconds=${seconds}`, signal),
    (found) => figures.forEach(([name, each]) => each.set(found.series[name], seconds)));
}

function wrong(now) {
  if (!now.problems.length) return h("div", { class: "well" }, "✓ Nothing is wrong. All partitions have a leader and all replicas are in sync.");
  return problemList(now.problems);
}

export function problemList(problems) {
  return h("ul", { class: "problems" }, problems.map((problem) =>
    h("li", { class: `problem ${problem.level}`, key: problem.title },
      h("h3", {}, problem.link ? link(problem.link, problem.title) : problem.title),
      h("p", {}, problem.detail), h("p", { class: "to-do" }, problem.to_do),
      problem.command ? copyable(problem.command) : null)));
}

// What a chart shows, as it is at this moment.
function valueOf(now, name) {
  return { records: now.records, lag: now.lag, disk: now.disk, "under-replicated": now.under_replicated,
    "bytes-in": now.traffic?.bytes_in ?? null, "bytes-out": now.traffic?.bytes_out ?? null }[name];
}

function figuresNow(now) {
  const up = now.brokers.filter((broker) => broker.up && !broker.silent).length;
  const some = up < now.brokers.length ? h("small", {}, ` on ${up} of ${now.brokers.length}`) : null;
  return [
    tile("Brokers", [String(up), h("small", {}, ` of ${now.brokers.length}`)], { to: "/brokers", bad: up < now.brokers.length }),
    tile("Controller", now.controller === null ? "none" : String(now.controller), { to: "/brokers", bad: now.controller === null }),
    tile("Topics", count(now.topics), { to: "/topics" }),
    tile("Partitions", count(now.partitions), { to: "/topics" }),
    tile("Records in", rate(now.records), { to: "/topics" }),
    tile("Groups", count(now.groups), { to: "/groups" }),
    tile("Lag", short(now.lag), { to: "/groups" }),
    tile("On disk", [bytes(now.disk), some], { to: "/brokers" }),
    now.traffic ? tile("Bytes in", `${bytes(now.traffic.bytes_in)}/s`) : null, // they come later, and move nothing
    now.traffic ? tile("Bytes out", `${bytes(now.traffic.bytes_out)}/s`) : null,
  ];
}

export function groupState(state) {
  const kind = { Stable: "ok", Empty: "", Dead: "error" }[state] ?? "warning";
  return badge(kind, state || "unknown");
}

export function brokerTable(brokers) {
  const most = Math.max(1, ...brokers.map((broker) => broker.leads));
  return table([
    { name: "Broker", show: (row) => h("span", { class: "keep" }, link(path("brokers", row.id), `Broker ${row.id}`)) },
    { name: "Address", show: (row) => h("span", { class: "mono wrap" }, `${row.host}:${row.port}`) },
    { name: "Rack", optional: true, show: (row) => row.rack ?? "–" },
    { name: "State", show: (row) => [
      !row.up ? badge("error", "down") : row.silent ? badge("warning", "no answer") : badge("ok", "up"), " ",
      row.controller ? badge("", "controller") : null] },
    { name: "Leads", kind: "number", show: (row) => [h("span", { class: "bar optional" }, h("span", { style: { width: `${(row.leads / most) * 100}%` } })), ` ${count(row.leads)}`] },
    { name: "Holds", kind: "number", optional: true, show: (row) => count(row.holds) },
  ], brokers, "Brokers", (row) => row.id);
}
