// The frame of the console: who is there, the ways through it, and the page that an address stands for.

import { Failed, get, post, whenLoggedOut } from "./api.js";
import { h, link, nameServers, replace } from "./dom.js";
import { openHelp } from "./keys.js";
import { released } from "./update.js";

const PAGES = [
  { key: "o", at: "/", name: "Overview", module: "overview", match: /^\/$/ },
  { key: "t", at: "/topics", name: "Topics", module: "topics", match: /^\/topics$/ },
  { module: "topic", of: "/topics", match: /^\/topics\/(?<topic>[^/]+)(?:\/(?<tab>partitions|settings|groups))?$/ },
  { module: "messages", of: "/topics", match: /^\/topics\/(?<topic>[^/]+)\/messages$/ },
  { key: "g", at: "/groups", name: "Groups", module: "groups", match: /^\/groups$/ },
  { module: "group", of: "/groups", match: /^\/group$/ },
  { key: "l", at: "/clients", name: "Clients", module: "clients", match: /^\/clients$/ },
  { module: "client", of: "/clients", match: /^\/clients\/(?<instance>[0-9a-f-]+)$/ },
  { key: "b", at: "/brokers", name: "Brokers", module: "brokers", match: /^\/brokers$/ },
  { module: "move", of: "/brokers", match: /^\/brokers\/move$/ },
  { module: "broker", of: "/brokers", match: /^\/brokers\/(?<id>\d+)$/ },
  { key: "p", at: "/pipelines", name: "Pipelines", module: "pipelines", match: /^\/pipelines$/ },
  { key: "x", at: "/transactions", name: "Transactions", module: "transactions", match: /^\/transactions$/ },
  { key: "r", at: "/schemas", name: "Schemas", module: "schemas", match: /^\/schemas$/, needs: "registry" },
  { key: "s", at: "/security", name: "Security", module: "security", match: /^\/security$/ },
  { key: "c", at: "/retention", name: "Retention", module: "retention", match: /^\/retention$/ },
];

// Milliseconds after which a page is seen, also if not all of its parts have been drawn. Until then nothing is seen that
// the others would push away.
const SOON = 1000;

const app = document.getElementById("app");
const main = h("main", { id: "main", tabindex: "-1" });
const nav = h("nav", { "aria-label": "Pages" });
const who = h("div", { class: "who" });
const menu = h("button", { type: "button", class: "menu", "aria-expanded": "false", "aria-controls": "side-body" }, "Menu");
const side = h("header", { class: "side" },
  h("div", { class: "brand" },
    h("a", { href: "/", class: "wordmark" }, h("img", { src: "/static/mark.svg", alt: "", width: 22, height: 22 }), "Barnabas"), menu),
  h("div", { id: "side-body", class: "side-body" }, nav, who));
let session = null;
let leave = new AbortController();

menu.addEventListener("click", () => {
  const open = side.classList.toggle("open");
  menu.setAttribute("aria-expanded", String(open));
});

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  try {
    if (theme) localStorage.setItem("theme", theme);
    else localStorage.removeItem("theme");
  } catch { /* a browser without storage keeps the theme of the system */ }
}

try {
  setTheme(localStorage.getItem("theme"));
} catch { /* see above */ }

function toggleTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const now = document.documentElement.dataset.theme ?? system;
  const next = now === "dark" ? "light" : "dark";
  setTheme(next === system ? null : next);
}

const listed = () => PAGES.filter((page) => page.at && (!page.needs || session[page.needs]));
const help = () => openHelp(listed().map((page) => [`g ${page.key}`, page.name]));

function drawFrame() {
  replace(nav, listed().map((page) =>
    h("a", { href: page.at, title: `g then ${page.key}` }, page.name)));
  replace(who,
    h("p", { class: "cluster", title: session.bootstrap }, session.bootstrap),
    session.read_only ? h("p", { class: "mode" }, "Read-only") : null,
    session.user ? h("p", { class: "mode" }, "Logged in as ", h("strong", {}, session.user)) : null,
    h("div", { class: "who-actions" },
      session.can_log_out ? h("button", { type: "button", onclick: logOut }, "Log out") : null,
      h("button", { type: "button", onclick: toggleTheme }, "Light / dark"),
      h("button", { type: "button", onclick: help, title: "Keyboard: ?" }, "Keys")),
    h("p", { class: "version" }, `Barnabas ${session.version}`));
  replace(app, h("a", { class: "skip", href: "#main" }, "Skip to the content"), side, main);
}

