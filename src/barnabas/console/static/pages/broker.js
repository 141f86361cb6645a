// One broker: its directories, what is largest on it, its settings.

import { get, patch } from "../api.js";
import { bar } from "../chart.js";
import { ask, tell } from "../dialog.js";
import { badge, empty, h, link, path, replace, tile } from "../dom.js";
import { bytes, count } from "../format.js";
import { table } from "../table.js";
import { update } from "../update.js";
import { problemList } from "./overview.js";
import { settingsTable } from "./topic.js";

export async function show({ root, title, every, signal, session, parameters }) {
  const { id } = parameters;
  title(`Broker ${id}`);
  const problems = h("section", { "aria-label": "What is wrong", "aria-live": "polite" });
  const tiles = h("section", { class: "tiles", "aria-label": "Figures" });
  const directories = h("section", { class: "card" });
  const largest = h("section", { class: "card" });
  const card = h("section", { class: "card" });
  const search = h("input", { type: "search", placeholder: "Search settings", "aria-label": "Search settings" });
  const all = h("input", { type: "checkbox" });
  replace(root, h("div", { class: "head" }, h("div", {}, h("p", { class: "crumb" }, link("/brokers", "Brokers")), h("h1", {}, `Broker ${id}`))),
    problems, tiles, h("div", { class: "columns" }, directories, largest),
    h("div", { class: "tools" }, search, h("label", { class: "check" }, all, "Also those at their default")), card);
  let rows = [];
  let failure = null;
  let up = true;
  let known = "up";
  const draw = () => {
    const text = search.value.trim().toLowerCase();
    const fit = rows.filter((row) => (all.checked || row.set || text) && `${row.name} ${row.meaning}`.toLowerCase().includes(text));
    update(card, h("h2", {}, "Settings"), failure ? empty("The settings cannot be read.", up ? failure : "The broker is down.")
      : fit.length ? settingsTable(fit, session.read_only ? null : change) : empty("No setting fits."));
  };
  async function load() {
    try {
      rows = (await get(`/api/brokers/${id}/settings`, signal)).settings;
      failure = null;
    } catch (error) {
      failure = error.message;
    }
  }
  async function change(row) {
    const done = await ask({ title: row.name, text: row.meaning, action: "Save",
      fields: [{ name: "value", label: "Value", value: row.value ?? "", hint: `Default: ${row.default ?? "not set"}.` },
        ...(row.own ? [{ name: "reset", label: "Or", type: "select", options: [["", "keep this value"], ["1", "return to what it was at the start"]] }] : [])],
      act: (values) => patch(`/api/brokers/${id}/settings`, values.reset ? { unset: [row.name] } : { set: { [row.name]: values.value } }) });
    if (done) {
      tell(root, `${row.name} was changed.`);
      again();
    }
  }
  search.addEventListener("input", draw);
  all.addEventListener("change", draw);
  every(1, () => get(`/api/brokers/${id}`, signal), (now) => {
    const state = now.up ? now.silent ? "silent" : "up" : "down";
    if (known !== state) {
      known = state;
      up = now.up;
      again();
    }
    update(problems, now.problems.length ? problemList(now.problems) : null);
    update(tiles, tile("State", !now.up ? badge("error", "down") : now.silent ? badge("warning", "no answer") : badge("ok", "up")),
      tile("Address", h("small", { class: "mono" }, `${now.host}:${now.port}`)), tile("Rack", now.rack ?? "–"), tile("Controller", now.controller ? "yes" : "no"),
      tile("Leads", count(now.leads)), tile("Holds", count(now.holds)));
    update(directories, h("h2", {}, "Log directories"), now.directories.length ? table([
      { name: "Directory", show: (row) => [h("span", { class: "mono wrap" }, row.path), row.error ? [" ", badge("error", row.error)] : null] },
      { name: "Replicas", kind: "number", show: (row) => count(row.replicas) },
      { name: "Data", kind: "number", show: (row) => bytes(row.size) },
      { name: "Disk used", kind: "number", show: (row) => row.total ? [bar(1 - row.usable / row.total), ` ${Math.round((1 - row.usable / row.total) * 100)} %`] : "–" },
    ], now.directories, "Log directories", (row) => row.path) : empty("No directories are known.", !now.up ? "The broker is down." : now.silent ? "The broker does not answer." : "You may not see them, or the broker does not tell."));
    update(largest, h("h2", {}, "Largest partitions"), now.largest.length ? table([
      { name: "Partition", show: (row) => h("span", { class: "wrap" }, link(path("topics", row.topic), `${row.topic}-${row.partition}`)) },
      { name: "Size", kind: "number", show: (row) => bytes(row.size) },
    ], now.largest.slice(0, 8), "Largest partitions", (row) => `${row.topic}-${row.partition}`) : empty(now.directories.length ? "Nothing here." : "Not known now."));
  });
  const again = every(2, load, draw);
}
