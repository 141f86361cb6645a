// Numbers, sizes, times and hostile text as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const one = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export function count(value) {
  return value === null || value === undefined ? "–" : whole.format(value);
}

export function rate(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 1e6) return `${one.format(value / 1e6)} M/s`;
  if (value >= 1e4) return `${one.format(value / 1e3)} k/s`;
  return `${value >= 100 ? whole.format(value) : one.format(value)}/s`;
}

// Short, for axes and tiles.
export function short(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return `${one.format(value / 1e9)} G`;
  if (size >= 1e6) return `${one.format(value / 1e6)} M`;
  if (size >= 1e4) return `${one.format(value / 1e3)} k`;
  return one.format(value);
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KB", "MB", "GB", "TB", "PB"];
  let size = value;
  let unit = 0;
  while (size >= 1000 && unit < units.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${unit && size < 100 ? one.format(size) : whole.format(size)} ${units[unit]}`;
}

export function duration(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return "–";
  const seconds = milliseconds / 1000;
  if (seconds < 1) return `${whole.format(milliseconds)} ms`;
  if (seconds < 120) return `${one.format(seconds)} s`;
  if (seconds < 7200) return `${one.format(seconds / 60)} min`;
  if (seconds < 172800) return `${one.format(seconds / 3600)} h`;
  return `${one.format(seconds / 86400)} d`;
}

const pad = (value, width = 2) => String(value).padStart(width, "0");

// 2026-01-31 14:05:09.123, in the reader's own time.
export function moment(milliseconds) {
  if (milliseconds === null || milliseconds === undefined || milliseconds < 0) return "–";
  const date = new Date(milliseconds);
  if (Number.isNaN(date.getTime())) return String(milliseconds);
  const day = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
  const time = `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
  return `${day} ${time}.${pad(date.getMilliseconds(), 3)}`;
}

export function clock(seconds, withSeconds = false) {
  const date = new Date(seconds * 1000);
  return `${pad(date.getHours())}:${pad(date.getMinutes())}${withSeconds ? `:${pad(date.getSeconds())}` : ""}`;
}

export function ago(milliseconds) {
  const past = Date.now() - milliseconds;
  return past < 0 ? "now" : `${duration(past)} ago`;
}

export function plural(number, noun, many = `${noun}s`) {
  return `${count(number)} ${number === 1 ? noun : many}`;
}

// Characters that cannot be seen, or that change the order of others, in a form that can be seen.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

export function visible(text) {
  return text.replace(UNSEEN, (found) => {
    const code = found.charCodeAt(0);
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    if (code === 0x7f) return "\u2421";
    return `\\u${code.toString(16).padStart(4, "0")}`;
  });
}
