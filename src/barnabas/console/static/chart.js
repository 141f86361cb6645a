// A line over time, drawn as SVG at the width that it has. It says in words what it shows, for those who do not see it.

import { h, replace, svg } from "./dom.js";
import { clock } from "./format.js";

const HEIGHT = 148;
const LEFT = 58;
const BOTTOM = 20;
const TOP = 8;

function niceTop(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= value) ?? value;
}

const UNKNOWN = "not known now";
const NONE = "No figures yet. They begin with this console, and stay for a day.";
// Of one topic or group: those at rest get no places in a full history.
export const NONE_OF_ONE = `${NONE} Among thousands of topics and groups, those at rest have none.`;

// `none`: what is said while there are no figures.
export function chart(title, write, unit = "", none = NONE) {
  const area = h("div", { class: "chart-area" });
  const readout = h("span", { class: "chart-readout" });
  const figure = h("figure", { class: "chart" },
    h("figcaption", {}, h("span", { class: "chart-title" }, title), readout), area);
  let points = [];
  let live = null; // what is true now: the history has it seconds later
  let span = 3600;
  let pointed = null; // where the pointer is, also over a new drawing
  let look = () => {};

  function draw() {
    const width = Math.max(240, area.clientWidth);
    const shown = points.length && live ? [...points, [Math.max(live[0], points[points.length - 1][0]), live[1]]] : points;
    const known = shown.filter((point) => point[1] !== null);
    if (!known.length) {
      replace(area, h("p", { class: "chart-empty" }, none));
      replace(readout);
      look = () => {};
      return;
    }
    const top = niceTop(Math.max(...known.map((point) => point[1])));
    const first = shown[0][0];
    const last = shown[shown.length - 1][0];
    const now = live && live[1] === null ? UNKNOWN : `${write(known[known.length - 1][1])}${unit}`;
    const x = (at) => LEFT + ((at - first) / Math.max(1, last - first)) * (width - LEFT - 6);
    const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
    const root = svg("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img",
      "aria-label": `${title}: now ${now}, at most ${write(Math.max(...known.map((p) => p[1])))}${unit}` });
    for (const part of [0, 0.5, 1]) {
      const at = y(top * part);
      root.append(svg("line", { class: "grid", x1: LEFT, x2: width, y1: at, y2: at }),
        svg("text", { class: "axis", x: LEFT - 8, y: at + 4, "text-anchor": "end" }, write(top * part)));
    }
    const steps = width < 420 ? 2 : 4;
    for (let step = 0; step <= steps; step += 1) {
      const at = first + ((last - first) * step) / steps;
      root.append(svg("text", { class: "axis", x: x(at), y: HEIGHT - 4,
        "text-anchor": step === 0 ? "start" : step === steps ? "end" : "middle" }, clock(at)));
    }
    for (const part of runs(shown)) {
      const line = part.map((point) => `${x(point[0]).toFixed(1)},${y(point[1]).toFixed(1)}`);
      const begin = x(part[0][0]).toFixed(1);
      const end = x(part[part.length - 1][0]).toFixed(1);
      root.append(svg("path", { class: "fill", d: `M${begin},${y(0)}L${line.join("L")}L${end},${y(0)}Z` }),
        svg("path", { class: "line", d: `M${line.join("L")}${part.length === 1 ? "h1" : ""}` }));
    }
    const cursor = svg("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, x1: -10, x2: -10 });
    root.append(cursor);
    look = () => {
      if (pointed === null) {
        cursor.setAttribute("x1", -10);
        cursor.setAttribute("x2", -10);
        replace(readout, now);
        return;
      }
      const at = first + ((pointed - LEFT) / (width - LEFT - 6)) * (last - first);
      const near = known.reduce((best, point) => (Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best));
      cursor.setAttribute("x1", x(near[0]));
      cursor.setAttribute("x2", x(near[0]));
      replace(readout, `${clock(near[0], span <= 3600)} · ${write(near[1])}${unit}`);
    };
    look();
    replace(area, root);
  }

  area.addEventListener("pointermove", (event) => {
    pointed = event.clientX - area.getBoundingClientRect().left;
    look();
  });
  area.addEventListener("pointerleave", () => {
    pointed = null;
    look();
  });
  new ResizeObserver(() => points.length && draw()).observe(area);
  return {
    node: figure,
    set(found, seconds) { points = found ?? []; span = seconds; draw(); },
    // The value at this moment, in seconds since 1970; null where nobody knows it.
    now(at, value) { live = [at, value]; if (points.length) draw(); },
  };
}

// Stretches without a gap.
function runs(points) {
  const found = [];
  let open = null;
  for (const point of points) {
    if (point[1] === null) open = null;
    else if (open) open.push(point);
    else found.push(open = [point]);
  }
  return found;
}

// A share of a whole, as a bar.
export function bar(share, label) {
  return h("span", { class: "bar", title: label }, h("span", { style: { width: `${Math.min(100, share * 100).toFixed(1)}%` } }));
}
