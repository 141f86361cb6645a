// One topic: its partitions, its settings, its readers.

import { get, patch, post, remove } from "../api.js";
import { ask, tell } from "../dialog.js";
import { chart, NONE_OF_ONE } from "../chart.js";
import { badge, empty, h, link, path, query, replace, tile } from "../dom.js";
import { bytes, count, duration, plural, rate, short } from "../format.js";
import { bigTable, table } from "../table.js";
import { update } from "../update.js";
import { kindOf } from "./groups.js";
import { groupState } from "./overview.js";

export function topicHead(name, tab, actions = []) {
  const tabs = [["partitions", "Partitions"], ["messages", "Messages"], ["settings", "Settings"], ["groups", "Groups"]];
  return [
    h("div", { class: "head" }, h("div", {}, h("p", { class: "crumb" }, link("/topics", "Topics")), h("h1", {}, name)),
      h("div", { class: "head-actions" }, actions)),
    h("div", { class: "tabs", role: "navigation", "aria-label": "Parts of the topic" }, tabs.map(([key, label]) =>
      h("a", { href: path("topics", name) + (key === "partitions" ? "" : `/${key}`), "aria-current": key === tab ? "page" : null }, label))),
  ];
}

export async function show(context) {
  const { parameters, title, root, session, navigate } = context;
  const name = parameters.topic;
  const tab = parameters.tab ?? "partitions";
  title(name);
  const body = h("div");
  const actions = session.read_only ? [] : [
    h("button", { type: "button", onclick: () => grow(context, body) }, "Add partitions"),
    h("button", { type: "button", class: "danger", onclick: () => clear(name, body) }, "Delete records"),
    h("button", { type: "button", class: "danger", onclick: async () => { if (await drop(name)) navigate("/topics"); } }, "Delete topic"),
  ];
  replace(root, topicHead(name, tab, actions), body);
  await { partitions: showPartitions, settings: showSettings, groups: showGroups }[tab](context, name, body);
}

function grow({ signal }, body) {
  const name = decodeURIComponent(location.pathname.split("/")[2]);
  return get(`/api${path("topics", name)}`, signal).then((now) => ask({
    title: `Add partitions to ${name}`, action: "Add",
    text: "Records with a key go to other partitions from then on than they did before. Partitions cannot be removed.",
    fields: [{ name: "partitions", label: "Partitions in all", type: "number", min: now.partitions.length + 1, value: now.partitions.length + 1, required: true }],
    act: (values) => post(`/api${path("topics", name)}/partitions`, { partitions: Number(values.partitions) }),
  })).then((done) => { if (done) tell(body, "The partitions were added."); });
}

async function clear(name, body) {
  const done = await ask({
    title: `Delete all records of ${name}?`, action: "Delete records", danger: true, confirm: name,
    text: "The topic stays. What it holds now is gone for all who read it, and cannot be brought back.",
    act: (values) => post(`/api${path("topics", name)}/clear`, { confirm: values.confirm }),
  });
  if (done) tell(body, "The records were deleted.");
}

function drop(name) {
  return ask({
    title: `Delete topic ${name}?`, action: "Delete topic", danger: true, confirm: name,
    text: "The topic and all that it holds are gone for good.",
    act: (values) => remove(`/api${path("topics", name)}`, { confirm: values.confirm }),
  });
}

async function showPartitions({ every, signal }, name, body) {
  const tiles = h("section", { class: "tiles", "aria-label": "Figures" });
  const figure = chart("Records in", short, "/s", NONE_OF_ONE);
  const view = bigTable([
    { name: "Partition", key: (row) => row.number, show: (row) =>
      link(`${path("topics", name)}/messages${query({ partition: row.number })}`, String(row.number)) },
    { name: "Leader", kind: "number", optional: true, key: (row) => row.leader ?? -1, show: (row) => row.leader === null ? badge("error", "none") : String(row.leader) },
    { name: "Replicas", show: (row) => replicas(row) },
    { name: "State", key: (row) => stateOf(row)[1], show: (row) => badge(...stateOf(row)) },
    { name: "First offset", kind: "number", optional: true, key: (row) => row.start ?? -1, show: (row) => count(row.start) },
    { name: "End offset", kind: "number", key: (row) => row.end ?? -1, show: (row) => count(row.end) },
    { name: "Size", kind: "number", optional: true, key: (row) => row.size ?? -1, show: (row) => bytes(row.size) },
    { name: "Rate", kind: "number", optional: true, key: (row) => row.rate, show: (row) => rate(row.rate) },
  ], { label: `Partitions of ${name}`, id: (row) => row.number, sort: "Partition" });
  replace(body, tiles, h("section", { class: "card" }, figure.node), h("section", { class: "card" }, view.element));
  every(1, () => get(`/api${path("topics", name)}`, signal), (now) => {
    const sum = (key) => now.partitions.reduce((all, row) => all + (row[key] ?? 0), 0);
    update(tiles, tile("Partitions", count(now.partitions.length)), tile("Replicas", count(now.partitions[0]?.replicas.length)),
      tile("Records", short(now.partitions.reduce((all, row) => all + Math.max(0, (row.end ?? 0) - (row.start ?? 0)), 0))),
      tile("Size", bytes(sum("size"))), tile("Records in", rate(sum("rate"))),
      tile("min.insync.replicas", now.least_isr === null ? "–" : String(now.least_isr)));
    figure.now(now.at, sum("rate"));
    view.set(now.partitions.map((row) => ({ ...row, least: now.least_isr })));
  });
  every(10, () => get(`/api/history?name=${encodeURIComponent(`records:${name}`)}&seconds=3600`, signal),
    (found) => figure.set(found.series[`records:${name}`], 3600));
}

