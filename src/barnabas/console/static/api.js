// What the page asks the console. An error has the console's own words, and the status.

export class Failed extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

let onLogin = () => {};

// Called when the session has ended.
export function whenLoggedOut(callback) {
  onLogin = callback;
}

async function ask(method, url, body, signal) {
  let response;
  try {
    response = await fetch(url, {
      method,
      signal,
      credentials: "same-origin",
      headers: method === "GET" ? {} : { "content-type": "application/json" },
      body: method === "GET" ? undefined : JSON.stringify(body ?? {}),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failed("The console itself does not answer. Is it running?", 0);
  }
  const text = await response.text();
  let found = null;
  try {
    found = text ? JSON.parse(text) : null;
  } catch {
    throw new Failed(`The console answered with something else (${response.status}).`, response.status);
  }
  if (response.ok) return found;
  if (response.status === 401 && url !== "/api/login") onLogin();
  throw new Failed(found?.error ?? `The console answered ${response.status}.`, response.status);
}

export const get = (url, signal) => ask("GET", url, null, signal);
export const post = (url, body, signal) => ask("POST", url, body, signal);
export const patch = (url, body) => ask("PATCH", url, body);
export const remove = (url, body) => ask("DELETE", url, body);
