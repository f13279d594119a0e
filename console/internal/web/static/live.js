"use strict";

// This script only adds live updates. Every page works without it.

const parse = (html) => new DOMParser().parseFromString(html, "text/html").body;

// ask fetches a part of a page.
async function ask(url, signal) {
  const answer = await fetch(url, { signal, credentials: "same-origin", cache: "no-store", redirect: "error" });
  if (!answer.ok) throw new Error(String(answer.status));
  return parse(await answer.text());
}

// check shows the preview of a form while it is filled in, and the mistakes beside
// the fields that were touched.
function check(form) {
  const preview = document.getElementById("preview");
  const touched = new Set();
  let timer = 0;
  let running = null;

  function mark(part) {
    const faults = new Map();
    for (const item of part.querySelectorAll(".faults [data-field]")) {
      const texts = faults.get(item.dataset.field) || [];
      faults.set(item.dataset.field, texts.concat(item.textContent));
    }
    for (const place of form.querySelectorAll("[data-error]")) {
      const name = place.dataset.error;
      const texts = faults.get(name) || [];
      const show = touched.has(name) || place.textContent !== "";
      place.textContent = show ? texts.join("; ") : "";
      const field = document.getElementById(name);
      if (field && field.matches("input, textarea")) {
        if (place.textContent) field.setAttribute("aria-invalid", "true");
        else field.removeAttribute("aria-invalid");
      }
    }
  }

  async function run() {
    if (running) running.abort();
    running = new AbortController();
    const query = new URLSearchParams(new FormData(form));
    try {
      const part = await ask(form.dataset.live + "?" + query, running.signal);
      mark(part);
      preview.replaceChildren(...part.childNodes);
    } catch {
      // The form is checked again when it is sent.
    }
  }

  form.addEventListener("input", (event) => {
    touched.add(fieldOf(event.target.name));
    clearTimeout(timer);
    timer = setTimeout(run, 250);
  });
}

// fieldOf returns the field that shows the mistakes of an input.
function fieldOf(name) {
  if (name === "other_methods") return "methods";
  if (name === "unit") return "period";
  return name;
}

// refresh replaces a part of a page every two seconds while the page is visible.
function refresh(part) {
  const stalled = document.getElementById("stalled");
  async function again() {
    if (!document.hidden) {
      try {
        const fresh = await ask(part.dataset.refresh, AbortSignal.timeout(8000));
        part.replaceChildren(...fresh.childNodes);
        stalled.hidden = true;
      } catch {
        stalled.hidden = false;
      }
    }
    setTimeout(again, 2000);
  }
  setTimeout(again, 2000);
}

for (const form of document.querySelectorAll("form[data-live]")) check(form);
for (const part of document.querySelectorAll("[data-refresh]")) refresh(part);
for (const link of document.querySelectorAll(".refreshing")) link.hidden = true;
const wrong = document.querySelector("main [role=alert][tabindex]");
if (wrong) wrong.focus();