function stateOf(row) {
  if (row.leader === null) return ["error", "offline"];
  if (row.adding.length || row.removing.length) return ["", "moving"];
  if (row.isr.length < Math.min(row.least ?? 0, row.replicas.length)) return ["error", "below min ISR"];
  if (row.isr.length < row.replicas.length) return ["warning", "under-replicated"];
  return ["ok", "in sync"];
}

function replicas(row) {
  return h("span", { class: "replicas" }, row.replicas.map((id) => {
    const [kind, word] = id === row.leader ? [" leader", "leader"] : row.isr.includes(id) ? ["", "in sync"] : [" out", "not in sync"];
    return h("span", { class: `replica${kind}`, title: `broker ${id}: ${word}` }, String(id));
  }));
}

async function showSettings({ every, signal, session, root }, name, body) {
  const search = h("input", { type: "search", placeholder: "Search settings", "aria-label": "Search settings" });
  const all = h("input", { type: "checkbox", checked: true });
  const card = h("section", { class: "card" });
  replace(body, h("div", { class: "tools" }, search, h("label", { class: "check" }, all, "Also those at their default")), card);
  let rows = [];
  const draw = () => {
    const text = search.value.trim().toLowerCase();
    const fit = rows.filter((row) => (all.checked || row.set) && `${row.name} ${row.meaning}`.toLowerCase().includes(text));
    update(card, fit.length ? settingsTable(fit, session.read_only ? null : change)
      : empty("No setting fits.", rows.length ? null : "You may not see the settings of this topic."));
  };

  async function change(row) {
    const done = await ask({
      title: row.name, text: row.meaning, action: "Save",
      fields: [{ name: "value", label: "Value", value: row.value ?? "", hint: [row.takes && `Takes ${row.takes}.`, `Default: ${row.default ?? "not set"}.`].filter(Boolean).join(" ") },
        ...(row.own ? [{ name: "reset", label: "Or", type: "select", options: [["", "keep this value"], ["1", "return to the default"]] }] : [])],
      act: (values) => patch(`/api${path("topics", name)}/settings`, values.reset ? { unset: [row.name] } : { set: { [row.name]: values.value } }),
    });
    if (done) {
      tell(root, `${row.name} was changed.`);
      again();
    }
  }

  search.addEventListener("input", draw);
  all.addEventListener("change", draw);
  const again = every(2, () => get(`/api${path("topics", name)}/settings`, signal), (found) => {
    rows = found.settings;
    draw();
  });
}

// A sentence with names in backquotes.
function words(text) {
  return text.split("`").map((part, index) => (index % 2 ? h("code", {}, part) : part));
}

function human(row) {
  const value = Number(row.value);
  if (row.sensitive || row.value === null || row.value === "" || !Number.isFinite(value)) return null;
  const text = value > 9e18 ? "no limit" : value < 0 ? null : row.name.endsWith(".ms") && value >= 1000 ? duration(value)
    : row.name.endsWith("bytes") && value >= 1000 ? bytes(value) : null;
  return text ? h("div", { class: "meaning" }, text) : null;
}

export function settingsTable(rows, change) {
  return table([
    { name: "Setting", show: (row) => [h("div", { class: "mono wrap" }, row.name), h("div", { class: "meaning" }, words(row.meaning),
      row.takes ? ` Takes ${row.takes}.` : null)] },
    { name: "Value", show: (row) => [h("code", { class: "wrap" }, row.sensitive ? "hidden" : row.value === null || row.value === "" ? "–" : row.value), human(row), " ",
      row.set ? badge(row.own ? "ok" : "", row.source) : null] },
    { name: "Default", optional: true, show: (row) => h("code", { class: "wrap" }, row.default === null || row.default === "" ? "–" : row.default) },
    ...(change ? [{ name: "", show: (row) => row.read_only ? h("span", { class: "muted" }, "at start only")
      : h("button", { type: "button", class: "plain", "aria-label": `Change ${row.name}`, onclick: () => change(row) }, "Change") }] : []),
  ], rows, "Settings", (row) => row.name);
}

async function showGroups({ every, signal }, name, body) {
  const card = h("section", { class: "card" });
  replace(body, card);
  every(1, () => get(`/api${path("topics", name)}/groups`, signal), ({ groups }) => {
    update(card, groups.length ? table([
      { name: "Group", show: (row) => h("span", { class: "wrap" }, link(`/group${query({ id: row.id })}`, row.id)) },
      { name: "Kind", show: (row) => kindOf(row.type) },
      { name: "State", show: (row) => groupState(row.state) },
      { name: "Lag", kind: "number", show: (row) => plural(row.lag, "record") },
    ], groups, `Groups that read ${name}`, (row) => row.id)
      : empty("No group has read this topic.", "Read it as a group:", `barnabas consume --topic ${name} --group readers --from-beginning`));
  });
}
