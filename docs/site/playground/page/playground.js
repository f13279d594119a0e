"use strict";

// The texts of the form are in the fragment of the address, under the ids of their fields.
const names = ["limit", "and", "requests", "for"];
const first = { limit: "100/1m burst=20", and: "100/1m fixed-window", requests: "steady 5/1s", for: "3m" };
const $ = (id) => document.getElementById(id);

// make returns an element with a class and children. Texts never become markup.
function make(name, className, ...children) {
  const e = document.createElement(name);
  e.className = className;
  e.append(...children);
  return e;
}

// load reads the form from the address.
function load() {
  const state = new URLSearchParams(location.hash.slice(1));
  const has = names.some((name) => state.has(name));
  for (const name of names) $(name).value = state.get(name) ?? (has && name === "and" ? "" : first[name]);
  show();
}

// save writes the form to the address, unless it is a novel.
function save() {
  const state = new URLSearchParams(names.map((name) => [name, $(name).value]));
  const text = state.toString().replaceAll("%2F", "/");
  if (text.length < 2000) history.replaceState(null, "", "#" + text);
}

// show has the engine replay the form, and fills the page with what it returns.
function show() {
  const preset = [...$("preset").options].find((o) => o.value === $("requests").value.trim());
  $("preset").value = preset?.value ?? "";

  // A hidden drawing has no width.
  const shown = !$("result").hidden;
  $("result").hidden = false;
  const got = play(...names.map((name) => $(name).value), $("drawing").clientWidth);
  for (const name of names) showFault(name, got.faults.find((f) => f.field === name));
  const faulty = got.faults.length > 0;
  $("result").hidden = faulty && !shown;
  $("result").classList.toggle("old", faulty);
  if (faulty) {
    $("status").textContent = shown ? "The results below are of the last form that could be read." : "";
    return;
  }

  $("status").textContent = got.summary;
  $("bar").textContent = got.bar;
  $("sides").replaceChildren(...got.sides.map(words));
  $("legend").replaceChildren(...got.sides.map((s, n) =>
    make("li", "", make("span", "swatch " + "ab"[n]), ...title(s, n), make("span", "style", n ? "dashed" : "solid"))));

  // What is no SVG does not get into the page.
  const svg = new DOMParser().parseFromString(got.svg, "image/svg+xml").documentElement;
  $("drawing").replaceChildren(document.importNode(svg, true));

  const [head, ...rows] = $("figures").rows;
  for (const row of [head, ...rows]) while (row.cells.length > 1) row.lastChild.remove();
  for (const [n, s] of got.sides.entries()) {
    head.append(make("th", "", key(n)));
    head.lastChild.scope = "col";
    rows.forEach((row, i) => row.append(make("td", "", String(s.figures[i]))));
  }
}

const key = (n) => make("span", "key " + "ab"[n], "AB"[n]);
const title = (s, n) => [key(n), " ", make("code", "", s.limit)];

// words returns what there is to say about a limit.
function words(s, n) {
  const list = s.admits.map((a) => make("div", "", make("dt", "", a.after), make("dd", "", String(a.units))));
  const table = [make("p", "note", "A caller that never stops asking has been admitted"), make("dl", "admits", ...list)];
  return make("article", "card side", make("h2", "", ...title(s, n)), make("p", "words", s.words),
    make("p", "most", "at most " + s.atMost), ...(list.length ? table : []));
}

// showFault shows what is wrong with a field, or nothing. Every second part of the text is wrong.
function showFault(name, fault) {
  $(name).setAttribute("aria-invalid", String(Boolean(fault)));
  const parts = (fault?.parts ?? []).map((part, i) => (i % 2 ? make("mark", "", part) : part));
  const lines = (fault?.text ?? "").split("\n").filter(Boolean).map((line) => make("span", "mistake", line));
  $(name + "-fault").replaceChildren(...(parts.length ? [make("code", "echo", ...parts)] : []), ...lines);
}

// ready is called by the engine when it has started.
function ready() {
  $("form").hidden = $("examples").hidden = false;
  let timer;
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(() => { save(); show(); }, 200);
  };

  $("preset").addEventListener("change", () => {
    if ($("preset").value) $("requests").value = $("preset").value;
    else $("requests").focus();
    soon();
  });
  for (const name of names) $(name).addEventListener("input", soon);
  $("form").addEventListener("submit", (event) => event.preventDefault());
  addEventListener("hashchange", load);

  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) show();
    width = innerWidth;
  });
  load();
}

// Any server of files will do, also one that does not know the type of the engine.
async function start() {
  $("status").textContent = "Loading the engine…";
  try {
    const answer = await fetch("playground.wasm");
    if (!answer.ok) throw new Error("status " + answer.status);
    const go = new Go();
    const { instance } = await WebAssembly.instantiate(await answer.arrayBuffer(), go.importObject);
    await go.run(instance);
  } catch (err) {
    $("status").textContent = "The engine does not start: playground.wasm: " + err.message;
  }
}
start();
