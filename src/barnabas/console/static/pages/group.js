// One group: who is in it, who reads what, how far they are, and where they shall go on.

import { get, post, remove } from "../api.js";
import { chart, NONE_OF_ONE } from "../chart.js";
import { ask, tell } from "../dialog.js";
import { badge, empty, h, link, path, query as search, replace, tile } from "../dom.js";
import { count, plural, short } from "../format.js";
import { bigTable, table } from "../table.js";
import { showEither, update } from "../update.js";
import { kindOf } from "./groups.js";
import { groupState } from "./overview.js";

export async function show({ root, title, every, signal, query, session, navigate }) {
  const id = query.get("id") ?? "";
  title(id);
  const tiles = h("section", { class: "tiles", "aria-label": "Figures" });
  const note = h("div");
  const figure = chart("Lag", short, " records", NONE_OF_ONE);
  const members = h("section", { class: "card" });
  const queue = h("section", { class: "card", hidden: true });
  const view = bigTable([
    { name: "Topic", kind: "name", key: (row) => row.topic, show: (row) => link(path("topics", row.topic), row.topic) },
    { name: "Partition", kind: "number", key: (row) => row.partition, show: (row) => String(row.partition) },
    { name: "Offset", kind: "number", key: (row) => row.offset ?? -1, show: (row) => row.offset === null ? "–"
      : link(`${path("topics", row.topic)}/messages${search({ partition: row.partition, offset: row.offset })}`, count(row.offset)) },
    { name: "End", kind: "number", optional: true, key: (row) => row.end ?? -1, show: (row) => count(row.end) },
    { name: "Lag", kind: "number", key: (row) => row.lag ?? -1, show: (row) => count(row.lag) },
    { name: "Read by", optional: true, key: (row) => row.member ?? "", show: (row) => row.member ?? h("span", { class: "nothing" }, "nobody") },
  ], { label: "Partitions", id: (row) => `${row.topic}-${row.partition}`, sort: "Lag", descending: true });
  const card = h("section", { class: "card" }, view.element);
  let now = null;
  const actions = session.read_only ? [] : [h("button", { type: "button", onclick: reset }, "Reset offsets"),
    h("button", { type: "button", class: "danger", onclick: drop }, "Delete group")];
  replace(root, h("div", { class: "head" }, h("div", {}, h("p", { class: "crumb" }, link("/groups", "Groups")), h("h1", {}, id)),
    h("div", { class: "head-actions" }, actions)), note, tiles, h("section", { class: "card" }, figure.node), members, queue, card);

  every(1, () => get(`/api/group${search({ id })}`, signal), (found) => {
    now = found;
    const lag = now.partitions.reduce((all, row) => all + (row.lag ?? 0), 0);
    update(tiles, tile("State", groupState(now.state)), tile("Kind", h("small", {}, kindOf(now.type))), tile("Members", now.is_known ? count(now.members.length) : "–"),
      tile("Lag", short(lag)), tile("Coordinator", now.coordinator === null ? "–" : String(now.coordinator)),
      tile("Assignor", h("small", {}, now.assignor || "–")), now.epoch === null ? null : tile("Epoch", count(now.epoch)),
      now.dead_letters ? tile("Dead letters", count(now.dead_letters.records), { to: `${path("topics", now.dead_letters.topic)}/messages` }) : null);
    figure.now(now.at, now.silent ? null : lag);
    update(note, now.silent ? h("div", { class: "notice warning", role: "alert" }, `This is not how the group is now. ${now.silent} `,
      now.is_known ? "What is shown is what it told before." : "Its members are not known, and its offsets are those that it told before.") : null,
    now.refusal ? h("div", { class: "notice warning" }, now.refusal) : null);
    update(members, h("h2", {}, "Members"), now.members.length ? memberTable(now)
      : !now.is_known ? empty("The members are not known.", "The coordinator of the group does not answer.") : empty("No members now.", "What the group has committed is kept. Its lag grows until a consumer comes."));
    view.set(now.partitions);
    queue.hidden = now.type !== "Share";
    if (!queue.hidden) update(queue, h("h2", {}, "In flight"), inFlight(now));
    showEither(card, view.element, now.partitions.length ? null : empty("No offsets yet.", "The group has committed nothing and reads nothing."));
  });
  every(10, () => get(`/api/history${search({ name: `lag:${id}`, seconds: 3600 })}`, signal),
    (found) => figure.set(found.series[`lag:${id}`], 3600));

  async function reset() {
    const topics = [...new Set((now?.partitions ?? []).map((row) => row.topic))];
    const preview = h("div");
    let values = { way: "earliest" };
    const request = (execute) => ({ id, topic: values.topic || null, way: values.way, execute,
      value: values.way === "time" ? new Date(values.time).getTime() || 0 : Number(values.value || 0) });
    const look = async (given) => {
      values = given;
      replace(preview, h("p", { class: "muted" }, "Working it out…"));
      try {
        replace(preview, steps((await post("/api/group/reset", request(false))).steps));
      } catch (error) {
        replace(preview, h("p", { class: "form-error" }, error.message));
      }
    };
    const begin = new Date(Date.now() - 3600e3 - new Date().getTimezoneOffset() * 60e3).toISOString().slice(0, 19);
    const opened = ask({
      title: `Reset ${id}`, action: "Reset offsets", danger: true, confirm: id,
      text: "This works while the group has no members. Look at what would happen before you confirm.",
      fields: [
        { name: "topic", label: "Topic", type: "select", options: [["", "all that it has read"], ...topics.map((each) => [each, each])], onchange: look },
        { name: "way", label: "Go on", type: "select", options: [["earliest", "at the first record"], ["latest", "behind the last record"], ["offset", "at an offset"],
          ["shift", "so many records later (or earlier, if negative)"], ["time", "at a time"]], onchange: look },
        { name: "value", label: "Offset, or number of records", type: "number", value: "0", onchange: look },
        { name: "time", label: "Time", type: "datetime-local", step: 1, value: begin, onchange: look },
      ],
      extra: { node: h("section", { "aria-label": "Preview" }, preview) },
      act: (given) => { values = given; return post("/api/group/reset", request(true)); },
    });
    look({ way: "earliest" });
    if (await opened) tell(root, "The offsets were reset.");
  }

  async function drop() {
    const done = await ask({
      title: `Delete group ${id}?`, action: "Delete group", danger: true, confirm: id,
      text: "What it has committed is gone: consumers of this name begin anew.",
      act: (given) => remove("/api/group", { id, confirm: given.confirm }),
    });
    if (done) navigate("/groups");
  }
}

