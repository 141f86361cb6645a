// Pipelines and loads: the way from topics over steps to tables, and how well they keep up.

import { get } from "../api.js";
import { badge, empty, h, link, path, query, replace, svg, tile } from "../dom.js";
import { ago, count, rate, short } from "../format.js";
import { update } from "../update.js";

const BOX = 190;
const GAP = 46;
const ROW = 44;
const LATE = 10 * 60 * 1000;

export async function show({ root, title, every, signal }) {
  title("Pipelines");
  const body = h("div");
  const note = h("div");
  replace(root, h("div", { class: "head" }, h("h1", {}, "Pipelines and tables")), note, body);
  every(2, () => get("/api/pipelines", signal), (found) => {
    update(note, found.error ? h("div", { class: "notice warning" }, `Not all reports can be read now: ${found.error}. What is shown may be old.`) : null);
    if (!found.pipelines.length && found.error) update(body);
    else if (!found.pipelines.length) {
      update(body, h("section", { class: "card" }, empty("No pipeline has reported yet.",
        "Loads and pipelines report every batch to the topic " + found.topic + ", without being told to. Start one:", "barnabas load orders --to lake/orders --every 30s")));
    } else update(body, found.pipelines.map(card));
  });
}

function card(one) {
  const at = Date.parse(one.at ?? "");
  const late = Date.now() - at > LATE;
  return h("section", { class: "card", key: one.query, "data-query": one.query },
    h("div", { class: "card-head" }, h("h2", {}, one.query, " ", badge("", one.kind ?? "pipeline"), " ", late ? badge("warning", "no batch lately") : badge("ok", "at work")),
      one.group ? link(`/group${query({ id: one.group })}`, "Its group") : null),
    h("div", { class: "card-body" }, h("div", { class: "tiles" },
      tile("Lag now", short(one.lag_now ?? one.lag)), tile("Rows", rate(one.rows_per_second)), tile("Last batch", `${(one.seconds ?? 0).toFixed(1)} s`),
      tile("Rows in it", count(one.rows)), tile("Last commit", h("small", {}, Number.isNaN(at) ? "–" : ago(at))),
      one.files === undefined ? null : tile("Files in it", count(one.files)),
      one.dead_letters_seen ? tile("Dead letters lately", count(one.dead_letters_seen), { bad: true }) : null),
    h("div", { class: "graph" }, graph(one)), bars(one.batches), letters(one)));
}

// Records that became dead letters, where they can be read and sent again.
function letters(one) {
  if (!one.dead_letters_seen) return null;
  const why = `Why is in the table ${one.letters_table ?? `${one.sink ?? ""}_dead`}.`;
  if (!one.letters.length) return [h("h3", {}, "Dead letters"), h("p", { class: "muted" }, `${why} Rows tell where their record is if the view has the columns _topic, _partition and _offset.`)];
  const place = ([topic, partition, offset]) => link(`${path("topics", topic)}/messages${query({ partition, offset })}`, `${topic}, partition ${partition}, offset ${offset}`);
  return [h("h3", {}, "Dead letters"), h("p", { class: "muted" }, `${why} Each can be read in its topic, while that has it, and sent again.`),
    h("ul", { class: "letters" }, one.letters.map((each) => h("li", { key: each.join(" ") }, place(each))))];
}

function graph(one) {
  const columns = [(one.topics ?? []).map((name) => ({ name, kind: "topic" })), ...(one.steps ?? []).map((name) => [{ name, kind: "step" }]),
    one.sink ? [{ name: one.sink, kind: one.format === "topic" ? "topic" : one.format ?? "table" }] : []].filter((column) => column.length);
  if (!columns.length) return null;
  const tallest = Math.max(1, ...columns.map((column) => column.length));
  const width = columns.length * (BOX + GAP) - GAP + 2;
  const height = tallest * ROW + 4;
  const root = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `From ${(one.topics ?? []).join(", ") || "its sources"} ${one.steps?.length ? `over ${one.steps.join(", ")} ` : ""}to ${one.sink ?? "its sink"}` });
  const middle = (column, index) => (height - column.length * ROW) / 2 + index * ROW + ROW / 2;
  columns.forEach((column, at) => {
    const x = at * (BOX + GAP) + 1;
    const next = columns[at + 1];
    column.forEach((box, index) => {
      const y = middle(column, index);
      for (const [other] of (next ?? []).entries()) {
        const to = middle(next, other);
        root.append(svg("path", { class: "edge", d: `M${x + BOX},${y}C${x + BOX + GAP / 2},${y} ${x + BOX + GAP / 2},${to} ${x + BOX + GAP},${to}` }));
      }
      const text = box.name.length > 24 ? `…${box.name.slice(-23)}` : box.name;
      const group = svg("g", {}, svg("title", {}, box.name), svg("rect", { class: box.kind === "topic" ? "topic-box" : null, x, y: y - 18, width: BOX, height: 36, rx: 6 }),
        svg("text", { x: x + 12, y: y - 1 }, text), svg("text", { class: "small", x: x + 12, y: y + 12 }, box.kind));
      if (box.kind === "topic" && !box.name.startsWith("/")) root.append(svg("a", { href: path("topics", box.name) }, group));
      else root.append(group);
    });
  });
  return root;
}

// Rows of the last batches, as bars.
function bars(batches) {
  const most = Math.max(1, ...batches.map((each) => each.rows ?? 0));
  const width = Math.max(60, batches.length * 7);
  return h("div", { class: "graph" }, svg("svg", { width, height: 44, role: "img", "aria-label": `Rows of the last ${batches.length} batches, at most ${most}` },
    batches.map((each, index) => {
      const height = Math.max(1, ((each.rows ?? 0) / most) * 40);
      return svg("rect", { class: "batch", x: index * 7, y: 42 - height, width: 5, height },
        svg("title", {}, `${each.at}: ${each.rows} rows in ${each.seconds} s`));
    })));
}
