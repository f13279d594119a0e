// The search of the site. Without scripts its form stays hidden, and all pages are in the list.
"use strict";
{
  const root = document.currentScript.dataset.root;
  const form = document.getElementById("search");
  const input = form.querySelector("input");
  const found = document.getElementById("found");
  const hits = document.getElementById("hits");
  const most = 12;
  let index; // a promise of all sections

  // load fetches the index once. After a failure the next letter tries again.
  const load = () => index ??= fetch(root + "search.json").then((answer) => {
    if (!answer.ok) throw new Error(answer.status);
    return answer.json();
  }).catch((error) => { index = undefined; throw error; });

  // score is 0 if a section lacks a word; a word in its heading counts most.
  const score = (hit, words) => {
    let sum = 0;
    for (const word of words) {
      const places = [[hit.section || hit.page, 9], [hit.page, 4], [hit.says || "", 2], [hit.words || "", 1]];
      const best = Math.max(...places.map(([text, weight]) => {
        const at = text.toLowerCase().indexOf(word);
        if (at < 0) return 0;
        return at === 0 || text[at - 1] === " " ? weight * 2 : weight;
      }));
      if (!best) return 0;
      sum += best;
    }
    return hit.section ? sum : sum + 1;
  };

  const element = (name, text, into) => {
    const e = document.createElement(name);
    e.textContent = text;
    into.append(e);
    return e;
  };

  const show = (list, words) => {
    hits.replaceChildren();
    for (const hit of list.slice(0, most)) {
      const link = element("a", "", element("li", "", hits));
      link.href = root + hit.url;
      element("b", hit.section || hit.page, link);
      if (hit.section) element("span", hit.page, link);
      if (hit.says) element("small", hit.says, link);
    }
    hits.hidden = !list.length;
    found.classList.toggle("hidden", list.length > 0 || !words.length);
    found.textContent = !words.length ? "" : list.length ? `${list.length} found` : "Nothing found";
  };

  const ask = async () => {
    const text = input.value;
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    try {
      const all = words.length ? await load() : [];
      if (text !== input.value) return; // more was typed meanwhile
      const list = all.map((hit) => ({ hit, points: score(hit, words) })).filter((h) => h.points);
      list.sort((a, b) => b.points - a.points);
      show(list.map((h) => h.hit), words);
    } catch {
      show([], []);
      found.classList.remove("hidden");
      found.textContent = "The index of the search did not come.";
    }
  };

  const close = () => { hits.hidden = true; found.classList.add("hidden"); };

  input.addEventListener("input", ask);
  input.addEventListener("focus", () => { if (input.value) ask(); });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    hits.querySelector("a")?.click();
  });
  document.addEventListener("click", (event) => { if (!form.contains(event.target)) close(); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && form.contains(event.target)) { close(); input.focus(); }
    if (event.key === "/" && !event.ctrlKey && !event.metaKey && event.target.tagName !== "INPUT") {
      event.preventDefault();
      input.focus();
    }
    // The arrows go through what was found.
    const links = [input, ...hits.querySelectorAll("a")];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const at = links.indexOf(document.activeElement);
    if (step && at >= 0 && !hits.hidden && links[at + step]) { event.preventDefault(); links[at + step].focus(); }
  });
  form.hidden = false;
}
