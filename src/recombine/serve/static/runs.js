"use strict";
// The table of runs, their curves, and what is known of studies and sweeps.
(() => {
  const { byId, element, ask, shared, colorOf, plot, number, writeAddress, trouble } = recombine;
  const runs = new Map();
  const rows = new Map();
  const state = { filter: "", sort: "name", down: false, picked: new Set(), metric: "ood", means: true, study: "" };
  let sweeps = [];

  const words = (run) => [run.name, run.model, run.support, run.state].join(" ").toLowerCase();
  const shown = (run) => state.filter.toLowerCase().split(/\s+/).every((word) => words(run).includes(word));

  function cells(run) {
    const step = run.num_steps ? `${run.step.toLocaleString("en")} / ${run.num_steps.toLocaleString("en")}` : "–";
    return [
      [run.model ?? "–"], [run.support ?? "–"], [run.seed ?? "–", "number"],
      [run.state, "state"], [step, "number"], [number(run.loss, 5), "number"], [number(run.in_dist), "number"], [number(run.ood), "number"],
    ];
  }

  function draw(run, fresh) {
    let row = rows.get(run.name);
    if (!row) {
      const box = element("input", { type: "checkbox", "aria-label": `select ${run.name}`, onchange: () => pick(run.name, box.checked) });
      row = element("tr", {}, element("td", {}, box), element("th", { scope: "row", text: run.name, title: run.name }));
      for (let i = 0; i < 8; i += 1) row.append(element("td"));
      rows.set(run.name, row);
    }
    row.firstChild.firstChild.checked = state.picked.has(run.name);
    cells(run).forEach(([text, kind], i) => {
      const cell = row.children[i + 2];
      if (cell.textContent !== String(text)) cell.textContent = text;
      cell.className = kind ?? "";
      if (kind === "state") {
        cell.dataset.state = text;
        cell.title = run.error ?? "";
      }
    });
    row.hidden = !shown(run);
    if (fresh) {
      row.classList.add("fresh");
      setTimeout(() => row.classList.remove("fresh"), 800);
    }
  }

  function order() {
    const value = (run) => run[state.sort] ?? null;
    const sorted = [...runs.values()].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === null || y === null) return (x === null) - (y === null);
      const way = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
      return state.down ? -way : way;
    });
    byId("table").tBodies[0].replaceChildren(...sorted.map((run) => rows.get(run.name)));
    document.querySelectorAll("#table thead button").forEach((button) => {
      const way = button.dataset.sort === state.sort ? (state.down ? "descending" : "ascending") : "none";
      button.closest("th").setAttribute("aria-sort", way);
    });
  }

  function count() {
    const visible = [...runs.values()].filter(shown).length;
    byId("count").textContent = `${visible.toLocaleString("en")} of ${runs.size.toLocaleString("en")} runs, ${state.picked.size} selected`;
  }

  function save() {
    const picked = [...state.picked].slice(0, 60);
    writeAddress("runs", [
      ["q", state.filter || null], ["sort", state.sort === "name" ? null : state.sort], ["down", state.down ? "1" : null],
      ["metric", state.metric === "ood" ? null : state.metric], ["each", state.means ? null : "1"],
      ["study", state.study || null], ...picked.map((name) => ["run", name]),
    ]);
  }

  function pick(name, on) {
    if (on) state.picked.add(name);
    else state.picked.delete(name);
    changed();
  }

  let pending = null;
  function changed() {
    count();
    save();
    clearTimeout(pending);
    pending = setTimeout(() => Promise.all([curves(), difference()]).catch((error) => trouble(error.message)), 120);
  }

  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

  // As `interval` in series.py: nothing from one seed, the range of two, a t-interval of the mean of more.
  function interval(values) {
    if (values.length < 2) return [null, null];
    if (values.length === 2 || !shared.quantiles[values.length]) return [Math.min(...values), Math.max(...values)];
    const center = mean(values);
    const variance = values.reduce((sum, value) => sum + (value - center) ** 2, 0) / (values.length - 1);
    const half = shared.quantiles[values.length] * Math.sqrt(variance / values.length);
    return [center - half, center + half];
  }

  const curveSpec = (models, metric) => ({
    $schema: "https://vega.github.io/schema/vega-lite/v6.json",
    width: "container", height: 300, autosize: { type: "fit", contains: "padding" },
    encoding: {
      x: { field: "step", type: "quantitative", title: "step", axis: { format: "~s", tickCount: 6 } },
      color: { field: "model", type: "nominal", scale: { domain: models, range: models.map(colorOf) }, legend: { title: null, symbolType: "stroke", symbolOpacity: 1 } },
      detail: { field: "line" },
    },
    layer: [
      { data: { name: "points" }, mark: { type: "area", opacity: 0.18, clip: true }, encoding: { y: { field: "from", type: "quantitative" }, y2: { field: "to" } } },
      { data: { name: "points" }, mark: { type: "line", strokeWidth: 2, clip: true },
        encoding: { strokeDash: { field: "support", type: "nominal", legend: { title: null } }, y: { field: "mean", type: "quantitative", title: metric === "loss" ? "loss" : "R²",
          scale: metric === "loss" ? { type: "log" } : { domainMin: { expr: "max(-1, extent(pluck(data('points'), 'mean'))[0] - 0.05)" }, domainMax: 1, clamp: true } } } },
      { data: { name: "points" }, params: [{ name: "near", select: { type: "point", on: "pointermove", nearest: true, clear: "pointerout", fields: ["line", "step"] } }],
        mark: { type: "point", filled: true, size: 60 },
        encoding: { y: { field: "mean", type: "quantitative" }, opacity: { condition: { param: "near", empty: false, value: 1 }, value: 0 },
          tooltip: [{ field: "line", title: "runs" }, { field: "step", format: "," }, { field: "mean", format: ".4f" }, { field: "seeds", title: "seeds" }] } },
    ],
  });

  async function curves() {
    const names = [...state.picked].filter((name) => runs.has(name));
    const found = names.length ? await ask("/api/curves", names.map((name) => ["run", name])) : {};
    const lines = new Map();
    for (const name of names) {
      const run = runs.get(name);
      const line = state.means ? `${run.study === "." ? "" : `${run.study}: `}${run.model} on ${run.support}` : name;
      const curve = found[name];
      curve.steps.forEach((step, i) => {
        const value = curve[state.metric][i];
        if (value === null || (state.metric === "loss" && value <= 0)) return;
        const key = JSON.stringify([line, step]);
        if (!lines.has(key)) lines.set(key, { line, step, model: run.model, support: run.support, values: [] });
        lines.get(key).values.push(value);
      });
    }
    const points = [...lines.values()].map(({ values, ...rest }) => {
      const [low, high] = interval(values);
      const center = mean(values);
      return { ...rest, mean: center, low, high, seeds: values.length, from: low ?? center, to: high ?? center };
    });
    const models = [...new Set(points.map((point) => point.model))].sort();
    await plot("curves", curveSpec(models, state.metric), { points });
  }

  async function difference() {
    const place = byId("difference");
    const picked = [...state.picked].filter((name) => runs.has(name));
    if (picked.length !== 2) {
      place.replaceChildren(element("p", { class: "soft", text: "Select two runs to see in which fields they differ." }));
      return;
    }
    const { fields } = await ask("/api/difference", [["one", picked[0]], ["other", picked[1]]]);
    const lines = Object.entries(fields).map(([name, [one, other]]) =>
      element("tr", {}, element("th", { scope: "row", text: name }), element("td", { text: one }), element("td", { text: other })));
    place.replaceChildren(lines.length
      ? element("div", { class: "scroll" }, element("table", {},
        element("thead", {}, element("tr", {}, element("th", { scope: "col", text: "field" }), ...picked.map((name) => element("th", { scope: "col", text: name })))),
        element("tbody", {}, ...lines)))
      : element("p", { class: "soft", text: "Their configurations are the same." }));
  }

  const BADGES = { holds: ["good", "✓"], "does not hold": ["bad", "✗"] };

  async function claims() {
    const place = byId("claims");
    if (!state.study) {
      place.replaceChildren(element("p", { class: "soft", text: "No study yet." }));
      return;
    }
    const answer = await ask("/api/claims", [["study", state.study]]);
    if (answer.error) {
      place.replaceChildren(element("p", { class: "soft", text: answer.error }));
      return;
    }
    place.replaceChildren(element("ul", {}, ...answer.verdicts.map((verdict) => {
      const [kind, sign] = BADGES[verdict.state] ?? ["open", "?"];
      return element("li", { title: verdict.note ?? "" }, element("span", { class: `badge ${kind}`, text: `${sign} ${verdict.state}` }), ` ${verdict.number}. ${verdict.claim ?? verdict.sentence ?? ""}`);
    })));
  }

  function studies() {
    const counts = new Map();
    for (const run of runs.values()) counts.set(run.study, (counts.get(run.study) ?? 0) + 1);
    const names = [...counts.keys()].sort();
    const select = byId("study");
    if (!names.includes(state.study)) state.study = [...names].sort((a, b) => counts.get(b) - counts.get(a))[0] ?? "";
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
      const best = sweep.best ? ` · best R² ood ${number(sweep.best[0])} (${sweep.best[1]})` : "";
      return element("p", { class: "sweep" }, element("progress", { max: sweep.runs, value: done, "aria-label": `sweep ${sweep.name}` }), ` sweep ${sweep.name}: ${text}${best}`);
    }));
  }

  recombine.runs = {
    all: runs,
    start(parameters, answer) {
      for (const run of answer.runs) runs.set(run.name, run);
      sweeps = answer.sweeps;
      state.filter = parameters.get("q") ?? "";
      state.sort = parameters.get("sort") ?? "name";
      state.down = parameters.has("down");
      state.metric = parameters.get("metric") ?? "ood";
      state.means = !parameters.has("each");
      state.study = parameters.get("study") ?? "";
      state.picked = new Set(parameters.getAll("run").filter((name) => runs.has(name)));
      if (!state.picked.size) for (const run of [...runs.values()].filter((one) => one.study === [...runs.values()][0].study).slice(0, 24)) state.picked.add(run.name);
      byId("filter").value = state.filter;
      byId("metric").value = state.metric;
      byId("means").checked = state.means;
      for (const run of runs.values()) draw(run, false);
      order();
      count();
      studies();
      drawSweeps();
    },
    show: () => Promise.all([curves(), difference(), claims()]),
    save,
    news({ changed: some, gone, sweeps: now }) {
      for (const name of gone) {
        runs.delete(name);
        rows.get(name)?.remove();
        rows.delete(name);
        state.picked.delete(name);
      }
      const fresh = some.some((run) => !runs.has(run.name));
      for (const run of some) {
        runs.set(run.name, run);
        draw(run, true);
      }
      if (fresh || some.some((run) => state.sort !== "name" && run[state.sort] !== null)) order();
      sweeps = now;
      drawSweeps();
      studies();
      count();
      if (byId("runs").hidden) return;
      if (some.some((run) => state.picked.has(run.name)) || gone.length) changed();
      if (some.some((run) => run.study === state.study)) claims().catch((error) => trouble(error.message));
    },
  };

  byId("filter").addEventListener("input", (event) => {
    state.filter = event.target.value;
    for (const run of runs.values()) rows.get(run.name).hidden = !shown(run);
    count();
    save();
  });
  document.querySelectorAll("#table thead button").forEach((button) => button.addEventListener("click", () => {
    state.down = state.sort === button.dataset.sort ? !state.down : ["ood", "in_dist", "step"].includes(button.dataset.sort);
    state.sort = button.dataset.sort;
    order();
    save();
  }));
  byId("pick-all").addEventListener("click", () => {
    for (const run of runs.values()) if (shown(run)) state.picked.add(run.name);
    for (const run of runs.values()) draw(run, false);
    changed();
  });
  byId("pick-none").addEventListener("click", () => {
    state.picked.clear();
    for (const run of runs.values()) draw(run, false);
    changed();
  });
  byId("metric").addEventListener("change", (event) => { state.metric = event.target.value; changed(); });
  byId("means").addEventListener("change", (event) => { state.means = event.target.checked; changed(); });
  byId("study").addEventListener("change", (event) => {
    state.study = event.target.value;
    save();
    claims().catch((error) => trouble(error.message));
  });
})();
