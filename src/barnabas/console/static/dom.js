// Elements from code. Children that are text become text nodes, so nothing that a broker, a record or a person wrote is
// ever markup: there is no other way to build a page here, and the browser enforces it (Trusted Types).

const SVG = "http://www.w3.org/2000/svg";

// What update.js has to know of a node: who answers its events, and which of its parent's children it is.
export const handlers = new WeakMap();
export const keys = new WeakMap();
// Nodes that say something of their own for a while.
export const own = new WeakSet();

export function answer(event) {
  handlers.get(event.currentTarget)[event.type](event);
}

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "key") keys.set(node, value);
    else if (name.startsWith("on")) {
      handlers.set(node, { ...handlers.get(node), [name.slice(2)]: value });
      node.addEventListener(name.slice(2), answer);
    } else if (name === "style") for (const [key, each] of Object.entries(value)) node.style.setProperty(key, each);
    else if (name === "value") node.value = value;
    else if (name === "checked" || name === "selected" || name === "disabled") node[name] = Boolean(value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...present(children));
  return node;
}

export function present(children) {
  return children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false);
}

export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

export function replace(node, ...children) {
  node.replaceChildren(...present(children));
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

// A figure with its name; `to` makes it a link.
export function tile(name, value, { to, bad } = {}) {
  return h(to ? "a" : "div", { class: bad ? "tile bad" : "tile", href: to, key: name },
    h("div", { class: "tile-name" }, name), h("div", { class: "tile-value" }, value));
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
const ALONE = /^barnabas (start|restart|console|log)\b/;

// A command that can be copied with one click.
export function copyable(shown, label = "Copy") {
  const asks = servers && /(^|\| )barnabas /.test(shown) && !ALONE.test(shown);
  const text = asks ? `${shown} --bootstrap-server ${servers}` : shown;
  const copy = async ({ currentTarget: button }) => {
    await copyText(text);
    own.add(button);
    button.textContent = "Copied";
    setTimeout(() => {
      own.delete(button);
      button.textContent = label;
    }, 1200);
  };
  return h("span", { class: "command", key: text }, h("code", {}, text),
    h("button", { type: "button", class: "copy", "aria-label": `${label}: ${text}`, onclick: copy }, label));
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
