// Returns where the keyboard has to go from the element that has the focus to the first visible
// element that a path finds: how many times Tab is pressed, a negative number with Shift, and
// how many times an arrow key in a group of radio buttons. With neither the focus is there, and
// the key activates the element. Main reports whether the way to it is the link that skips the
// head of the page. Away reports whether the tab does not have the keyboard.
(path) => {
  const found = document.evaluate(path, document, null, XPathResult.ORDERED_NODE_SNAPSHOT_TYPE);
  const seen = (e) => e.checkVisibility({ visibilityProperty: true });
  let target = null;
  for (let i = 0; i < found.snapshotLength && !target; i++) if (seen(found.snapshotItem(i))) target = found.snapshotItem(i);
  if (!target) return { missing: true };
  if (!document.hasFocus()) return { away: true };

  // A group of radio buttons is one stop: the chosen one, or if there is none any of them.
  const group = (e) => [...document.querySelectorAll("input[type=radio]")].filter((r) => r.name === e.name && r.form === e.form);
  const stop = (e) => (e.type === "radio" ? group(e).find((r) => r.checked) || group(e)[0] : e);
  const stops = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")]
    .filter((e) => e.tabIndex >= 0 && !e.disabled && e.type !== "hidden" && seen(e) && stop(e) === e);

  const active = document.activeElement;
  const main = document.getElementById("main");
  const skip = main.contains(target) && !main.contains(active);
  let at = stops.indexOf(stop(active));
  if (at < 0) at = stops.filter((e) => active.compareDocumentPosition(e) & Node.DOCUMENT_POSITION_PRECEDING).length - 0.5;
  const way = (skip ? 0 : stops.indexOf(stop(target))) - at;
  const answer = { main: skip, tabs: way < 0 ? Math.floor(way) : Math.ceil(way), arrows: 0, key: "", fault: "" };
  if (answer.tabs || skip) return answer;
  if (active !== target) return { ...answer, arrows: group(target).indexOf(target) - group(target).indexOf(active) };
  return { ...answer, key: target.localName === "a" ? "\r" : " ", fault: fault(target) };

  // fault says why an element with the focus cannot be seen to have it, or "".
  function fault(e) {
    const r = e.getClientRects()[0];
    if (r.top < 0 || r.left < 0 || r.bottom > innerHeight + 1 || r.right > innerWidth + 1) return "it is out of sight";
    const top = document.elementFromPoint((r.left + r.right) / 2, (r.top + r.bottom) / 2);
    if (!top || !(e.contains(top) || top.contains(e) || top.control === e)) return "it is covered by " + (top ? top.outerHTML.slice(0, 200) : "nothing");
    const ring = [null, "::after"].map((part) => getComputedStyle(e, part)).find((s) => s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2);
    if (!ring) return "it has no focus ring";
    const grow = parseFloat(ring.outlineWidth) + parseFloat(ring.outlineOffset);
    for (let p = e.parentElement; p && p !== document.body; p = p.parentElement) {
      const style = getComputedStyle(p);
      if (style.overflowX === "visible" && style.overflowY === "visible" && !p.matches(":popover-open")) continue;
      const c = p.getBoundingClientRect();
      const cut = [["left", c.left - r.left + grow], ["top", c.top - r.top + grow], ["right", r.right + grow - c.right], ["bottom", r.bottom + grow - c.bottom]].filter(([, n]) => n > 0.5);
      if (cut.length) return "its focus ring is cut " + cut.map(([side, n]) => side + " by " + n.toFixed(1)).join(", ") + " by " + p.outerHTML.slice(0, 120);
      if (p.matches(":popover-open")) break; // what is around it does not cut it
    }
    return "";
  }
}
