// The schemas of a registry: subjects, versions, and what each says.

import { get } from "../api.js";
import { body as contentBody } from "../content.js";
import { badge, empty, h, link, query as search, replace, tile } from "../dom.js";
import { bigTable } from "../table.js";
import { showEither } from "../update.js";

export async function show({ root, title, every, signal, query, navigate }) {
  const subject = query.get("subject");
  if (subject) await one(subject, { root, title, signal, query, navigate });
  else await all({ root, title, every, signal });
}

async function all({ root, title, every, signal }) {
  title("Schemas");
  const view = bigTable([
    { name: "Subject", kind: "name", key: (row) => row.name.toLowerCase(), show: (row) => link(`/schemas${search({ subject: row.name })}`, row.name) },
  ], { label: "Subjects", id: (row) => row.name, sort: "Subject" });
  const field = h("input", { type: "search", placeholder: "Search subjects", "aria-label": "Search subjects" });
  const card = h("section", { class: "card" }, view.element);
  field.addEventListener("input", () => view.filter((row) => row.name.toLowerCase().includes(field.value.trim().toLowerCase())));
  replace(root, h("div", { class: "head" }, h("h1", {}, "Schemas")), h("div", { class: "tools" }, field, h("span", { class: "grow" }), view.count), card);
  every(10, () => get("/api/schemas", signal), (found) => {
    view.set(found.subjects.map((name) => ({ name })));
    showEither(card, view.element, found.subjects.length ? null : empty("No schemas yet.", `Serializers register them at ${found.registry}, or you do:`,
      `curl -X POST ${found.registry}/subjects/orders-value/versions -H 'Content-Type: application/json' -d @schema.json`));
  });
}

async function one(subject, { root, title, signal, query, navigate }) {
  title(subject);
  const found = await get(`/api/schema${search({ subject, version: query.get("version") })}`, signal);
  const choice = h("select", { "aria-label": "Version", onchange: (event) => navigate(`/schemas${search({ subject, version: event.target.value })}`) },
    found.versions.map((each) => h("option", { value: each, selected: each === found.version }, `Version ${each}`)));
  const format = found.type === "PROTOBUF" ? "text" : "json";
  replace(root, h("div", { class: "head" }, h("div", {}, h("p", { class: "crumb" }, link("/schemas", "Schemas")), h("h1", {}, subject)), h("div", { class: "head-actions" }, choice)),
    h("section", { class: "tiles", "aria-label": "Figures" }, tile("Kind", h("small", {}, found.type)), tile("Id", String(found.id ?? "–")),
      tile("Version", `${found.version ?? "–"} of ${found.versions.length}`), tile("Compatibility", h("small", {}, found.compatibility ?? "–"))),
    h("section", { class: "card" }, h("h2", {}, "Schema"), h("div", { class: "card-body" },
      found.references.length ? h("p", {}, "Imports ", found.references.map((each) => [badge("", each), " "])) : null,
      contentBody({ format, text: found.text, size: found.text.length }))));
}
