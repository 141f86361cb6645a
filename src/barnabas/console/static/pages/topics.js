// All topics: any number of them, searched and sorted in the browser.

import { get, post } from "../api.js";
import { ask } from "../dialog.js";
import { badge, empty, h, link, path, replace } from "../dom.js";
import { bytes, count, rate } from "../format.js";
import { bigTable } from "../table.js";
import { showEither } from "../update.js";

const SHOWS = {
  "": ["All", () => true],
  offline: ["Without a leader", (row) => row.offline > 0],
  "under-replicated": ["Under-replicated", (row) => row.behind > 0 || row.offline > 0],
  "under-min-isr": ["Under-replicated", (row) => row.behind > 0 || row.offline > 0],
};

export async function show({ root, title, every, signal, session, query, navigate }) {
  title("Topics");
  const view = bigTable([
    { name: "Topic", kind: "name", key: (row) => row.name.toLowerCase(), show: (row) => [link(path("topics", row.name), row.name),
      row.internal ? [" ", badge("", "internal")] : null] },
    { name: "Partitions", kind: "number", optional: true, key: (row) => row.partitions, show: (row) => count(row.partitions) },
    { name: "Replicas", kind: "number", optional: true, key: (row) => row.replicas, show: (row) => count(row.replicas) },
    { name: "Records", kind: "number", optional: true, key: (row) => row.records, show: (row) => count(row.records) },
    { name: "Size", kind: "number", optional: true, key: (row) => row.size, show: (row) => bytes(row.size) },
    { name: "Rate", kind: "number", key: (row) => row.rate, show: (row) => rate(row.rate) },
    { name: "State", key: (row) => -(row.offline * 1e6 + row.behind), show: (row) => row.offline ? badge("error", `${row.offline} offline`)
      : row.behind ? badge("warning", `${row.behind} under-replicated`) : badge("ok", "in sync") },
  ], { label: "Topics", id: (row) => row.name, sort: query.get("sort") ?? "Topic", descending: query.get("down") === "1" });
  const search = h("input", { type: "search", placeholder: "Search topics", "aria-label": "Search topics", value: query.get("q") ?? "" });
  const internal = h("input", { type: "checkbox", checked: query.get("internal") === "1" });
  const states = h("select", { "aria-label": "State" }, Object.entries(SHOWS).filter(([key]) => key !== "under-min-isr").map(([key, [name]]) =>
    h("option", { value: key, selected: key === (query.get("show") ?? "").replace("under-min-isr", "under-replicated") }, name)));
  const body = h("section", { class: "card" }, view.element);

  function narrow() {
    const text = search.value.trim().toLowerCase();
    const [, fits] = SHOWS[states.value] ?? SHOWS[""];
    view.filter((row) => (internal.checked || !row.internal || states.value) && fits(row) && row.name.toLowerCase().includes(text));
    const parts = new URLSearchParams();
    if (text) parts.set("q", text);
    if (states.value) parts.set("show", states.value);
    if (internal.checked) parts.set("internal", "1");
    history.replaceState(null, "", `/topics${parts.size ? `?${parts}` : ""}`);
  }

  search.addEventListener("input", narrow);
  states.addEventListener("change", narrow);
  internal.addEventListener("change", narrow);
  replace(root,
    h("div", { class: "head" }, h("h1", {}, "Topics"), h("div", { class: "head-actions" },
      session.read_only ? null : h("button", { type: "button", class: "primary", onclick: create }, "Create topic"))),
    h("div", { class: "tools" }, search, states, h("label", { class: "check" }, internal, "Internal topics"), h("span", { class: "grow" }), view.count),
    body);

  function draw(found) {
    const rows = found.rows.map((row) => Object.fromEntries(found.columns.map((name, index) => [name, row[index]])));
    view.set(rows);
    showEither(body, view.element, internal.checked || rows.some((row) => !row.internal) ? null
      : empty("No topics yet.", "Create one here, or with:", "barnabas topics --create --topic greetings --partitions 3"));
  }

  async function create() {
    let name = "";
    const done = await ask({
      title: "Create a topic", action: "Create",
      fields: [
        { name: "name", label: "Name", required: true, hint: "Letters, digits, dots, hyphens and underscores." },
        { name: "partitions", label: "Partitions", type: "number", min: 1, placeholder: "the brokers' default" },
        { name: "replicas", label: "Replicas", type: "number", min: 1, placeholder: "the brokers' default" },
        { name: "cleanup", label: "Old records", type: "select", options: [["", "the brokers' default"], ["delete", "are deleted by age and size"],
          ["compact", "are kept, the newest of each key"], ["compact,delete", "are compacted, and deleted by age"]] },
        { name: "retention", label: "Keep records for", type: "select", options: [["", "the brokers' default"], ["3600000", "an hour"], ["86400000", "a day"],
          ["604800000", "a week"], ["2592000000", "30 days"], ["-1", "ever"]] },
      ],
      act: (values) => {
        name = values.name;
        const settings = {};
        if (values.cleanup) settings["cleanup.policy"] = values.cleanup;
        if (values.retention) settings["retention.ms"] = values.retention;
        return post("/api/topics", { name, settings, partitions: values.partitions ? Number(values.partitions) : null,
          replicas: values.replicas ? Number(values.replicas) : null });
      },
    });
    if (done) navigate(path("topics", name));
  }

  narrow();
  every(1, () => get("/api/topics", signal), draw);
}
