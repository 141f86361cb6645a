// The records of a topic: found by offset, time and filter, followed as they come, opened, copied, downloaded and sent.

import { get, post } from "../api.js";
import { body as contentBody, line } from "../content.js";
import { ask } from "../dialog.js";
import { badge, copyText, copyable, empty, h, link, path, query as search, replace } from "../dom.js";
import { bytes, count, moment, plural } from "../format.js";
import { topicHead } from "./topic.js";

const FORMATS = [["auto", "Automatic"], ["json", "JSON"], ["text", "Text"], ["hex", "Hex"], ["avro", "Avro"], ["protobuf", "Protobuf"], ["number", "Number"]];
const MOST_ROWS = 2000;
const MOST_FOLLOWED = 500;
const ENDS = {
  limit: "There is more.", end: "That is all.", records: "Stopped at the limit of records.", time: "Stopped at the limit of time.", stopped: "Stopped.",
};

export async function show({ root, title, parameters, query, session, signal }) {
  const { topic } = parameters;
  title(`Messages of ${topic}`);
  const api = `/api${path("topics", topic)}`;
  const choice = (id, label, options, value) => h("select", { id, "aria-label": label },
    options.map(([key, name]) => h("option", { value: key, selected: key === value }, name)));
  const exact = query.get("offset");
  const way = choice("from", "Where to begin", [["newest", "Newest"], ["oldest", "Oldest"], ["offset", "From offset"], ["time", "From time"], ["follow", "Live"]],
    exact !== null ? "offset" : query.get("from") ?? "newest");
  const offset = h("input", { type: "number", min: 0, "aria-label": "Offset", placeholder: "Offset", value: exact ?? query.get("at") ?? "" });
  const time = h("input", { type: "datetime-local", step: 1, "aria-label": "Time" });
  const partition = h("select", { "aria-label": "Partition" }, h("option", { value: "" }, "All partitions"));
  const filter = h("input", { type: "search", class: "filter", "aria-label": "Filter", placeholder: 'value.total > 100 && key.startsWith("eu-")',
    value: query.get("filter") ?? "", spellcheck: "false", title: "CEL over topic, partition, offset, timestamp, key, value, headers, size, tombstone, transactional" });
  const keyFormat = choice("key-format", "Show keys as", FORMATS, query.get("key") ?? "auto");
  const valueFormat = choice("value-format", "Show values as", FORMATS, query.get("value") ?? "auto");
  const limit = choice("limit", "Find at most", [["20", "20"], ["50", "50"], ["200", "200"], ["1000", "1,000"]], query.get("limit") ?? "50");
  const most = choice("records", "Look at no more than", [["100000", "100 k records"], ["1000000", "1 M records"], ["10000000", "10 M records"], ["100000000", "100 M records"]], query.get("records") ?? "1000000");
  const seconds = choice("seconds", "Search for no longer than", [["10", "10 s"], ["60", "1 min"], ["600", "10 min"], ["3600", "1 h"]], query.get("seconds") ?? "60");
  const go = h("button", { class: "primary" }, "Search");
  const stop = h("button", { type: "button", disabled: true, onclick: () => end("Stopped.") }, "Stop");
  const told = h("div", { class: "scan", role: "status" });
  const rows = h("tbody");
  const table = h("table", { class: "records", "aria-label": `Records of ${topic}` }, h("thead", {}, h("tr", {},
    ["Partition", "Offset"].map((name) => h("th", { class: "number", scope: "col" }, name)),
    h("th", { scope: "col", class: "optional" }, "Time"), h("th", { scope: "col", class: "optional" }, "Key"), h("th", { scope: "col" }, "Value"),
    h("th", { scope: "col", class: "number optional" }, "Size"))), rows);
  const card = h("section", { class: "card" }, h("div", { class: "table-wrap" }, table));
  const more = h("div", { class: "tools" });
  const form = h("form", {},
    h("div", { class: "tools" }, way, offset, time, partition, session.filters ? filter : null, go, stop),
    h("div", { class: "tools" }, h("label", { class: "check" }, "Keys ", keyFormat), h("label", { class: "check" }, "Values ", valueFormat),
      h("label", { class: "check" }, "Find ", limit), h("label", { class: "check" }, "in at most ", most), h("label", { class: "check" }, "within ", seconds)));
  replace(root, topicHead(topic, "messages", session.read_only ? [] : [h("button", { type: "button", onclick: sendRecord }, "Send a record")]),
    form, told, card, more);
  let source = null;
  let shown = 0;
  let last = {};
  let positions = null;
  let opened = exact === null ? null : `${query.get("partition") ?? 0}:${exact}`;

  function end(text) {
    source?.close();
    source = null;
    go.disabled = false;
    stop.disabled = true;
    if (text) tellProgress(last, text);
  }
  signal.addEventListener("abort", () => end());

  function tellProgress(now, ending) {
    last = now;
    const parts = [];
    if (now.scanned !== undefined) {
      parts.push(h("span", {}, h("strong", {}, plural(now.found, "record")), " found"),
        h("span", {}, `${count(now.scanned)} looked at, ${bytes(now.bytes)}, ${now.seconds.toFixed(1)} s`));
    }
    if (now.skipped) parts.push(h("span", {}, `${count(now.skipped)} came too fast to be shown`));
    if (now.failed) parts.push(badge("warning", `${plural(now.failed, "record")} could not be told: ${now.failure}`));
    parts.push(h("span", {}, ending ?? (way.value === "follow" ? "Waiting for new records…" : "Searching…")));
    replace(told, parts);
  }

  function address() {
    const parts = { from: way.value === "newest" ? "" : way.value, partition: partition.value, filter: filter.value,
      key: keyFormat.value === "auto" ? "" : keyFormat.value, value: valueFormat.value === "auto" ? "" : valueFormat.value, limit: limit.value === "50" ? "" : limit.value,
      records: most.value === "1000000" ? "" : most.value, seconds: seconds.value === "60" ? "" : seconds.value };
    if (way.value === "offset") parts.at = offset.value || "0";
    history.replaceState(null, "", location.pathname + search(parts));
  }

  function start(from) {
    end();
    if (!from) {
      replace(rows);
      shown = 0;
      replace(card, h("div", { class: "table-wrap" }, table));
    }
    replace(more);
    const follow = way.value === "follow";
    const at = way.value === "offset" ? offset.value || "0" : way.value === "time" ? String(new Date(time.value).getTime() || 0) : "";
    go.disabled = true;
    stop.disabled = false;
    tellProgress({ found: 0 });
    source = new EventSource(`${api}/records${search({ from: way.value, at, partition: partition.value, filter: filter.value, key: keyFormat.value,
      value: valueFormat.value, limit: limit.value, records: most.value, seconds: seconds.value, positions: from })}`);
    source.addEventListener("records", (event) => add(JSON.parse(event.data).records, follow));
    source.addEventListener("progress", (event) => tellProgress(JSON.parse(event.data)));
    source.addEventListener("done", (event) => {
      const now = JSON.parse(event.data);
      end();
      tellProgress(now, ENDS[now.reason]);
      positions = now.positions;
      if (!shown) replace(card, nothing(now));
      if (positions && shown < MOST_ROWS) {
        replace(more, h("button", { type: "button", onclick: () => start(Object.entries(positions).map((each) => each.join(":")).join(",")) },
          way.value === "newest" ? "Older records" : "Next records"));
      }
    });
    source.addEventListener("failed", (event) => {
      end();
      replace(told, h("div", { class: "notice error", role: "alert" }, JSON.parse(event.data).error));
    });
    source.onerror = () => { if (source) end("The connection to the console is lost."); };
  }

  function nothing(now) {
    if (filter.value) return empty("No record fits.", `${plural(now.scanned, "record")} looked at.`);
    return empty("No records here.", "Send one here, or with:", `echo hello | barnabas produce --topic ${topic}`);
  }

  function add(records, follow) {
    for (const record of records) {
      const row = draw(record);
      if (follow) rows.prepend(row);
      else rows.append(row);
      shown += 1;
      if (opened === `${record.partition}:${record.offset}`) {
        opened = null;
        toggle(row, record);
      }
    }
    while (follow && rows.children.length > MOST_FOLLOWED) rows.lastElementChild.remove();
  }

  function draw(record) {
    const open = h("button", { type: "button", class: "plain", "aria-expanded": "false", "aria-label": `Open record ${record.offset} of partition ${record.partition}` }, count(record.offset));
    const marks = [record.transaction && record.transaction !== "committed" ? [badge(record.transaction === "aborted" ? "error" : "warning", record.transaction), " "] : null,
      record.value?.format === "null" ? [badge("", "tombstone"), " "] : null];
    const content = record.control ? h("em", {}, `transaction ${record.control} of producer ${record.producer}`)
      : record.damage ? badge("error", record.damage) : [marks, record.value.format === "null" ? "" : line(record.value)];
    const row = h("tr", { class: `row${record.control ? " control" : ""}${record.transaction === "aborted" ? " aborted" : ""}` },
      h("td", { class: "number" }, String(record.partition)), h("td", { class: "number" }, open),
      h("td", { class: "optional" }, moment(record.timestamp)), h("td", { class: "key optional" }, line(record.key)), h("td", { class: "content" }, content),
      h("td", { class: "number optional" }, bytes(record.size)));
    row.addEventListener("click", () => { if (!getSelection().toString()) toggle(row, record); });
    return row;
  }

  async function toggle(row, record) {
    const button = row.querySelector("button");
    if (row.nextElementSibling?.classList.contains("detail")) {
      row.nextElementSibling.remove();
      button.setAttribute("aria-expanded", "false");
      return;
    }
    button.setAttribute("aria-expanded", "true");
    const cell = h("td", { colspan: 6 }, "Reading…");
    row.after(h("tr", { class: "detail" }, cell));
    try {
      const whole = await get(`${api}/records/${record.partition}/${record.offset}${search({ key: keyFormat.value, value: valueFormat.value })}`, signal);
      replace(cell, details(whole));
    } catch (error) {
      replace(cell, h("div", { class: "notice error" }, error.message));
    }
  }

  function details(record) {
    const { batch } = record;
    const here = `${location.origin}${path("topics", topic)}/messages?partition=${record.partition}&offset=${record.offset}`;
    const field = (name, value) => [h("dt", {}, name), h("dd", {}, value)];
    const part = (name, cell) => cell ? [
      h("div", { class: "content-head" }, h("h2", {}, name), badge("", cell.format), h("span", { class: "muted" }, bytes(cell.size)),
        cell.note ? h("span", { class: "muted" }, cell.note) : null, cell.cut ? badge("warning", "cut to its beginning") : null,
        cell.size && cell.format !== "masked" ? h("button", { type: "button", class: "copy", onclick: () => copyText(cell.text) }, "Copy") : null,
        cell.size && !record.masked ? h("a", { class: "button copy", href: `${api}/records/${record.partition}/${record.offset}/${name.toLowerCase()}`, download: "" }, "Download") : null),
      contentBody(cell)] : null;
    return [
      h("dl", { class: "fields" },
        field("Time", `${moment(record.timestamp)} (${record.appended ? "of the broker" : "of the producer"}, ${record.timestamp})`),
        field("Batch", `offsets ${batch.offset} to ${batch.last}, ${plural(batch.records, "record")}, ${bytes(batch.bytes)}, ${batch.codec === "none" ? "not compressed" : batch.codec}, leader epoch ${batch.leader_epoch}`),
        batch.producer === null ? null : field("Producer", `id ${batch.producer}, epoch ${batch.producer_epoch}${batch.sequence === null ? "" : `, sequence ${batch.sequence}`}`),
        batch.transactional ? field("Transaction", record.control ? `marker: ${record.control}` : record.transaction) : null,
        field("Link", copyable(here, "Copy link"))),
      session.read_only || record.control || record.damage ? null
        : h("button", { type: "button", onclick: () => sendAgain(record) }, "Send again"),
      record.headers ? [h("div", { class: "content-head" }, h("h2", {}, "Headers")),
        h("dl", { class: "fields" }, record.headers.map(([name, cell]) => field(h("code", {}, line({ text: name, size: 1, format: "text" })), h("code", {}, line(cell)))))] : null,
      part("Key", record.key), part("Value", record.value)];
  }

  async function sendAgain(record) {
    let place = null;
    let to = "";
    const letter = record.origin !== topic;
    const done = await ask({
      title: `Send record ${record.offset} of partition ${record.partition} again`, action: "Send",
      text: letter ? `It became a dead letter of ${record.origin}. What was added to it then is left out.` : "With the same key, value and headers, as a new record.",
      fields: [{ name: "to", label: "To the topic", value: record.origin, required: true }],
      act: async (values) => {
        to = values.to;
        place = await post(`${api}/records/${record.partition}/${record.offset}/again`, { to });
      },
    });
    if (done) sent(to, place);
  }

  function sent(to, place) {
    root.prepend(h("div", { class: "notice ok", role: "status" }, "The record was sent: ",
      link(`${path("topics", to)}/messages?partition=${place.partition}&offset=${place.offset}`, `${to}, partition ${place.partition}, offset ${place.offset}`)));
  }

  async function sendRecord() {
    let place = null;
    const done = await ask({
      title: `Send a record to ${topic}`, action: "Send",
      fields: [
        { name: "key", label: "Key", hint: "Empty for no key." },
        { name: "value", label: "Value", type: "textarea" },
        { name: "format", label: "The value is", type: "select", options: [["text", "text"], ["json", "JSON"], ["hex", "hexadecimal"], ["base64", "base64"], ["null", "nothing: a tombstone"]] },
        { name: "headers", label: "Headers", type: "textarea", rows: 2, placeholder: "name: value" },
        { name: "partition", label: "Partition", type: "number", min: 0, placeholder: "chosen by the key" },
      ],
      act: async (values) => {
        const headers = values.headers.split("\n").filter((each) => each.trim()).map((each) => {
          const [name, ...rest] = each.split(":");
          return [name.trim(), { text: rest.join(":").trim() }];
        });
        place = await post(`${api}/records`, {
          key: values.key ? { text: values.key } : null, value: values.format === "null" ? null : { text: values.value, format: values.format },
          headers, partition: values.partition === "" ? null : Number(values.partition),
        });
      },
    });
    if (!done) return;
    sent(topic, place);
    if (way.value === "newest" && !source) start();
  }

  const fit = () => {
    offset.hidden = way.value !== "offset";
    time.hidden = way.value !== "time";
  };
  way.addEventListener("change", fit);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    address();
    start();
  });
  fit();
  const now = new Date(Date.now() - 3600e3 - new Date().getTimezoneOffset() * 60e3);
  time.value = now.toISOString().slice(0, 19);
  const known = await get(api, signal);
  partition.append(...known.partitions.map((each) => h("option", { value: each.number, selected: String(each.number) === query.get("partition") }, `Partition ${each.number}`)));
  start();
}
