"use strict";
// The table of runs, their curves, and what is known of studies and sweeps.
(() => {
  const { byId, element, ask, say, shared, colorOf, plot, unplot, number, writeAddress, trouble } = recombine;
  const runs = new Map();
  const rows = new Map();
  const state = { filter: "", sort: "name", down: false, picked: new Set(), metric: "ood", means: true, study: "" };
  let sweeps = [];

  const naming = new Intl.Collator("en", { numeric: true });
  const words = (run) => [run.name, run.model, run.support, run.state].join(" ").toLowerCase();
  const shown = (run) => state.filter.toLowerCase().split(/\s+/).every((word) => words(run).includes(word));

  function cells(run) {
    const step = run.num_steps ? `${run.step.toLocaleString("en")} / ${run.num_steps.toLocaleString("en")}` : "–";
    return [
      [run.model ?? "–"], [run.support ?? "–"], [run.seed ?? "–", "number"],
      [run.state, "state"], [step, "number"], [number(run.loss, 5), "number"], [number(run.in_dist), "number"], [number(run.ood), "number"],
    ];
  }

  function fill(row, run) {
    row.firstChild.firstChild.checked = state.picked.has(run.name);
    cells(run).forEach(([text, kind], i) => {
      const cell = row.children[i + 2];
      cell.className = kind ?? "";
      if (kind === "state") {
        const why = run.error ? `: ${run.error}` : "";
        if (cell.textContent === text + why) return;
        cell.dataset.state = text;
        cell.title = run.error ?? "";
        cell.replaceChildren(text, ...(why ? [element("span", { class: "why", text: why })] : []));
      } else if (cell.textContent !== String(text)) cell.textContent = text;
    });
    return row;
  }

  function rowOf(run) {
    let row = rows.get(run.name);
    if (row) return row;
    const box = element("input", { type: "checkbox", "aria-label": `select ${run.name}`, onchange: () => pick(run.name, box.checked) });
    row = element("tr", {}, element("td", {}, box), element("th", { scope: "row", title: run.name }, element("bdi", { text: run.name })));
    for (let i = 0; i < 8; i += 1) row.append(element("td"));
    rows.set(run.name, row);
    return fill(row, run);
  }

  function compare(a, b) {
    const [x, y] = [a[state.sort] ?? null, b[state.sort] ?? null];
    if (x === null || y === null) return (x === null) - (y === null);
    const way = typeof x === "number" && typeof y === "number" ? x - y : naming.compare(String(x), String(y));
    return state.down ? -way : way;
  }

  // The rows that the filter lets through, in order: the first of them, and more as somebody scrolls down.
  const MANY = 60;
  let most = MANY;
  function arrange() {
    const visible = [...runs.values()].filter(shown).sort(compare);
    const now = visible.slice(0, most).map(rowOf);
    const body = byId("table").tBodies[0];
    if (body.rows.length !== now.length || now.some((row, i) => body.rows[i] !== row)) {
      const focused = document.activeElement;
      body.replaceChildren(...now);
      if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
    }
    byId("table").setAttribute("aria-rowcount", visible.length + 1);
    document.querySelectorAll("#table thead button").forEach((button) => {
      const way = button.dataset.sort === state.sort ? (state.down ? "descending" : "ascending") : "none";
      button.closest("th").setAttribute("aria-sort", way);
    });
    say("count", `${visible.length.toLocaleString("en")} of ${runs.size.toLocaleString("en")} runs, ${state.picked.size.toLocaleString("en")} selected`);
  }

  function arrangeAnew() {
    most = MANY;
    byId("table").parentElement.scrollTop = 0;
    arrange();
  }

  function refill() {
    for (const [name, row] of rows) fill(row, runs.get(name));
  }

  function save() {
    const visible = [...runs.values()].filter(shown);
    const all = state.picked.size > 60 && visible.length === state.picked.size && visible.every((run) => state.picked.has(run.name));
    writeAddress("runs", [
      ["q", state.filter || null], ["sort", state.sort === "name" ? null : state.sort], ["down", state.down ? "1" : null],
      ["metric", state.metric === "ood" ? null : state.metric], ["each", state.means ? null : "1"],
      ["study", state.study || null], ["all", all ? "1" : null],
      ["none", state.picked.size ? null : "1"],
      ...(all ? [] : [...state.picked].map((name) => ["run", name])),
    ]);
  }

  function pick(name, on) {
    if (on) state.picked.add(name);
    else state.picked.delete(name);
    changed();
  }

  let pending = null;
  function changed() {
    arrange();
    save();
    turn += 1;
    clearTimeout(pending);
    pending = setTimeout(redraw, 120);
  }

  function redraw() {
    return Promise.all([curves(), difference()]).then(() => trouble(null), (error) => trouble(error.message));
  }

  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

  // Student's t: the server's for few, its expansion around the normal distribution's for many.
  function quantile(count) {
    const z = shared.quantiles.normal;
    return shared.quantiles[count] ?? z + (z ** 3 + z) / (4 * (count - 1));
  }

  // As `interval` in series.py: nothing from one seed, the range of two, a t-interval of the mean of more.
  function interval(values) {
    if (values.length < 2) return [null, null];
    if (values.length === 2) return [Math.min(...values), Math.max(...values)];
    const center = mean(values);
    const variance = values.reduce((sum, value) => sum + (value - center) ** 2, 0) / (values.length - 1);
    const half = quantile(values.length) * Math.sqrt(variance / values.length);
    return [center - half, center + half];
  }

  const oneColumn = () => (byId("curves").clientWidth < 480 ? { columns: 1 } : {});
  // Few enough points for a pointer to find the nearest one.
  const FEW = 4000;
  const near = { name: "near", select: { type: "point", on: "pointermove", nearest: true, clear: "pointerout", fields: ["runs", "step"] } };
  // From a little below all but the lowest values: a run's first are far from where it gets to.
  function lowest(points) {
    const begun = points.filter((point) => point.step > 0);
    const sorted = (begun.length ? begun : points).map((point) => point.mean).sort((a, b) => a - b);
    return Math.min(0.9, Math.floor(10 * (sorted[Math.floor(sorted.length / 20)] ?? 0) - 0.5) / 10);
  }

  const curveSpec = (models, supports, metric, intervals, few, low) => ({
    $schema: "https://vega.github.io/schema/vega-lite/v6.json",
    width: "container", height: 300 + (supports > 1 ? 40 : 0) + (byId("curves").clientWidth < 480 ? 18 * (models.length + supports) : 0), autosize: { type: "fit", contains: "padding" },
    encoding: {
      x: { field: "step", type: "quantitative", title: "step", axis: { labelExpr: "datum.value ? format(datum.value, '~s') : '0'", tickCount: 6 } },
      color: { field: "model", type: "nominal", scale: { domain: models, range: models.map(colorOf) }, legend: { title: null, symbolType: "stroke", symbolOpacity: 1, ...oneColumn() } },
      detail: { field: "runs" },
    },
    layer: [
      ...(intervals ? [{ data: { name: "points" }, transform: [{ filter: "datum.step > 0" }], mark: { type: "area", opacity: 0.18, clip: true }, encoding: { y: { field: "from", type: "quantitative" }, y2: { field: "to" } } }] : []),
      { data: { name: "points" }, mark: { type: "line", strokeWidth: few ? 2 : 1, opacity: few ? 1 : 0.5, clip: true, tooltip: few ? null : { content: "encoding" } },
        encoding: { ...(few ? {} : { tooltip: [{ field: "runs" }] }), strokeDash: { field: "support", type: "nominal", legend: supports > 1 ? { title: null, orient: "bottom", ...oneColumn() } : null }, y: { field: "mean", type: "quantitative", title: metric === "loss" ? "loss" : "R²",
          scale: metric === "loss" ? { type: "log" } : { domain: [low, 1], nice: false } } } },
      ...(few ? [{ data: { name: "points" }, params: [near], mark: { type: "point", filled: true, size: 60 },
        encoding: { y: { field: "mean", type: "quantitative" }, opacity: { condition: { param: "near", empty: false, value: 1 }, value: 0 },
          tooltip: [{ field: "runs" }, { field: "step", format: "," }, { field: "mean", format: ".4f" }, { field: "seeds", title: "seeds" }] } }] : []),
    ],
  });

  const known = new Map(); // curves by run, until it has measured more

  async function fetchCurves(names, isWanted) {
    const points = names.length <= 64 ? 300 : names.length <= 300 || state.means ? 64 : 20;
    const { metric } = state;
    const stamp = (name) => JSON.stringify([runs.get(name)?.measured, metric, points]);
    const missing = names.filter((name) => known.get(name)?.stamp !== stamp(name));
    const many = missing.length > 100;
    while (missing.length && isWanted()) { // an address can only be so long
      if (many) say("reading", `reading: ${missing.length.toLocaleString("en")} to go`);
      const some = missing.splice(0, 1);
      for (let length = 0; missing.length && some.length < 100 && length < 8000; length += 5 + encodeURIComponent(some.at(-1)).length) some.push(missing.shift());
      const stamps = new Map(some.map((name) => [name, stamp(name)]));
      const found = await ask("/api/curves", [["metric", metric], ["points", points], ...some.map((name) => ["run", name])]);
      for (const [name, curve] of Object.entries(found)) known.set(name, { ...curve, stamp: stamps.get(name) });
    }
    say("reading", "");
  }

  // One drawing at a time, and once more if anything has come meanwhile: however fast the news, each is finished.
  let turn = 0; // counts what was asked for: an answer to an earlier question is not waited for
  let wanted = false;
  let underWay = null;
  function curves() {
    wanted = true;
    underWay ??= (async () => {
      try {
        while (wanted) {
          wanted = false;
          await drawCurves();
        }
      } finally {
        underWay = null;
        if (wanted) setTimeout(() => curves().catch(() => {}), 1000); // what came while something failed
      }
    })();
    return underWay;
  }

  async function drawCurves() {
    const mine = turn;
    const { metric, means } = state;
    const names = [...state.picked].filter((name) => runs.has(name));
    await fetchCurves(names, () => turn === mine);
    if (turn !== mine) return; // something else is wanted by now
    const lines = new Map();
    const labels = new Set();
    for (const name of names) {
      const run = runs.get(name);
      const curve = known.get(name);
      if (!run || !curve) continue;
      const of = means ? `${run.study} ${run.configuration}` : name; // a mean is over seeds of one configuration
      if (!lines.has(of)) {
        const short = means ? name.replace(/-seed\d+$/, "") : name;
        const line = labels.has(short) ? name : short; // two configurations may be called the same
        labels.add(line);
        lines.set(of, { line, model: run.model, support: run.support, ends: [], steps: new Map() });
      }
      const { ends, steps } = lines.get(of);
      let end = -1;
      curve.steps.forEach((step, i) => {
        const value = curve.values[i];
        if (value === null || (metric === "loss" && value <= 0)) return;
        if (!steps.has(step)) steps.set(step, []);
        steps.get(step).push(value);
        end = step;
      });
      ends.push(end);
    }
    const points = [];
    for (const { line, model, support, ends, steps } of lines.values()) {
      for (const [step, values] of [...steps].sort(([a], [b]) => a - b)) {
        // Of runs that have come further more rows were left out: a mean is of all that have come this far.
        if (values.length < ends.filter((end) => end >= step).length) continue;
        const [low, high] = interval(values);
        const center = mean(values);
        points.push({ runs: line, model, support, step, mean: center, low, high, seeds: values.length });
      }
    }
    // What is below the plot is left out of it, and a line begins where it comes in: held at the edge, it would lie.
    const low = metric === "loss" ? Math.min(...points.map((point) => point.mean)) / 2 : lowest(points);
    const within = (value) => Math.max(low, metric === "loss" ? value : Math.min(1, value));
    const inside = points.filter((point) => point.mean >= low)
      .map((point) => ({ ...point, from: within(point.low ?? point.mean), to: within(point.high ?? point.mean) }));
    const models = [...new Set(points.map((point) => point.model))].sort();
    if (!points.length) return unplot("curves", names.length ? "Nothing was measured yet." : "Select runs to see their curves.");
    const supports = new Set(points.map((point) => point.support)).size;
    await plot("curves", curveSpec(models, supports, metric, points.some((point) => point.low !== null), points.length <= FEW, low), { points: inside }, points);
  }

  async function difference() {
    const place = byId("difference");
    const picked = [...state.picked].filter((name) => runs.has(name));
    if (picked.length !== 2) {
      place.replaceChildren(element("p", { class: "soft", text: "Select two runs to see in which fields they differ." }));
      return;
    }
    const { fields } = await ask("/api/difference", [["one", picked[0]], ["other", picked[1]]]);
    if ([...state.picked].join("\n") !== picked.join("\n")) return; // others are picked by now
    const lines = Object.entries(fields).map(([name, [one, other]]) =>
      element("tr", {}, element("th", { scope: "row", text: name }), element("td", { text: one }), element("td", { text: other })));
    place.replaceChildren(lines.length
      ? element("div", { class: "scroll" }, element("table", {},
        element("thead", {}, element("tr", {}, element("th", { scope: "col", text: "field" }), ...picked.map((name) => element("th", { scope: "col", text: name })))),
        element("tbody", {}, ...lines)))
      : element("p", { class: "soft", text: "Their configurations are the same." }));
  }

  const BADGES = { holds: ["good", "✓"], "does not hold": ["bad", "✗"] };

  const unfolded = new Set();
  let judging = null; // when to ask again
  async function claims() {
    clearTimeout(judging);
    judging = null;
    const place = byId("claims");
    if (!state.study) {
      place.replaceChildren(element("p", { class: "soft", text: "No study yet." }));
      return;
    }
    const { study } = state;
    const answer = await ask("/api/claims", [["study", study]]).catch((error) => ({ error: error.message }));
    if (study !== state.study) return;
    if (answer.again) laterClaims(1000 * answer.again);
    const left = answer.left_out?.length ? [element("p", { class: "soft", text: `without what cannot be read: ${answer.left_out.join(", ")}` })] : [];
    if (answer.error) {
      place.replaceChildren(element("p", { class: "soft", text: answer.error }), ...left);
      return;
    }
    place.replaceChildren(element("ul", {}, ...answer.verdicts.map((verdict) => {
      const [kind, sign] = BADGES[verdict.state] ?? ["open", "?"];
      return element("li", {}, element("span", { class: `badge ${kind}`, text: `${sign} ${verdict.state}` }), ` ${verdict.number}. ${verdict.claim ?? verdict.sentence ?? ""}`,
        element("p", { class: "soft note", text: verdict.note }),
        element("details", { open: unfolded.has(verdict.number), ontoggle: ({ target }) => unfolded[target.open ? "add" : "delete"](verdict.number) },
          element("summary", { text: "what was measured" }),
          ...verdict.parts.map((part) => element("p", { class: "soft note", text: `${(BADGES[part.state] ?? ["", "?"])[1]} ${part.text}` }))));
    })), ...left);
  }

  function laterClaims(milliseconds) {
    judging ??= setTimeout(claims, milliseconds);
  }

  function studies() {
    const counts = new Map();
    for (const run of runs.values()) counts.set(run.study, (counts.get(run.study) ?? 0) + 1);
    const names = [...counts.keys()].sort();
    const select = byId("study");
    const swept = new Set(sweeps.map((sweep) => sweep.name)); // of whose configurations claims cannot be judged together
    if (!names.includes(state.study)) state.study = [...names].sort((a, b) => swept.has(a) - swept.has(b) || counts.get(b) - counts.get(a))[0] ?? "";
    if (JSON.stringify([...select.options].map((option) => option.value)) !== JSON.stringify(names)) {
      select.replaceChildren(...names.map((name) => element("option", { value: name, text: name === "." ? "this directory" : name })));
    }
    select.value = state.study;
  }

  function drawSweeps() {
    byId("sweeps").replaceChildren(...sweeps.map((sweep) => {
      if (sweep.error) return element("p", { class: "sweep", text: `sweep ${sweep.name}: ${sweep.error}` });
      const done = sweep.states.done ?? 0;
      const text = Object.entries(sweep.states).map(([name, many]) => `${many.toLocaleString("en")} ${name}`).join(", ");
      const best = sweep.best ? ` · best so far, by R² for selection: ${sweep.best[1]} (${number(sweep.best[0])})` : "";
      return element("p", { class: "sweep" }, element("progress", { max: sweep.runs, value: done, "aria-label": `sweep ${sweep.name}` }), ` sweep ${sweep.name}: ${text}${best}`);
    }));
  }

  recombine.runs = {
    all: runs,
    start(answer) {
      for (const run of answer.runs) runs.set(run.name, run);
      sweeps = answer.sweeps;
      drawSweeps();
    },
    restore(parameters) {
      turn += 1;
      state.filter = parameters.get("q") ?? "";
      state.sort = parameters.get("sort") ?? "name";
      state.down = parameters.has("down");
      state.metric = parameters.get("metric") ?? "ood";
      state.means = !parameters.has("each");
      state.study = parameters.get("study") ?? "";
      studies();
      state.picked = new Set(parameters.has("all") ? [...runs.values()].filter(shown).map((run) => run.name) : parameters.getAll("run").filter((name) => runs.has(name)));
      if (!state.picked.size && !parameters.has("none")) for (const run of [...runs.values()].filter((one) => one.study === state.study).slice(0, 24)) state.picked.add(run.name);
      byId("filter").value = state.filter;
      byId("metric").value = state.metric;
      byId("means").checked = state.means;
      refill();
      arrangeAnew();
    },
    show: () => Promise.all([curves(), difference(), claims()]),
    save,
    news({ changed: some, gone, sweeps: now }) {
      for (const name of gone) {
        runs.delete(name);
        rows.get(name)?.remove();
        rows.delete(name);
        known.delete(name);
        state.picked.delete(name);
      }
      const measured = some.some((run) => state.picked.has(run.name) && runs.get(run.name)?.measured !== run.measured);
      for (const run of some) {
        runs.set(run.name, run);
        const row = rows.get(run.name);
        if (!row) continue;
        fill(row, run);
        if (some.length > 50) continue;
        row.classList.add("fresh"); // for a moment
        setTimeout(() => row.classList.remove("fresh"), 800);
      }
      arrange();
      sweeps = now;
      drawSweeps();
      studies();
      if (byId("runs").hidden) return;
      if (gone.length) changed();
      else if (measured) curves().then(() => trouble(null), (error) => trouble(error.message));
      if (gone.length || some.some((run) => run.study === state.study)) laterClaims(2000);
    },
  };

  byId("filter").addEventListener("input", (event) => {
    state.filter = event.target.value;
    arrangeAnew();
    save();
  });
  document.querySelectorAll("#table thead button").forEach((button) => button.addEventListener("click", () => {
    state.down = state.sort === button.dataset.sort ? !state.down : ["ood", "in_dist", "step"].includes(button.dataset.sort);
    state.sort = button.dataset.sort;
    arrangeAnew();
    save();
  }));
  byId("table").parentElement.addEventListener("scroll", ({ target }) => {
    if (target.scrollHeight - target.scrollTop - target.clientHeight > 600 || rows.size === 0) return;
    if (byId("table").tBodies[0].rows.length < most) return;
    most += MANY;
    arrange();
  }, { passive: true });
  byId("pick-all").addEventListener("click", () => {
    for (const run of runs.values()) if (shown(run)) state.picked.add(run.name);
    refill();
    changed();
  });
  byId("pick-none").addEventListener("click", () => {
    state.picked.clear();
    refill();
    changed();
  });
  byId("metric").addEventListener("change", (event) => { state.metric = event.target.value; changed(); });
  byId("means").addEventListener("change", (event) => { state.means = event.target.checked; changed(); });
  byId("study").addEventListener("change", (event) => {
    state.study = event.target.value;
    save();
    claims();
  });
})();
