// Users, ACLs and quotas, and what was changed by this console.

import { get, post, remove } from "../api.js";
import { ask, tell } from "../dialog.js";
import { badge, empty, h, replace } from "../dom.js";
import { bytes, count, moment } from "../format.js";
import { table } from "../table.js";
import { update } from "../update.js";

const KINDS = ["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"];

const whose = ({ entity }) => Object.entries(entity).map(([kind, name]) => `${kind} ${name ?? "(default)"}`).join(", ");

export async function show({ root, title, every, signal, session }) {
  title("Security");
  const users = h("section", { class: "card" });
  const acls = h("section", { class: "card" });
  const quotas = h("section", { class: "card" });
  const audit = h("section", { class: "card" });
  const may = !session.read_only;
  let now = null;
  replace(root, h("div", { class: "head" }, h("h1", {}, "Security")), users, acls, quotas, audit);

  const head = (name, label, act) => h("div", { class: "card-head" }, h("h2", {}, name), may ? h("button", { type: "button", onclick: act }, label) : null);
  const plain = (label, text, act) => (may ? h("button", { type: "button", class: "plain", "aria-label": label, onclick: act }, text) : "");
  const after = (done, text) => {
    if (!done) return;
    tell(root, text);
    again();
  };

  function draw(found) {
    now = found;
    update(users, head("Users", "Add user", addUser), part(now.users, "No users log in by SCRAM.", "barnabas users --add alice", () => table([
      { name: "User", show: (row) => h("span", { class: "wrap" }, row.name) },
      { name: "Logs in by", show: (row) => Object.keys(row.mechanisms).map((each) => [badge("", each), " "]) },
      { name: "", show: (row) => plain(`Delete user ${row.name}`, "Delete", () => dropUser(row)) },
    ], now.users.rows, "Users", (row) => row.name)));
    update(acls, head("ACLs", "Add ACL", addAcl), part(now.acls, "No ACLs.", "barnabas start --secure", () => table([
      { name: "Principal", show: (row) => h("span", { class: "mono wrap" }, row.principal) },
      { name: "", show: (row) => badge(row.permission === "ALLOW" ? "ok" : "error", row.permission === "ALLOW" ? "may" : "may not") },
      { name: "Operation", show: (row) => row.operation },
      { name: "Resource", show: (row) => h("span", { class: "wrap" }, `${row.kind} `, h("code", {}, row.pattern === "PREFIXED" ? `${row.name}…` : row.name)) },
      { name: "From", optional: true, show: (row) => row.host },
      { name: "", show: (row) => plain(`Remove ACL of ${row.principal}`, "Remove", () => dropAcl(row)) },
    ], now.acls.rows, "ACLs", (row) => JSON.stringify(row))));
    update(quotas, head("Quotas", "Set quota", setQuota), part(now.quotas, "No quotas.", "barnabas quotas --alter --user alice --add-config producer_byte_rate=1000000", () => table([
      { name: "For", show: (row) => h("span", { class: "wrap" }, whose(row)) },
      { name: "Quota", show: (row) => h("span", { class: "wrap" }, row.quota) },
      { name: "Limit", kind: "number", show: (row) => (row.quota.includes("byte") ? `${bytes(row.value)}/s` : count(row.value)) },
      { name: "", show: (row) => plain(`Remove ${row.quota} of ${whose(row)}`, "Remove", () => dropQuota(row)) },
    ], now.quotas.rows.flatMap(({ entity, values }) => Object.entries(values).map(([quota, value]) => ({ entity, quota, value }))),
    "Quotas", (row) => `${whose(row)} ${row.quota}`)));
    update(audit, now.audit.length ? [h("h2", {}, "Changes by this console"), table([
      { name: "When", show: (row) => moment(Date.parse(row.at)) },
      { name: "Who", optional: true, show: (row) => row.user ?? row.address },
      { name: "What", show: (row) => h("span", { class: "wrap" }, `${row.action} ${row.target}`) },
      { name: "", show: (row) => badge(row.outcome === "done" ? "ok" : "error", row.outcome === "done" ? "done" : "not done") },
    ], now.audit.slice(0, 15), "Changes", (row) => JSON.stringify(row))] : h("h2", {}, "No changes by this console yet"));
  }

  function part(found, none, command, draws) {
    if (found.refusal) {
      return found.code === "security_disabled" ? empty("Security is off.", "Everybody may do everything. A cluster with logins and permissions:", "barnabas start --secure")
        : empty("You may not see this.", found.refusal);
    }
    return found.rows.length ? draws() : empty(none, "Or with:", command);
  }

  async function addUser() {
    let name = "";
    after(await ask({ title: "Add a user", text: "A user that is there gets this password.", action: "Save",
      fields: [{ name: "name", label: "Name", required: true }, { name: "password", label: "Password", type: "password", required: true },
        { name: "mechanism", label: "Mechanism", type: "select", options: [["SCRAM-SHA-512", "SCRAM-SHA-512"], ["SCRAM-SHA-256", "SCRAM-SHA-256"]] }],
      act: (values) => { name = values.name; return post("/api/security/users", values); } }), `User ${name} can log in.`);
  }

  async function dropUser(row) {
    after(await ask({ title: `Delete user ${row.name}?`, action: "Delete user", danger: true, confirm: row.name, text: "Nobody can log in by this name then. Its ACLs stay.",
      act: (values) => remove("/api/security/users", { name: row.name, confirm: values.confirm }) }), `User ${row.name} was deleted.`);
  }

  async function addAcl() {
    after(await ask({ title: "Add an ACL", action: "Add",
      fields: [{ name: "principal", label: "Principal", value: "User:", required: true },
        { name: "permission", label: "", type: "select", options: [["ALLOW", "may"], ["DENY", "may not"]] },
        { name: "operation", label: "Operation", type: "select", options: now.operations.map((each) => [each, each]) },
        { name: "kind", label: "Resource", type: "select", options: KINDS.map((each) => [each, each]) },
        { name: "pattern", label: "", type: "select", options: [["LITERAL", "of this name (* for all)"], ["PREFIXED", "whose names begin with"]] },
        { name: "name", label: "Name" }, { name: "host", label: "From address", placeholder: "any" }].map((each) => (each.label ? each : { ...each, label: each.name === "pattern" ? "Names" : "Permission" })),
      act: (values) => post("/api/security/acls", values) }), "The ACL was added.");
  }

  async function dropAcl(row) {
    after(await ask({ title: "Remove this ACL?", action: "Remove", danger: true,
      text: `${row.principal} ${row.permission === "ALLOW" ? "may" : "may not"} ${row.operation} ${row.kind} ${row.name}`,
      act: () => remove("/api/security/acls", row) }), "The ACL was removed.");
  }

  async function setQuota() {
    after(await ask({ title: "Set a quota", action: "Save",
      fields: [{ name: "kind", label: "For", type: "select", options: [["user", "user"], ["client-id", "client id"], ["ip", "address"]] },
        { name: "name", label: "Name", placeholder: "empty: the default of all" },
        { name: "quota", label: "Quota", type: "select", options: now.quota_names.map((each) => [each, each]) },
        { name: "value", label: "Limit", type: "number", min: 0, step: "any", placeholder: "empty: remove it" }],
      act: (values) => post("/api/security/quotas", { entity: { [values.kind]: values.name || null }, quota: values.quota, value: values.value === "" ? null : Number(values.value) }) }), "The quota was set.");
  }

  async function dropQuota(row) {
    after(await ask({ title: "Remove this quota?", action: "Remove", danger: true, text: `${row.quota} of ${whose(row)}`,
      act: () => post("/api/security/quotas", { entity: row.entity, quota: row.quota, value: null }) }), "The quota was removed.");
  }

  const again = every(2, () => get("/api/security", signal), draw);
}
