// Makes the pages more comfortable: theme, refresh, new messages, keys and a palette. Every page works without this file.
"use strict";

const REFRESH_MS = 5000;
const root = document.documentElement;

function stored(name) {
  try { return localStorage.getItem("lakelog-" + name); } catch { return null; }
}
function store(name, text) {
  try { localStorage.setItem("lakelog-" + name, text); } catch { /* The choice lasts for this page only. */ }
}

// Before the page is drawn, so that it does not flash.
if (stored("theme")) root.dataset.theme = stored("theme");

function startTheme() {
  const button = document.getElementById("theme-button");
  button.hidden = false;
  button.addEventListener("click", () => {
    const systemIsDark = matchMedia("(prefers-color-scheme: dark)").matches;
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : systemIsDark;
    root.dataset.theme = isDark ? "light" : "dark";
    store("theme", root.dataset.theme);
  });
}

// Refresh: the page is read again, and its parts with `data-live` are replaced. Focus and opened details are kept.

let refreshes = stored("refresh") !== "paused";

function describeFocus() {
  const at = document.activeElement;
  if (!at || at === document.body) return null;
  if (at.id) return "#" + CSS.escape(at.id);
  if (at.getAttribute("href")) return at.localName + "[href=" + JSON.stringify(at.getAttribute("href")) + "]";
  if (at.getAttribute("aria-label")) return "[aria-label=" + JSON.stringify(at.getAttribute("aria-label")) + "]";
  if (at.localName === "summary" && at.parentElement.id) return "#" + CSS.escape(at.parentElement.id) + " > summary";
  return "";
}

function replacePart(part, fresh) {
  const focus = part.contains(document.activeElement) ? describeFocus() : null;
  if (focus === "") return; // A person works in this part.
  const open = [...part.querySelectorAll("details[open][id]")].map((each) => each.id);
  const scrolled = [...part.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
  part.replaceWith(fresh);
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  fresh.querySelectorAll(".scroll").forEach((each, number) => { each.scrollLeft = scrolled[number] || 0; });
  if (focus) fresh.querySelector(focus)?.focus({ preventScroll: true });
}

async function refresh() {
  const parts = [...document.querySelectorAll("[data-live]")];
  if (!refreshes || document.hidden || !parts.length || document.querySelector("dialog[open]")) return;
  const note = document.getElementById("refreshed");
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" }, credentials: "same-origin" });
    if (answer.redirected) { note.textContent = "The session has ended. Load the page to log in."; return; }
    if (!answer.ok) { note.textContent = "The page could not be refreshed (" + answer.status + ")."; return; }
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of parts) {
      const found = fresh.getElementById(part.id);
      if (found && refreshes) replacePart(part, document.adoptNode(found));
    }
    note.replaceWith(document.adoptNode(fresh.getElementById("refreshed")));
  } catch {
    note.textContent = "The server cannot be reached.";
  }
}

function startRefresh() {
  const button = document.getElementById("refresh-button");
  if (!document.querySelector("[data-live]")) return;
  const show = () => {
    button.textContent = refreshes ? "Pause refresh" : "Refresh paused";
    button.setAttribute("aria-pressed", String(!refreshes));
  };
  button.hidden = false;
  show();
  button.addEventListener("click", () => {
    refreshes = !refreshes;
    store("refresh", refreshes ? "on" : "paused");
    show();
    refresh();
  });
  setInterval(refresh, REFRESH_MS);
}

// New messages of a topic: the server sends them as events. The connection ends while the page is paused or hidden, and
// continues after the last event. The number of rows is bounded.

const TAIL_ROWS = 100;
const TAIL_RETRY_MS = 10000;

function tailRow(part, message) {
  const link = element("a", { href: document.body.dataset.root + "m/" + message.id + "?topic=" + encodeURIComponent(part.dataset.topic) }, message.position);
  return element("tr", {},
    element("th", { scope: "row" }, link), element("td", { class: "key" }, message.key),
    element("td", { class: "value" }, element("code", {}, message.value)), element("td", { class: "time" }, message.time),
    element("td", { class: "number" }, message.headers ? String(message.headers) : ""));
}

function startTail() {
  const part = document.getElementById("tail");
  if (!part) return;
  const rows = part.querySelector("tbody");
  const button = part.querySelector("button");
  const counts = { shown: 0, skipped: 0, filtered: 0 };
  let source = null, timer = 0, after = "", isPaused = false;
  const say = (state) => {
    const left = (counts.skipped ? ", " + counts.skipped.toLocaleString("en") + " skipped because too many arrived" : "")
      + (counts.filtered ? ", " + counts.filtered.toLocaleString("en") + " do not match" : "");
    part.querySelector("[data-note]").textContent = state + " " + counts.shown.toLocaleString("en") + " shown" + left + ".";
  };
  const add = (seen) => {
    rows.prepend(...seen.rows.map((message) => tailRow(part, message)).reverse());
    while (rows.rows.length > TAIL_ROWS) {
      const last = rows.rows[rows.rows.length - 1];
      (last.contains(document.activeElement) ? last.previousElementSibling : last).remove();
    }
    counts.shown += seen.rows.length;
    counts.skipped += seen.skipped;
    counts.filtered += seen.filtered;
    part.querySelector(".scroll").hidden = !rows.rows.length;
    say("Waiting for messages.");
  };
  const connect = () => {
    clearTimeout(timer);
    source?.close();
    if (isPaused || document.hidden) return;
    const opened = source = new EventSource(part.dataset.tail + "&after=" + encodeURIComponent(after));
    opened.onmessage = (event) => { after = event.lastEventId; add(JSON.parse(event.data)); };
    opened.onerror = () => {
      say("The connection was lost. Trying again.");
      // The browser itself does not try again after a refusal.
      if (opened.readyState === EventSource.CLOSED) timer = setTimeout(connect, TAIL_RETRY_MS);
    };
  };
  button.addEventListener("click", () => {
    isPaused = !isPaused;
    button.textContent = isPaused ? "Continue" : "Pause";
    button.setAttribute("aria-pressed", String(isPaused));
    say(isPaused ? "Paused." : "Connecting…");
    connect();
  });
  // Browsers allow few connections to a host, for all of its pages together.
  document.addEventListener("visibilitychange", connect);
  part.hidden = false;
  connect();
}

