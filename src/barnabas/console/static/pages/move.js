// A plan of where partitions shall be: which brokers, how many replicas, what that moves, and then the move itself.

import { get, post } from "../api.js";
import { bar } from "../chart.js";
import { ask } from "../dialog.js";
import { empty, h, link, path, replace } from "../dom.js";
import { bytes, count, plural } from "../format.js";
import { bigTable, table } from "../table.js";

export async function show({ root, title, query, navigate, session, signal }) {
  title("Move partitions");
  const topics = h("input", { id: "topics", class: "grow", value: query.get("topics") ?? "*", spellcheck: "false", autocomplete: "off" });
  const replicas = h("input", { id: "replicas", type: "number", min: 1, placeholder: "as now" });
  const choices = h("div", { class: "choices" });
  const told = h("p", { class: "form-error", role: "alert" });
  const go = h("button", { class: "primary" }, "Work out a plan");
  const result = h("div", { "aria-live": "polite" });
  const form = h("form", { class: "card plan" },
    h("div", { class: "form-row" }, h("label", { for: "topics" }, "Topics"), topics,
      h("span", { class: "hint" }, "Names, with blanks between them. * stands for any characters: * alone is everything, also internal topics.")),
    h("fieldset", { class: "form-row" }, h("legend", {}, "On these brokers"), choices,
      h("span", { class: "hint" }, "Uncheck a broker to empty it. Check a new one to give it a share.")),
    h("div", { class: "form-row" }, h("label", { for: "replicas" }, "Replicas of each partition"), replicas),
    told, h("div", {}, go));
  replace(root, h("div", { class: "head" }, h("div", {}, h("p", { class: "crumb" }, link("/brokers", "Brokers")), h("h1", {}, "Move partitions"))),
    session.read_only ? h("div", { class: "notice" }, "This console is read-only: it changes nothing.") : null, form, result);
  go.disabled = session.read_only;
  const { brokers } = await get("/api/brokers", signal);
  const boxes = brokers.map((each) => {
    const box = h("input", { type: "checkbox", id: `broker-${each.id}`, value: each.id, checked: each.up, disabled: !each.up });
    return [box, h("label", { class: "check", for: `broker-${each.id}` }, box, `Broker ${each.id}`, each.rack ? ` in ${each.rack}` : "", each.up ? "" : " (down)")];
  });
  replace(choices, boxes.map((each) => each[1]));

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    replace(told);
    replace(result);
    try {
      draw(await post("/api/brokers/plan", { topics: topics.value.split(/[\s,]+/).filter(Boolean), replicas: replicas.value ? Number(replicas.value) : null,
        brokers: boxes.filter(([box]) => box.checked).map(([box]) => Number(box.value)) }, signal));
    } catch (error) {
      told.textContent = error.message;
    }
    go.disabled = false;
  });

  function draw(plan) {
    const waiting = plan.moving ? h("p", { class: "notice" }, `${plural(plan.moving, "partition")} left out: they are being moved already.`) : null;
    if (!plan.moves.length) {
      replace(result, waiting, h("section", { class: "card" }, empty("Nothing has to be moved.", "The partitions are where they should be, as evenly as can be.")));
      return;
    }
    const moves = bigTable([
      { name: "Topic", kind: "name", key: (row) => row.topic, show: (row) => link(path("topics", row.topic), row.topic) },
      { name: "Partition", kind: "number", key: (row) => row.partition, show: (row) => String(row.partition) },
      { name: "Now", show: (row) => row.before.join(", ") },
      { name: "Then", show: (row) => row.after.join(", ") },
      { name: "To copy", kind: "number", key: (row) => row.bytes, show: (row) => bytes(row.bytes) },
    ], { label: "Moves", id: (row) => `${row.topic}-${row.partition}`, sort: "To copy", descending: true });
    const most = Math.max(1, ...plan.brokers.map((each) => Math.max(each.holds, each.then_holds)));
    const move = h("button", { type: "button", class: "primary", onclick: () => execute(plan) }, `Move ${plural(plan.moves.length, "partition")}`);
    const copied = plan.bytes ? `${bytes(plan.bytes)} to copy.` : "Nothing has to be copied.";
    replace(result, waiting,
      h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", {}, `${plural(plan.moves.length, "partition")} to move. ${copied}`), move),
        table([
          { name: "Broker", show: (row) => link(path("brokers", row.id), `Broker ${row.id}`) },
          { name: "Holds now", kind: "number", show: (row) => [bar(row.holds / most), ` ${count(row.holds)}`] },
          { name: "Then", kind: "number", show: (row) => [bar(row.then_holds / most), ` ${count(row.then_holds)}`] },
          { name: "Leads now", kind: "number", optional: true, show: (row) => count(row.leads) },
          { name: "Then", kind: "number", optional: true, show: (row) => count(row.then_leads) },
          { name: "Copies", kind: "number", show: (row) => bytes(row.copies) },
        ], plan.brokers, "What brokers would hold", (row) => row.id)),
      h("section", { class: "card" }, moves.element));
    moves.set(plan.moves);
  }

  async function execute(plan) {
    const done = await ask({
      title: `Move ${plural(plan.moves.length, "partition")}?`, action: "Move", danger: true, confirm: String(plan.moves.length),
      text: [`${bytes(plan.bytes)} are copied between brokers. Clients go on meanwhile. The old replicas go when the new ones are in sync.`,
        "A large move takes bandwidth from clients. To limit it, use barnabas reassign-partitions --throttle."],
      act: () => post("/api/brokers/move", { moves: plan.moves.map((each) => [each.topic, each.partition, each.after]) }),
    });
    if (done) navigate("/brokers");
  }
}
