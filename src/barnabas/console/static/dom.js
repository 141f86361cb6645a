// Elements from code. Children that are text become text nodes, so nothing that a broker, a record or a person wrote is
// ever markup: there is no other way to build a page here, and the browser enforces it (Trusted Types).

const SVG = "http://www.w3.org/2000/svg";

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, each] of Object.entries(value)) node.style.setProperty(key, each);
    else if (name === "value") node.value = value;
    else if (name === "checked" || name === "selected" || name === "disabled") node[name] = Boolean(value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return node;
}

export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

export function replace(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return node;
}

// A link inside the console; app.js follows it without loading the page anew.
export function link(to, ...children) {
  return h("a", { href: to }, ...children);
}

export function path(...parts) {
  return `/${parts.map((part) => encodeURIComponent(part)).join("/")}`;
}

export function query(values) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== undefined && value !== null && value !== "") search.set(name, value);
  }
  const text = search.toString();
  return text ? `?${text}` : "";
}

export function badge(kind, text) {
  return h("span", { class: `badge ${kind}` }, text);
}

export function empty(title, text, command) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), text ? h("p", {}, text) : null,
    command ? copyable(command) : null);
}

// Where commands find the cluster of this console, where they do not find it by themselves.
let servers = "";

export function nameServers(found) {
  servers = found === "localhost:9092" ? "" : found;
}

// These ask no cluster: they start something, or read files.
const ALONE = /^barnabas (start|console|log)\b/;

// A command that can be copied with one click.
export function copyable(shown, label = "Copy") {
  const asks = servers && /(^|\| )barnabas /.test(shown) && !ALONE.test(shown);
  const text = asks ? `${shown} --bootstrap-server ${servers}` : shown;
  const button = h("button", { type: "button", class: "copy", "aria-label": `${label}: ${text}` }, label);
  button.addEventListener("click", async () => {
    await copyText(text);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = label; }, 1200);
  });
  return h("span", { class: "command" }, h("code", {}, text), button);
}

export async function copyText(text) {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return;
    } catch { /* without permission the older way is tried */ }
  }
  const area = h("textarea", { class: "offscreen", value: text });
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