async function logOut() {
  await post("/api/logout");
  await begin();
}

async function show() {
  leave.abort();
  leave = new AbortController();
  const { signal } = leave;
  side.classList.remove("open");
  menu.setAttribute("aria-expanded", "false");
  const found = PAGES.map((page) => [page, page.match.exec(location.pathname)]).find((each) => each[1]);
  for (const each of nav.children) {
    const here = found && each.getAttribute("href") === (found[0].at ?? found[0].of);
    if (here) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  if (!found) {
    document.title = "Nothing here · Barnabas";
    replace(main, h("h1", {}, "Nothing here"), h("p", {}, "No page has this address. ", link("/", "To the overview")));
    return;
  }
  const [page, match] = found;
  const root = h("div", { class: `page page-${page.module} loading` });
  const reveal = () => root.classList.remove("loading");
  let parts = 1;
  const waiting = h("div", { class: "notice told", role: "status" }, "Waiting for the brokers to answer…");
  const drawn = () => {
    if (parts -= 1) return;
    waiting.remove();
    reveal();
  };
  const context = {
    root, signal, session, query: new URLSearchParams(location.search), navigate,
    title(text) { document.title = `${text} · Barnabas`; },
    // Ask something now and again, and draw the answer; an error is shown above the page and goes away by itself. Returns
    // what to call when something was changed.
    every(seconds, ask, draw) {
      parts += 1;
      return repeat(seconds, ask, draw, signal, root, drawn);
    },
  };
  try {
    const parameters = read(match.groups);
    const module = await import(`./pages/${page.module}.js`);
    if (signal.aborted) return;
    replace(main, root);
    setTimeout(() => {
      if (parts && !signal.aborted) root.append(waiting);
      reveal();
    }, SOON);
    await module.show({ ...context, parameters });
    drawn();
  } catch (error) {
    if (!signal.aborted) {
      if (!root.isConnected) replace(main, root);
      root.prepend(notice(error));
      reveal();
    }
  }
  if (!signal.aborted && !main.contains(document.activeElement)) main.focus({ preventScroll: true });
}

// What an address names; a link may have been cut in the middle of a character.
function read(groups) {
  try {
    return Object.fromEntries(Object.entries(groups ?? {}).map(([name, value]) => [name, value && decodeURIComponent(value)]));
  } catch {
    throw new Failed("This address cannot be read. Was the link cut off?", 0);
  }
}

function notice(error) {
  return h("div", { class: "notice error", role: "alert" }, error.message);
}

// A change that was just made may not have come to the broker that is asked: so the first rounds are short, and each
// pause is twice as long as the one before, up to `seconds`. So they are after a failure. What takes long, as a list of
// 10,000 topics does, takes half of the time at most.
function repeat(seconds, ask, draw, signal, root, drawn) {
  let pause = 1;
  let wake = () => {};
  signal.addEventListener("abort", () => wake(), { once: true });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) wake(); }, { signal });

  async function run() {
    let shown = null;
    for (let round = 0; !signal.aborted; round += 1) {
      const began = performance.now();
      try {
        if (!document.hidden) {
          const found = await ask();
          await released();
          if (signal.aborted) return;
          draw(found);
        }
        shown?.remove();
        shown = null;
      } catch (error) {
        if (signal.aborted) return;
        pause = 1;
        if (!(error instanceof Failed)) console.error(error);
        if (shown) shown.textContent = error.message;
        else root.prepend(shown = notice(error));
      }
      if (signal.aborted) return;
      if (!round) drawn();
      await new Promise((done) => {
        const timer = setTimeout(done, Math.max(Math.min(pause, seconds) * 1000, performance.now() - began));
        wake = () => { clearTimeout(timer); done(); };
      });
      pause = Math.min(2 * pause, seconds);
    }
  }

  run();
  return () => { pause = 0.5; wake(); };
}

export function navigate(to, { replacing = false } = {}) {
  if (replacing) history.replaceState(null, "", to);
  else history.pushState(null, "", to);
  if (!replacing) scrollTo(0, 0);
  return show();
}

