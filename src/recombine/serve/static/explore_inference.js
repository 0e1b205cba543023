"use strict";
// The control of explicit inference, for every model that executes a latent: K, the number of steps, and their start.
//
// A latent that explicit inference finds is { start, steps }; in addresses it reads own-3 or zero-3. The server computes
// all steps at once, so the bars show R² after each of them.
recombine.inference = (() => {
  const { byId, element, number } = recombine;
  const MOST = 10;
  const STARTS = { own: "its own latent", zero: "zero" };

  const explicit = (start, steps) => ({ start, steps, toString: () => `${start}-${steps}` });
  const isExplicit = (latent) => Boolean(latent?.start);
  function read(text) {
    const [, start, steps] = /^(own|zero)-(\d{1,2})$/.exec(text ?? "") ?? [];
    return start && Number(steps) <= MOST ? explicit(start, Number(steps)) : null;
  }
  const badge = ({ steps }) => `K = ${steps}`; // short: a longer one would wrap, and the plots would jump
  const words = ({ start, steps }) => `${steps} step${steps === 1 ? "" : "s"} from ${STARTS[start]}`;

  let rows = [];
  function make(label, start, change) {
    const row = { start, latent: null };
    const set = (steps) => {
      row.latent = explicit(row.start, Math.max(0, Math.min(MOST, steps)));
      show(row);
      change(row.latent);
    };
    row.bars = Array.from({ length: MOST + 1 }, () => element("i"));
    row.range = element("input", { type: "range", min: 0, max: MOST, step: 1, value: 0, "aria-label": `K, steps of explicit inference, ${label}` });
    row.range.addEventListener("input", () => set(Number(row.range.value)));
    row.shown = element("output");
    row.starts = Object.entries(STARTS).map(([name, text]) => element("button", { type: "button", text, "data-start": name, onclick: () => { row.start = name; set(Number(row.range.value)); } }));
    row.move = (by) => set(row.latent === null ? Math.max(0, by) : row.latent.steps + by);
    row.node = element("div", { class: "inference" },
      element("p", {}, element("b", { text: "Explicit inference" }), ` of ${label}: K Gauss–Newton steps on the context, through its own modules`),
      element("div", { class: "path" }, element("div", { class: "bars", "aria-hidden": "true", title: "R² after each step" }, ...row.bars), row.range),
      row.shown, element("div", { class: "starts", role: "group", "aria-label": `start of explicit inference, ${label}` }, element("span", { text: "from" }), ...row.starts));
    return row;
  }

  function show(row, byStep = null) {
    const on = row.latent !== null;
    if (on) row.start = row.latent.start;
    const steps = on ? row.latent.steps : 0;
    row.range.value = steps;
    row.shown.textContent = on ? `K = ${steps}` : "off";
    row.range.setAttribute("aria-valuetext", on ? words(row.latent) : "off");
    row.node.classList.toggle("on", on);
    for (const button of row.starts) button.setAttribute("aria-pressed", on && button.dataset.start === row.start);
    row.bars.forEach((bar, i) => {
      bar.classList.toggle("now", on && i === steps);
      if (!on || byStep) bar.style.height = on ? `${100 * Math.max(0.04, Math.min(1, byStep[i] ?? 0))}%` : "0";
    });
  }

  let made = "";
  // `models`: for each model its label, its latent as it is set, the one that was answered, and R² by step of the answer;
  // null where it executes none. `change(i, latent)` sets another.
  function draw(models, change) {
    const now = JSON.stringify(models.map((one) => one?.label));
    if (now !== made) {
      made = now;
      rows = models.map((one, i) => one && make(one.label, "own", (latent) => change(i, latent)));
      byId("inference").replaceChildren(...rows.filter(Boolean).map((row) => row.node));
    }
    models.forEach((one, i) => {
      if (!one) return;
      rows[i].latent = isExplicit(one.latent) ? one.latent : null;
      const { shown, latent } = rows[i];
      const byStep = latent?.start === one.asked?.start ? one.byStep : null; // else the answer is of the other start
      show(rows[i], byStep);
      if (latent && byStep) shown.textContent = `K = ${latent.steps}: R² ${number(byStep[latent.steps])}`;
    });
  }

  addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "k" || event.altKey || event.ctrlKey || event.metaKey || byId("explore").hidden || event.target.matches?.("select")) return;
    rows.forEach((row) => row?.move(event.key === "k" ? 1 : -1));
  });

  return { draw, read, isExplicit, badge };
})();
