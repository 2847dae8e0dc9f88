// Script of the console. Every page can be read and used without it: it shows times in the reader's zone, copies texts, moves between rows by
// keyboard, and replaces the parts of a page that have changed.
"use strict";

(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // Times: local, with the exact one as a title; `since` counts up, `ago` counts from then.
  const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
  const year = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });
  const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });

  function passed(seconds) {
    const parts = [Math.floor(seconds / 60) % 60, seconds % 60].map((part) => String(part).padStart(2, "0"));
    const hours = Math.floor(seconds / 3600);
    return hours > 0 ? `${hours}:${parts.join(":")}` : `${Number(parts[0])}:${parts[1]}`;
  }

  function showTime(element, now) {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.getTime())) return;
    if (element.classList.contains("since")) {
      element.textContent = passed(Math.max(0, Math.floor((now - at) / 1000)));
      return;
    }
    if (element.dataset.shown) return;
    element.dataset.shown = "yes";
    const isToday = at.toDateString() === now.toDateString();
    const date = at.getFullYear() === now.getFullYear() ? day : year;
    element.textContent = isToday ? clock.format(at) : `${date.format(at)}, ${clock.format(at)}`;
    element.title = `${element.dateTime} (UTC)`;
  }

  function prepare(root) {
    const now = new Date();
    all("time[datetime]", root).forEach((element) => showTime(element, now));
    all("button[data-copy]", root).forEach((button) => { button.hidden = false; });
  }

  setInterval(() => {
    const now = new Date();
    all("time.since").forEach((element) => showTime(element, now));
  }, 1000);

  // Copy buttons.
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-copy]");
    if (!button) return;
    const source = document.getElementById(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(source.textContent);
    } catch {
      // Plain HTTP has no clipboard: select the text, so that the person can copy it.
      getSelection().selectAllChildren(source);
      return;
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });

  // Keyboard: `/` searches, `j` and `k` move between rows; Enter opens the row that has the focus.
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input, textarea, select");
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") {
      const search = document.querySelector("input[type=search]");
      if (search) {
        event.preventDefault();
        search.focus();
      }
    }
    if (event.key === "j" || event.key === "k") {
      const rows = all("a.row");
      const at = rows.indexOf(document.activeElement);
      const next = event.key === "j" ? at + 1 : Math.max(0, at - 1);
      rows[Math.min(next, rows.length - 1)]?.focus();
    }
  });

  // Choices: suggestions for what is typed. Without the script the first ones stay, and a whole name is found by the page that takes the form.
  const asked = new WeakMap();
  document.addEventListener("input", (event) => {
    const field = event.target.closest?.("input[data-choices]");
    // Whoever has taken a suggestion needs no others.
    if (!field || [...field.list.options].some((option) => option.value === field.value)) return;
    clearTimeout(asked.get(field));
    asked.set(field, setTimeout(async () => {
      const path = new URL(field.dataset.choices, location.href);
      path.searchParams.set("search", field.value);
      const typed = field.value;
      try {
        const answer = await fetch(path);
        if (answer.ok && field.value === typed) field.list.innerHTML = await answer.text();
      } catch {
        // The suggestions stay as they are.
      }
    }, 200));
  });

  // One stream a page: each event holds elements that replace those of the same id. It is closed while the page is hidden, because a browser
  // opens six connections to a plain HTTP server for all tabs together.
  const live = document.querySelector("[data-stream]");
  let stream = null;
  let last = "";

  function replace(markup) {
    const template = document.createElement("template");
    template.innerHTML = markup;
    const focused = document.activeElement?.id;
    for (const part of [...template.content.children]) {
      const old = document.getElementById(part.id);
      if (!old) continue;
      all("details[open][id]", old).forEach((open) => {
        const same = part.querySelector(`#${CSS.escape(open.id)}`);
        if (same) same.open = true;
      });
      prepare(part);
      old.replaceWith(part);
    }
    if (focused && document.activeElement?.id !== focused) document.getElementById(focused)?.focus();
  }

  function say(word) {
    const state = document.getElementById("stream-state");
    if (!state) return;
    state.textContent = word;
    state.dataset.state = word;
  }

  function open() {
    if (stream || document.hidden) return;
    const path = new URL(live.dataset.stream, location.href);
    if (last) path.searchParams.set("last_event_id", last);
    stream = new EventSource(path);
    stream.addEventListener("open", () => say("Live"));
    stream.addEventListener("parts", (event) => {
      last = event.lastEventId;
      replace(event.data);
    });
    stream.addEventListener("error", () => {
      say("Reconnecting");
      if (stream?.readyState === EventSource.CLOSED) {
        stream = null;
        setTimeout(open, 5000);
      }
    });
  }

  function close() {
    stream?.close();
    stream = null;
    say("Paused");
  }

  if (live) {
    document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
    addEventListener("pagehide", close);
    open();
  }

  prepare(document);
})();
