"use strict";

// This script only adds live updates. Every page works without it.

// parse returns the nodes of a part of a page, all of them: as a document of its own it would lose
// the blanks that it begins with, and what follows them would be taken for other elements.
function parse(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content;
}

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
      for (const said of part.querySelectorAll("[data-part]")) {
        document.querySelector(`#${said.dataset.part} > summary`).replaceChildren(...said.childNodes);
      }
      part.querySelector("details").open = preview.querySelector("details").open;
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

// fold has the preview open beside the form, and closed where it is a bar below it.
function fold(wide) {
  const folded = document.querySelector("#preview details");
  if (folded) folded.open = wide.matches;
}

// agree has the words of the units follow the number before them: 1 minute, 2 minutes.
function agree(number) {
  const words = number.form.elements.namedItem("unit").options;
  number.addEventListener("input", () => {
    for (const word of words) word.text = word.text.replace(/s?$/, Number(number.value) === 1 ? "" : "s");
  });
}

// fieldOf returns the field that shows the mistakes of an input.
function fieldOf(name) {
  if (name === "unit") return "period";
  if (/^(allow|deny)_/.test(name)) return "access";
  return name;
}

// morph makes an element like another, and keeps all of it that is the same: the focus, the
// scrolling, what is open. Elements with an id are the same if their ids are.
function morph(now, next) {
  for (const { name, value } of next.attributes) {
    if (now.getAttribute(name) !== value) now.setAttribute(name, value);
  }
  for (const { name } of [...now.attributes]) {
    const kept = name === "open" && now.localName === "details";
    if (!kept && !next.hasAttribute(name)) now.removeAttribute(name);
  }
  const wanted = new Set([...next.children].map((child) => child.id));
  let at = now.firstChild;
  for (const child of [...next.childNodes]) {
    const same = partner(at, child);
    while (same && at !== same && !(at.id && wanted.has(at.id))) { // so that same need not move, which would lose the focus
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
    if (!same) {
      now.insertBefore(child, at);
      continue;
    }
    if (same === at) at = at.nextSibling;
    else now.insertBefore(same, at);
    if (same.nodeType === Node.ELEMENT_NODE) {
      if (!same.isEqualNode(child)) morph(same, child);
    } else if (same.data !== child.data) same.data = child.data;
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

// partner returns the node, at or after another, that becomes next, or null.
function partner(at, next) {
  for (let node = at; node && next.id; node = node.nextSibling) {
    if (node.id === next.id && node.nodeName === next.nodeName) return node;
  }
  return !next.id && at && !at.id && at.nodeName === next.nodeName ? at : null;
}

// openMenu selects the menu of a key that is open; it is "" where browsers know no such menus.
const openMenu = CSS.supports("selector(:popover-open)") ? ":popover-open" : "";

// refresh renews a part of a page every second while the page is visible, and at once when what is
// folded in it is opened: its content is sent only while it is open.
function refresh(part) {
  const stalled = part.id === "banner" ? null : document.getElementById("stalled");
  let tag = "";
  let timer = 0;

  async function renew() {
    const open = [...part.querySelectorAll("details[open][id]")].map((details) => "&open=" + details.id);
    const view = part.dataset.refresh;
    const answer = await fetch(view + open.join(""), {
      signal: AbortSignal.timeout(8000), credentials: "same-origin", cache: "no-store", redirect: "error",
      headers: tag ? { "If-None-Match": tag } : {},
    });
    if (answer.status === 304) return;
    if (!answer.ok) throw new Error(String(answer.status));
    const fresh = part.cloneNode(false);
    fresh.append(...parse(await answer.text()).childNodes);
    if (part.dataset.refresh !== view) return; // another view was chosen meanwhile
    if (openMenu && part.querySelector(openMenu)) return; // or what the menu is about would change below it
    morph(part, fresh);
    localizeAll();
    tag = answer.headers.get("ETag") || "";
  }

  async function again() {
    if (!document.hidden) {
      try {
        await renew();
        if (stalled) stalled.hidden = true;
      } catch {
        if (stalled) stalled.hidden = false;
      }
    }
    clearTimeout(timer);
    if (part.hasChildNodes()) timer = setTimeout(again, 1000); // a banner that has gone stays away
  }

  part.addEventListener("toggle", (event) => { if (event.target.open) again(); }, true);
  timer = setTimeout(again, 1000);
}

// leaveOut has a click on a series of a chart leave it out, or show it again, on the page as it is.
function leaveOut(page) {
  page.addEventListener("click", async (event) => {
    const link = event.target.closest("#series a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const address = link.href; // which the link no longer has once the page is another
    try {
      morph(page, (await ask(address)).querySelector("#traffic"));
      history.replaceState(null, "", address);
      for (const later of document.querySelectorAll(".refreshing")) later.hidden = true;
      localizeAll();
    } catch {
      location.assign(address);
    }
  });
}

// tipOf shows the numbers of the step of a chart below the mouse.
function tipOf() {
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.append(tip);

  function line(words, value, swatch) {
    const span = document.createElement("span");
    if (swatch) span.append(swatch.cloneNode(true));
    span.append(words);
    if (value) span.append(Object.assign(document.createElement("b"), { textContent: value }));
    return span;
  }

  function show(bar) {
    const { kinds, step } = bar.parentElement.dataset;
    const seconds = Number(step);
    const from = new Date(Number(bar.id.slice(4)) * Math.min(seconds, 60) * 1000);
    const format = seconds < 60 ? clock.second : clock.hour;
    const title = document.createElement("strong");
    title.textContent = (seconds < 60 ? "" : moment(from).replace(/\d\d:\d\d$/, "")) +
      format.format(from) + " – " + format.format(new Date(Number(from) + seconds * 1000));
    const numbers = bar.dataset.n.split(" ").map(Number);
    const lines = kinds.split(",").map((kind, i) => {
      const at = kind.indexOf(" ");
      const swatch = document.querySelector(`.swatch [fill="url(#k-${kind.slice(0, at)})"]`);
      return numbers[i] ? line(kind.slice(at + 1), numbers[i].toLocaleString("en-US"), swatch && swatch.parentElement) : "";
    });
    const all = numbers.reduce((sum, n) => sum + n, 0);
    const rate = bar.dataset.rate ? bar.dataset.rate + " a second so far"
      : all ? (all / seconds).toLocaleString("en-US", { maximumSignificantDigits: 3 }) + " a second" : "none";
    tip.replaceChildren(title, ...lines, line(rate));
    tip.hidden = false;

    // It stands beside the step, on the side that has room.
    const at = bar.getBoundingClientRect();
    const plot = bar.parentElement.getBoundingClientRect();
    const left = at.left - plot.left > plot.width / 2 ? at.left - tip.offsetWidth - 8 : at.right + 8;
    tip.style.left = Math.max(4, Math.min(left, innerWidth - tip.offsetWidth - 4)) + "px";
    tip.style.top = plot.top + 16 + "px";
  }

  document.addEventListener("pointerover", (event) => {
    const bar = event.target.closest(".bars i");
    if (bar) show(bar);
    else tip.hidden = true;
  });
}

// filter renews the list of policies while its form is filled in.
function filter(form) {
  const found = document.getElementById("found");
  let timer = 0;
  let running = null;

  async function run() {
    if (running) running.abort();
    running = new AbortController();
    const query = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value) query.append(name, value);
    const url = form.getAttribute("action") + (String(query) && "?" + query);
    try {
      const next = (await ask(url, running.signal)).querySelector("#found");
      morph(found, next);
      history.replaceState(null, "", url);
      tickAll();
      localizeAll();
    } catch {
      // The button of the form shows the list, or why it cannot be shown.
    }
  }

  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(run, 200);
  });
}

// tickAll shows the box that ticks all policies of a page.
function tickAll() {
  const all = document.querySelector("#bulk [data-all]");
  if (!all) return;
  all.hidden = false;
  all.onchange = () => {
    for (const box of all.form.querySelectorAll("[name=policy]")) box.checked = all.checked;
  };
}

// units are the spans of relative times, the longest first. Older times are shown as dates.
const units = [["day", 86400], ["hour", 3600], ["minute", 60]];
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

const format = (options) => new Intl.DateTimeFormat("en-GB", options);
const day = { day: "numeric", month: "short" };
const hour = { hour: "2-digit", minute: "2-digit" };
const clock = {
  exact: format({ dateStyle: "medium", timeStyle: "long" }),
  hour: format(hour),
  second: format({ ...hour, second: "2-digit" }),
  day: format(day),
  dayHour: format({ ...day, ...hour }),
  year: format({ ...day, year: "numeric" }),
  yearHour: format({ ...day, year: "numeric", ...hour }),
};

// moment returns a time of day by the reader's clock, with as much of its date as is not today's.
function moment(at) {
  const now = new Date();
  if (at.toDateString() === now.toDateString()) return clock.hour.format(at);
  return (at.getFullYear() === now.getFullYear() ? clock.dayHour : clock.yearHour).format(at);
}

// since returns how long ago a time was, or will be.
function since(at) {
  const seconds = Math.round((at - Date.now()) / 1000);
  const [unit, size] = units.find((u) => Math.abs(seconds) >= u[1]) || ["second", 1];
  return Math.abs(seconds) > 30 * 86400 ? clock.year.format(at) : relative.format(Math.trunc(seconds / size), unit);
}

// localize shows a time by the reader's clock, and in its title exactly, by that clock and in UTC.
// The page itself has UTC. Times in sentences that need a time of day, such as "from … to …", have
// data-moment, or data-hour if the day is said before. All others are shown as spans.
function localize(time) {
  const at = new Date(time.dateTime);
  if (Number.isNaN(at.getTime())) return;
  const text = "second" in time.dataset ? clock.second.format(at) : "hour" in time.dataset ? clock.hour.format(at) : "moment" in time.dataset ? moment(at) : since(at);
  if (time.textContent === text) return;
  if (time.title) {
    time.dataset.utc ||= time.title;
    time.title = clock.exact.format(at) + " · " + time.dataset.utc;
  }
  time.textContent = text;
}

// tick shows a time below a chart. A new day has its date.
function tick(text) {
  const at = new Date(text.dataset.tick);
  const words = "day" in text.dataset || at.getHours() + at.getMinutes() === 0 ? clock.day : clock.hour;
  text.textContent = words.format(at);
}

// sayZone says once of which zone the times of the page are.
function sayZone(place) {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const offset = format({ timeZoneName: "shortOffset" }).formatToParts().find((part) => part.type === "timeZoneName").value;
  if (zone && zone !== "UTC") place.textContent = "Times are of " + zone.replaceAll("_", " ") + " (" + offset + ").";
}

function localizeAll() {
  document.querySelectorAll("time[datetime]").forEach(localize);
  document.querySelectorAll("[data-tick]").forEach(tick);
}

for (const form of document.querySelectorAll("form[data-live]")) check(form);
const wide = matchMedia("(min-width: 60rem)");
wide.addEventListener("change", fold);
fold(wide);
for (const form of document.querySelectorAll("form[data-filter]")) filter(form);
tickAll();
for (const number of document.querySelectorAll("#period")) agree(number);
for (const part of document.querySelectorAll("[data-refresh]")) refresh(part);
for (const page of document.querySelectorAll("#traffic")) leaveOut(page);
if (document.querySelector(".bars")) tipOf();
for (const link of document.querySelectorAll(".refreshing")) link.hidden = true;
const wrong = document.querySelector("main [role=alert][tabindex]");
if (wrong) wrong.focus();

localizeAll();
setInterval(localizeAll, 30000);
for (const place of document.querySelectorAll("#zone-of-times")) sayZone(place);

// find shows what a search finds while it is typed, and gives its field the focus by the key "/".
function find(form) {
  const field = form.elements.namedItem("q");
  const hits = document.getElementById("hits");
  let timer = 0;
  let running = null;

  async function run() {
    if (running) running.abort();
    running = new AbortController();
    const text = field.value.trim();
    let found = null;
    try {
      if (text) found = (await ask(form.action + "?q=" + encodeURIComponent(text), running.signal)).querySelector("#results ul");
    } catch {
      return; // the form itself leads to the page of the search, or says why there is none
    }
    hits.replaceChildren(...(found ? [found] : []));
    hits.hidden = !found;
  }

  // The arrow keys walk through the field and what was found.
  function walk(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const stops = [field, ...hits.querySelectorAll("a")];
    if (!step || hits.hidden) return;
    event.preventDefault();
    stops[(stops.indexOf(document.activeElement) + step + stops.length) % stops.length].focus();
  }

  function close() {
    hits.hidden = true;
    field.blur();
  }

  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(run, 150);
  });
  field.addEventListener("focus", () => { hits.hidden = !hits.firstChild; });
  form.addEventListener("keydown", (event) => (event.key === "Escape" ? close() : walk(event)));
  form.addEventListener("focusout", (event) => { if (!form.contains(event.relatedTarget)) hits.hidden = true; });
  hits.addEventListener("mousedown", (event) => event.preventDefault()); // or the click would miss what the blur hides
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
    event.preventDefault();
    if (field.checkVisibility()) field.focus();
    else location.assign(form.action);
  });
}

// A menu closes at Escape, and when the focus or a click goes elsewhere.
function menu(details) {
  const leave = (event) => { if (!details.contains(event.target)) details.open = false; };
  document.addEventListener("click", leave);
  document.addEventListener("focusin", leave);
  details.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !details.open) return;
    details.open = false;
    details.querySelector("summary").focus();
  });
}

for (const form of document.querySelectorAll(".find")) find(form);
for (const details of document.querySelectorAll(".menu")) menu(details);
