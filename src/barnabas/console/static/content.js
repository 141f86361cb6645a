// Keys and values as people read them. What comes here is hostile: it becomes text nodes, however it looks.

import { h } from "./dom.js";
import { visible } from "./format.js";

const TOKEN = /"(?:[^"\\]|\\.)*"?|[{}[\],:]|[^\s{}[\],:"]+/g;
const MOST_TOKENS = 12000;
const DEEPEST = 30;

// JSON, indented and coloured, without being parsed: numbers keep their digits, and what was cut off does not matter.
function json(text) {
  const nodes = [];
  let depth = 0;
  let tokens = 0;
  const line = () => nodes.push(`\n${"  ".repeat(Math.min(depth, DEEPEST))}`);
  TOKEN.lastIndex = 0;
  for (let match = TOKEN.exec(text); match; match = TOKEN.exec(text)) {
    const [token] = match;
    tokens += 1;
    if (tokens > MOST_TOKENS) {
      nodes.push("\n…\n", visible(text.slice(match.index)));
      break;
    }
    if (token === "{" || token === "[") {
      const rest = text.slice(TOKEN.lastIndex, TOKEN.lastIndex + 20).trimStart();
      nodes.push(token);
      depth += 1;
      if (rest[0] !== "}" && rest[0] !== "]") line();
    } else if (token === "}" || token === "]") {
      depth = Math.max(0, depth - 1);
      if (nodes[nodes.length - 1] !== "{" && nodes[nodes.length - 1] !== "[") line();
      nodes.push(token);
    } else if (token === ",") {
      nodes.push(",");
      line();
    } else if (token === ":") nodes.push(": ");
    else if (token[0] === '"') {
      const key = text.slice(TOKEN.lastIndex).trimStart()[0] === ":";
      nodes.push(h("span", { class: key ? "j-key" : "j-string" }, visible(token)));
    } else nodes.push(h("span", { class: /^[-0-9]/.test(token) ? "j-number" : "j-word" }, visible(token)));
  }
  return nodes;
}

function hexRows(digits) {
  const lines = [];
  for (let at = 0; at < digits.length; at += 32) {
    const row = digits.slice(at, at + 32);
    const pairs = row.match(/../g) ?? [];
    const letters = pairs.map((pair) => {
      const code = parseInt(pair, 16);
      return code >= 32 && code < 127 ? String.fromCharCode(code) : "·";
    }).join("");
    const spaced = pairs.map((pair, index) => (index === 8 ? ` ${pair}` : pair)).join(" ");
    lines.push(`${(at / 2).toString(16).padStart(8, "0")}  ${spaced.padEnd(48)}  ${letters}`);
  }
  return lines.join("\n");
}

export function body(cell) {
  if (cell.format === "null") return h("p", { class: "nothing" }, "nothing (null)");
  if (cell.size === 0) return h("p", { class: "nothing" }, "empty");
  if (cell.format === "hex") return h("pre", { class: "content-body hex", tabindex: "0" }, hexRows(cell.text));
  if (["json", "avro", "protobuf"].includes(cell.format)) return h("pre", { class: "content-body", tabindex: "0" }, json(cell.text));
  return h("pre", { class: "content-body", tabindex: "0" }, visible(cell.text));
}

// One line of it, for a row of a table.
export function line(cell) {
  if (!cell) return "";
  if (cell.format === "null") return h("span", { class: "nothing" }, "null");
  if (cell.size === 0) return h("span", { class: "nothing" }, "empty");
  return visible(cell.text.slice(0, 300).replace(/\s+/g, " ")) + (cell.cut ? " …" : "");
}
