// Live updates: replaces elements by their id with what the server sends. Without it pages work as they are.
"use strict";
(() => {
  const script = document.currentScript;
  const address = script && script.dataset.events;
  if (!address || !window.EventSource) return;
  const silence = 45000;
  let source = null;
  let heard = Date.now();
  let [stale, lost] = [false, false];

  const mark = document.getElementById("live");
  const banner = document.getElementById("stale");

  // The server's own marks stay when a page was already stale as it came.
  const show = (isStale, isLost) => {
    if (isStale === stale && isLost === lost) return;
    [stale, lost] = [isStale, isLost];
    const data = document.body.dataset;
    if (mark) {
      mark.classList.toggle("t-warn", isStale || isLost);
      mark.querySelector(".live-text").textContent = isStale ? `Data of ${data.clock}` : isLost ? "Reconnecting" : "Live";
      mark.querySelector("circle")?.setAttribute("class", isStale || isLost ? "live-off" : "live-dot");
    }
    if (banner) banner.hidden = !isStale;
    document.getElementById("page").classList.toggle("stale", isStale);
  };

  const holdsFocusedField = (element) => {
    const focused = document.activeElement;
    return focused && element.contains(focused) && /^(INPUT|SELECT|TEXTAREA)$/.test(focused.tagName);
  };

  const swap = (id, html) => {
    const old = document.getElementById(id);
    if (!old || holdsFocusedField(old)) return;
    const template = document.createElement("template");
    template.innerHTML = html;
    const fresh = template.content.firstElementChild;
    if (!fresh || fresh.id !== id) return;
    for (const { id: name } of old.querySelectorAll("details[open]")) {
      const details = name && fresh.querySelector(`#${CSS.escape(name)}`);
      if (details) details.open = true;
    }
    const links = [...old.querySelectorAll("a, button, summary")];
    const place = links.indexOf(document.activeElement);
    old.replaceWith(fresh);
    const next = place < 0 ? null : fresh.querySelectorAll("a, button, summary")[place];
    if (next) next.focus({ preventScroll: true });
  };

  // Rows stay where they are while they are read: how many differ is said, with a link to those of now.
  const count = (now) => {
    const mark = document.getElementById("changes");
    const shown = [...document.querySelectorAll("tr[id]")].map((row) => row.id);
    const missing = (some, others) => some.filter((id) => !others.includes(id)).length;
    const number = Math.max(missing(now, shown), missing(shown, now)) || now.filter((id, at) => id !== shown[at]).length;
    mark.hidden = number === 0;
    mark.firstElementChild.textContent = number ? `${number} change${number > 1 ? "s" : ""} since ${mark.dataset.since}` : "";
  };

  const hear = () => {
    heard = Date.now();
    show(false, false);
  };

  const start = () => {
    if (source || document.hidden) return;
    source = new EventSource(address);
    source.addEventListener("swap", (event) => {
      hear();
      const batch = JSON.parse(event.data);
      if (batch.clock) document.body.dataset.clock = batch.clock;
      for (const [id, html] of batch.parts) swap(id, html);
      if (batch.rows) count(batch.rows);
    });
    source.addEventListener("beat", hear);
    source.addEventListener("reload", () => location.reload());
    source.addEventListener("bye", () => { stop(); setTimeout(start, 1000); });
    source.addEventListener("error", () => {
      show(stale, true);
      // A stream that was refused is not tried again by the browser: the page reloads instead.
      if (source && source.readyState === EventSource.CLOSED) {
        stop();
        setTimeout(() => (document.hidden ? null : location.reload()), 30000);
      }
    });
  };

  const stop = () => {
    if (source) source.close();
    source = null;
  };

  document.addEventListener("visibilitychange", () => (document.hidden ? stop() : start()));
  setInterval(() => show(Date.now() - heard > silence && !document.hidden, lost), 1000);
  start();
})();