// Keys: / finds, g and a letter opens a page, Ctrl-K opens the palette, ? shows the keys.

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, text] of Object.entries(attributes)) made.setAttribute(key, text);
  made.append(...children);
  return made;
}

function openDialog(label, ...children) {
  const dialog = element("dialog", { "aria-label": label }, ...children);
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.showModal();
  return dialog;
}

async function openPalette() {
  if (document.querySelector("dialog[open]")) return;
  const input = element("input", { type: "search", role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list",
    "aria-label": "Page, topic or group", placeholder: "Page, topic or group", autocomplete: "off" });
  const list = element("ul", { id: "palette-list", role: "listbox", "aria-label": "Results" });
  openDialog("Go to", input, list);
  const answer = await fetch(document.body.dataset.root + "names", { credentials: "same-origin" });
  if (!answer.ok || answer.redirected) { list.append("The names could not be read."); return; }
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const all = [...page.querySelectorAll("a[data-name]")].map((each) => (
    { name: each.textContent.trim(), kind: each.dataset.name, href: each.getAttribute("href") }
  ));
  let chosen = 0;
  const draw = () => {
    const wanted = input.value.trim().toLowerCase();
    const found = all.filter((each) => each.name.toLowerCase().includes(wanted)).slice(0, 30);
    chosen = Math.max(0, Math.min(chosen, found.length - 1));
    list.replaceChildren(...found.map((each, number) => element("li", { role: "presentation" },
      element("a", { role: "option", id: "option-" + number, tabindex: "-1", href: document.body.dataset.root + each.href.replace(/^\.\//, ""),
        "aria-selected": String(number === chosen) }, each.name, element("small", {}, each.kind)))));
    if (found.length) input.setAttribute("aria-activedescendant", "option-" + chosen);
    else input.removeAttribute("aria-activedescendant");
    document.getElementById("option-" + chosen)?.scrollIntoView({ block: "nearest" });
  };
  input.addEventListener("input", () => { chosen = 0; draw(); });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      chosen += event.key === "ArrowDown" ? 1 : -1;
      draw();
    } else if (event.key === "Enter") {
      event.preventDefault();
      document.getElementById("option-" + chosen)?.click();
    }
  });
  draw();
}

function openKeys() {
  if (document.querySelector("dialog[open]")) return;
  const pages = [...document.querySelectorAll("nav a[data-key]")].map((each) => ["g " + each.dataset.key, each.textContent]);
  const keys = [["Ctrl K", "Go to a page, topic or group"], ["/", "Find in the table"], ...pages, ["?", "These keys"]];
  const list = element("ul", {}, ...keys.map(([key, text]) => element("li", {}, element("kbd", {}, key), " " + text)));
  const close = element("button", { type: "button" }, "Close");
  const dialog = openDialog("Keys", element("h2", {}, "Keys"), list, close);
  close.addEventListener("click", () => dialog.close());
}

let pressedG = 0;

function onKey(event) {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    openPalette();
    return;
  }
  const isTyping = event.target.closest?.("input, textarea, select, dialog");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const search = document.querySelector("[data-search]");
  if (event.key === "/" && search) {
    event.preventDefault();
    search.focus();
  } else if (event.key === "?") {
    openKeys();
  } else if (Date.now() - pressedG < 1500) {
    pressedG = 0;
    document.querySelector("nav a[data-key=" + CSS.escape(event.key) + "]")?.click();
  } else if (event.key === "g") {
    pressedG = Date.now();
  }
}

// A redrive is made in parts: each page submits the form for the next part, unless it is paused.

function startParts() {
  const form = document.querySelector("form[data-continue]");
  if (!form) return;
  const timer = setTimeout(() => form.requestSubmit(), Number(form.dataset.continue));
  const pause = form.querySelector("[data-pause]");
  pause.hidden = false;
  pause.addEventListener("click", () => { clearTimeout(timer); pause.hidden = true; });
}

document.addEventListener("DOMContentLoaded", () => {
  startTheme();
  startParts();
  if (!document.querySelector("nav")) return;
  startRefresh();
  startTail();
  document.addEventListener("keydown", onKey);
  const palette = document.getElementById("palette-button");
  palette.hidden = false;
  palette.addEventListener("click", openPalette);
});