function steps(found) {
  return [table([
    { name: "Partition", show: (row) => h("span", { class: "wrap" }, `${row.topic}-${row.partition}`) },
    { name: "Now", kind: "number", show: (row) => count(row.before) },
    { name: "Then", kind: "number", show: (row) => count(row.after) },
    { name: "", show: (row) => row.again ? badge("warning", `${short(row.again)} again`) : row.skipped ? badge("error", `${short(row.skipped)} skipped`) : "" },
  ], found.slice(0, 200), "What would happen", (row) => `${row.topic}-${row.partition}`), h("p", { class: "muted" }, `${plural(found.length, "partition")}, ${plural(found.reduce((all, row) => all + row.lag, 0), "record")} left to read then.`)];
}

const MOST_RUNS = 12;
const STATES = { Available: ["warning", "for another try"], Acknowledged: ["ok", "done"], Archiving: ["error", "being given up"], Archived: ["error", "given up"] };

// What became of a queue's messages that lie behind its start offsets.
function inFlight(now) {
  if (now.in_flight === null) return empty(now.in_flight_silent ? "What is in flight is not known now." : "You may not see what is in flight.", now.in_flight_refusal);
  if (!now.in_flight.length) return empty("Nothing is in flight.", "Messages that were delivered and are not done stand here.");
  return table([
    { name: "Partition", show: (row) => h("span", { class: "wrap" }, link(path("topics", row.topic), `${row.topic}-${row.partition}`)) },
    { name: "From offset", kind: "number", optional: true, show: (row) => count(row.start) },
    { name: "For another try", kind: "number", show: (row) => count(row.available) },
    { name: "Done", kind: "number", show: (row) => count(row.acknowledged) },
    { name: "Given up", kind: "number", show: (row) => count(row.archived + row.archiving) },
    { name: "Delivered at most", kind: "number", optional: true, show: (row) => row.deliveries ? plural(row.deliveries, "time") : "–" },
    { name: "Messages", optional: true, show: (row) => [row.runs.slice(0, MOST_RUNS).map((run) => [messages(row, run), " "]),
      row.runs.length > MOST_RUNS ? "…" : null] },
  ], now.in_flight, "In flight", (row) => `${row.topic}-${row.partition}`);
}

function messages(row, run) {
  const [kind, word] = STATES[run.state] ?? ["", run.state];
  const where = run.first === run.last ? count(run.first) : `${count(run.first)} to ${count(run.last)}`;
  return h("a", { class: `badge ${kind}`, key: run.first, href: `${path("topics", row.topic)}/messages${search({ partition: row.partition, offset: run.first })}`,
    title: `offset ${where}: ${word}, delivered ${plural(run.deliveries, "time")}` }, `${where}: ${word}`);
}

// Members with their partitions drawn as boxes.
function memberTable(now) {
  const most = Math.max(1, ...now.members.map((each) => each.partitions.length));
  return table([
    { name: "Member", show: (row) => [h("div", { class: "wrap" }, row.client), h("div", { class: "meaning wrap" }, row.instance ?? row.id)] },
    { name: "Host", optional: true, show: (row) => h("span", { class: "mono wrap" }, row.host) },
    { name: "Partitions", kind: "number", show: (row) => [h("span", { class: "bar optional" }, h("span", { style: { width: `${(row.partitions.length / most) * 100}%` } })), ` ${row.partitions.length}`] },
    { name: "Reads", show: (row) => h("span", { class: "replicas" }, row.partitions.slice(0, 60).map((each) => h("span", { class: "replica" }, each)),
      row.partitions.length > 60 ? ` and ${row.partitions.length - 60} more` : null, (row.target ?? []).map((each) => h("span", { class: "replica out", title: "to come" }, each))) },
  ], now.members, "Members", (row) => row.id);
}
