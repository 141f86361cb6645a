// Draws anew without replacing: a node that stands for the same thing as before stays, with its focus, what is selected in
// it and a click that is under way; only what differs is changed, so a screen reader reads nothing twice.
//
// Children are told apart by their keys, those without one by their place. They have to be made for each call: what keeps a
// state of its own, as a chart does, is put in its place once.

import { answer, handlers, keys, own, present, replace } from "./dom.js";

const WITH_STATE = "input, select, textarea";

export function update(node, ...children) {
  const focused = document.activeElement;
  change(node, present(children).map((each) => (each instanceof Node ? each : document.createTextNode(each))));
  if (focused !== document.activeElement && node.contains(focused)) focused.focus({ preventScroll: true });
}

// Shows `element`, which draws itself, or the words that stand in its place while there is nothing in it.
export function showEither(card, element, words) {
  if (!words) {
    if (!card.contains(element)) replace(card, element);
  } else if (card.contains(element)) replace(card, words);
  else update(card, words);
}

function change(node, fresh) {
  const before = [...node.childNodes];
  const keyed = new Map(before.filter((each) => keys.has(each)).map((each) => [keys.get(each), each]));
  const others = before.filter((each) => !keys.has(each));
  const after = fresh.map((each) => {
    const found = keys.has(each) ? keyed.get(keys.get(each)) : nextAlike(others, each);
    if (!found || found.nodeName !== each.nodeName) return each;
    keyed.delete(keys.get(each));
    become(found, each);
    return found;
  });
  const kept = new Set(after);
  for (const each of before) if (!kept.has(each)) each.remove();
  let next = node.firstChild;
  for (const each of after) {
    if (each === next) next = next.nextSibling;
    else if (each.parentNode === node) move(node, each, next);
    else node.insertBefore(each, next);
  }
}

// The first of the same kind; those before it are gone.
function nextAlike(others, fresh) {
  const at = others.findIndex((each) => each.nodeName === fresh.nodeName);
  return at < 0 ? undefined : others.splice(0, at + 1).pop();
}

function become(node, fresh) {
  if (own.has(node)) return;
  if (node.nodeType === Node.TEXT_NODE) {
    if (node.data !== fresh.data) node.data = fresh.data;
    return;
  }
  for (const { name } of [...node.attributes]) if (!fresh.hasAttribute(name)) node.removeAttribute(name);
  for (const { name, value } of fresh.attributes) {
    if (node.getAttribute(name) === value) continue;
    if (name === "style") node.style.cssText = fresh.style.cssText; // the policy forbids the attribute
    else node.setAttribute(name, value);
  }
  const answers = handlers.get(fresh) ?? {};
  for (const type of Object.keys(answers)) node.addEventListener(type, answer);
  for (const type of Object.keys(handlers.get(node) ?? {})) if (!answers[type]) node.removeEventListener(type, answer);
  handlers.set(node, answers);
  if (!node.matches(WITH_STATE)) change(node, [...fresh.childNodes]);
}

// Newer browsers move a node with its focus.
function move(node, child, next) {
  if (node.moveBefore && node.isConnected) node.moveBefore(child, next);
  else node.insertBefore(child, next);
}

let pressed = false;
let waiting = [];

function release() {
  pressed = false;
  waiting.forEach((done) => done());
  waiting = [];
}

// After its click, which comes next.
const releaseSoon = () => setTimeout(release);

addEventListener("pointerdown", (event) => { pressed ||= event.button === 0; }, { capture: true });
addEventListener("pointerup", releaseSoon, { capture: true });
addEventListener("pointercancel", releaseSoon, { capture: true });
addEventListener("dragend", releaseSoon, { capture: true });
addEventListener("blur", releaseSoon);
addEventListener("pointermove", (event) => { if (pressed && !event.buttons) releaseSoon(); }, { capture: true });

// When no button of the mouse, and no finger, is down: what was pressed stays where it is until it is let go.
export function released() {
  return pressed ? new Promise((done) => waiting.push(done)) : Promise.resolve();
}