document.addEventListener("click", (event) => {
  const anchor = event.target.closest?.("a[href]");
  if (!anchor || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const to = anchor.getAttribute("href");
  if (!to.startsWith("/") || to.startsWith("/api/") || to.startsWith("/login/") || anchor.target || anchor.hasAttribute("download")) return;
  event.preventDefault();
  navigate(to);
});
addEventListener("popstate", show);

let after = null;
let forgetting = 0;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !session || session.login || document.querySelector("dialog[open]")) return;
  if (event.target.closest?.("input, textarea, select, [contenteditable]")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (after === "g") {
    after = null;
    const page = listed().find((each) => each.key === event.key);
    if (page) {
      event.preventDefault();
      navigate(page.at);
    }
  } else if (event.key === "g") {
    after = "g";
    clearTimeout(forgetting); // of the one before: it would forget this one too early
    forgetting = setTimeout(() => { after = null; }, 1500);
  } else if (event.key === "/") {
    const search = main.querySelector("input[type=search]");
    if (search) {
      event.preventDefault();
      search.focus();
    }
  } else if (event.key === "?") {
    help();
  }
});

// Why a login with a provider did not come about.
const FAILURES = {
  refused: "The provider did not let you in.",
  expired: "That login took too long, or was begun in another browser. Try again.",
  provider: "The provider does not answer as it should. The console's log has the reason.",
  token: "The provider sent a token that cannot be used. The console's log has the reason.",
  cluster: "The cluster does not accept the provider's token. The console's log has the reason.",
  unreachable: "No broker answers.",
  busy: "Too many logins are under way. Wait a moment, and try again.",
};

// Where somebody was before the login with a provider, who sends everybody to the first page.
function remember(address) {
  try {
    if (address) sessionStorage.setItem("after", address);
    else sessionStorage.removeItem("after");
  } catch { /* a browser without storage begins at the first page */ }
}

function recall() {
  try {
    const found = sessionStorage.getItem("after");
    remember(null);
    return location.pathname === "/" && found && /^\/[^/\\]/.test(found) ? found : null;
  } catch {
    return null;
  }
}

function drawLogin() {
  leave.abort();
  document.title = "Log in · Barnabas";
  const failed = FAILURES[new URLSearchParams(location.search).get("failed")];
  const provider = session.provider ? h("a", { class: "button primary", href: "/login/provider", onclick: () => {
    if (location.pathname !== "/") remember(location.pathname + location.search);
  } }, `Log in with ${session.provider}`) : null;
  const user = h("input", { id: "user", name: "user", autocomplete: "username", required: true });
  const password = h("input", { id: "password", name: "password", type: "password", autocomplete: "current-password" });
  const told = h("p", { class: "form-error", role: "alert" });
  const button = h("button", { class: "primary" }, "Log in");
  const form = h("form", { class: "login" },
    h("h1", {}, h("img", { src: "/static/mark.svg", alt: "", width: 28, height: 28 }), "Barnabas"),
    h("p", { class: "muted" }, session.passwords ? "Log in with a user of the cluster " : "Log in to the cluster ", h("code", {}, session.bootstrap), "."),
    failed ? h("p", { class: "form-error", role: "alert" }, failed) : null, provider,
    session.passwords ? [h("label", { for: "user" }, "User"), user, h("label", { for: "password" }, "Password"), password, told, button] : null,
    session.passwords || provider ? null : h("p", {}, "The cluster takes no passwords. Start the console with --oidc-issuer and --oidc-client-id."));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    told.textContent = "";
    try {
      await post("/api/login", { user: user.value, password: password.value });
      await begin();
    } catch (error) {
      told.textContent = error.message;
      password.value = "";
      password.focus();
    }
    button.disabled = false;
  });
  replace(app, h("main", { class: "login-page" }, form));
  (provider ?? user).focus();
}

async function begin() {
  try {
    session = await get("/api/session");
    nameServers(session.bootstrap);
  } catch (error) {
    replace(app, h("main", { class: "login-page" }, h("div", { class: "notice error", role: "alert" }, error.message)));
    setTimeout(begin, 2000);
    return;
  }
  if (session.login) drawLogin();
  else {
    drawFrame();
    const after = recall();
    await (after ? navigate(after, { replacing: true }) : show());
  }
}

whenLoggedOut(() => { if (session && !session.login) begin(); });
begin();
