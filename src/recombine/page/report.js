"use strict";
// The plots of the report page: filters the runs, averages over seeds like `series.py`, and passes rows to Vega-Lite.
(() => {
  const study = JSON.parse(document.getElementById("study").textContent);
  const byId = (id) => document.getElementById(id);
  const state = { models: new Set(study.models), support: study.supports[0], seed: "all", split: "ood", masks: new Set() };
  const views = new Map();

  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

  // Like `band` in statistics.py: no interval for one seed, the range for two, a t-interval of the mean for more.
  function interval(values) {
    if (values.length < 2) return [null, null];
    if (values.length === 2) return [Math.min(...values), Math.max(...values)];
    const center = mean(values);
    const variance = values.reduce((sum, value) => sum + (value - center) ** 2, 0) / (values.length - 1);
    const half = study.quantiles[values.length] * Math.sqrt(variance / values.length);
    return [center - half, center + half];
  }

  const chosen = (run, bySupport) =>
    state.models.has(run.model) &&
    (state.seed === "all" || run.seed === state.seed) &&
    (!bySupport || run.support === state.support);

  // Like `summarise` in series.py.
  function summarise(series, bySupport) {
    const groups = new Map();
    for (const one of series) {
      const run = study.runs[one.run];
      if (!chosen(run, bySupport)) continue;
      one.x.forEach((x, i) => {
        const key = JSON.stringify([run.model, one.name, x]);
        if (!groups.has(key)) groups.set(key, { model: run.model, name: one.name, x, values: [] });
        groups.get(key).values.push(one.y[i]);
      });
    }
    const rows = [...groups.values()].map(({ model, name, x, values }) => {
      const whole = !values.includes(null);
      const [low, high] = whole ? interval(values) : [null, null];
      return { model, name, x, mean: whole ? mean(values) : null, low, high, seeds: values.length };
    });
    const order = new Map(study.models.map((model, i) => [model, i]));
    const place = (x) => (typeof x === "number" ? x : 0);
    return rows.sort((a, b) => order.get(a.model) - order.get(b.model) || place(a.x) - place(b.x));
  }

  // Like `summarise_references` in series.py. References stay when a model is hidden.
  function references(series, bySupport) {
    const groups = new Map();
    for (const one of series) {
      const run = study.runs[one.run];
      if (state.seed !== "all" && run.seed !== state.seed) continue;
      if (bySupport && run.support !== state.support) continue;
      one.x.forEach((x, i) => {
        if (one.y[i] === null) return;
        const key = JSON.stringify([one.name, x]);
        if (!groups.has(key)) groups.set(key, { name: one.name, x, values: new Map() });
        const { values } = groups.get(key);
        const owner = JSON.stringify([run.support, run.seed]);
        if (!values.has(owner)) values.set(owner, one.y[i]);
      });
    }
    return [...groups.values()].map(({ name, x, values }) => ({ name, x, value: mean([...values.values()]) }));
  }

  // Like `_labelled` in chart.py: labels stand at the last x and do not overlap.
  function label(rows, { domain: [low, high], log }) {
    const place = (value) => {
      const inside = Math.min(Math.max(value, low), high);
      return log ? Math.log(inside / low) / Math.log(high / low) : (inside - low) / (high - low);
    };
    const last = [...new Map(rows.map((row) => [row.name, row])).values()].sort((a, b) => a.value - b.value);
    const heights = [];
    for (const row of last) {
      const height = place(row.value);
      heights.push(heights.length ? Math.max(height, heights[heights.length - 1] + study.labelGap) : height);
    }
    last.forEach((row, i) => {
      const height = Math.min(heights[i], 1 - study.labelGap * (last.length - 1 - i));
      row.label = row.name + (row.value < low ? " ↓" : row.value > high ? " ↑" : "");
      row.at = log ? low * (high / low) ** height : low + height * (high - low);
    });
    return rows;
  }

  // R² of a run pooled over the chosen masks, at each of its steps.
  function pooled(run) {
    const split = run.splits[state.split];
    if (!split) return null;
    if (!Object.keys(split.masks).length) return split.r2;
    const columns = Object.entries(split.masks).filter(([mask]) => state.masks.has(mask)).map(([, column]) => column);
    if (!columns.length) return null;
    return run.steps.map((_, i) => {
      let error = 0;
      let spread = 0;
      for (const [episodes, mse, spreads] of columns) {
        if (episodes[i] === null || mse[i] === null || spreads[i] === null) return null;
        error += episodes[i] * mse[i];
        spread += episodes[i] * spreads[i];
      }
      return spread > 0 ? 1 - error / spread : null;
    });
  }

  function explored() {
    const series = [];
    study.masks.forEach((run, i) => {
      const y = pooled(run);
      if (y) series.push({ run: i, name: "", x: run.steps, y });
    });
    return series;
  }

  function tables(name) {
    const panel = study.panels[name];
    const rows = summarise(name === "explore" ? explored() : panel.series, panel.bySupport);
    // A panel of rows has no layer for references, and Vega refuses a table that no layer uses.
    const lines = panel.rowHeight ? {} : { [`${name}_references`]: label(references(panel.references, panel.bySupport), panel) };
    return {
      ...lines,
      [`${name}_means`]: rows,
      [`${name}_note`]: rows.length ? [] : [{ text: study.runs.length && panel.series.length ? "nothing selected" : study.nothing }],
    };
  }

  const format = (value) => (value === null ? "–" : value.toFixed(4).replace("-", "−"));

  function fillPooled() {
    const last = new Map();
    for (const row of summarise(explored(), true)) if (row.mean !== null) last.set(row.model, row);
    byId("pooled").replaceChildren(
      ...[...last.values()].map((row) => {
        const line = document.createElement("tr");
        const between = row.low === null ? "–" : `[${format(row.low)}, ${format(row.high)}]`;
        [row.model, format(row.mean), between, String(row.seeds), row.x.toLocaleString("en")].forEach((text, i) => {
          const cell = document.createElement(i ? "td" : "th");
          if (!i) cell.scope = "row";
          cell.textContent = text;
          line.append(cell);
        });
        return line;
      }),
    );
  }

  // A mask such as 100100 as the modules that it uses: θ₁+θ₄.
  const digits = (i) => [...String(i)].map((digit) => String.fromCodePoint(0x2080 + Number(digit))).join("");
  const modules = (mask) => [...mask].flatMap((bit, i) => (bit === "1" ? [`θ${digits(i + 1)}`] : [])).join("+") || mask;

  function fillMasks() {
    const names = new Set();
    study.masks.forEach((run, i) => {
      if (study.runs[i].support === state.support) Object.keys(run.splits[state.split]?.masks ?? {}).forEach((m) => names.add(m));
    });
    state.masks = new Set(names);
    byId("mask-boxes").hidden = !names.size;
    byId("boxes").replaceChildren(
      ...[...names].map((mask) => {
        const box = Object.assign(document.createElement("input"), { type: "checkbox", name: "mask", value: mask, checked: true });
        box.addEventListener("change", () => {
          if (box.checked) state.masks.add(mask);
          else state.masks.delete(mask);
          update();
        });
        const line = document.createElement("label");
        line.append(box, modules(mask));
        return line;
      }),
    );
  }

  // The height of a panel of rows depends on their number.
  function rowsHeight(name) {
    const panel = study.panels[name];
    const rows = new Set(summarise(panel.series, panel.bySupport).map((row) => row.x)).size;
    return panel.rowHeight && panel.rowHeight * Math.max(rows, 3);
  }

  async function update() {
    fillPooled();
    document.querySelectorAll(".support").forEach((element) => (element.textContent = state.support));
    for (const [name, { view }] of views) {
      for (const [table, rows] of Object.entries(tables(name))) view.data(table, rows);
      const height = rowsHeight(name);
      if (height) view.height(height);
      await view.resize().runAsync();
    }
    document.documentElement.dataset.updated = String(Number(document.documentElement.dataset.updated ?? 0) + 1);
  }

  // On a phone, the sections after the first plots are folded. Their plots are drawn once they are unfolded.
  function fold() {
    if (!matchMedia("(max-width: 700px)").matches) return;
    const sections = [...document.querySelectorAll("main > section")];
    const first = sections.findIndex((section) => section.querySelector(".plot"));
    for (const section of sections.slice(Math.max(1, first) + 1)) {
      const [details, summary] = [document.createElement("details"), document.createElement("summary")];
      summary.append(section.querySelector("h2"));
      details.append(summary, ...section.childNodes);
      section.replaceChildren(details);
      details.addEventListener("toggle", () => details.open && draw(document.documentElement.dataset.theme, details));
    }
  }

  async function draw(tone, within = document) {
    const colors = study.themes[tone].range.category;
    document.querySelectorAll(".swatch").forEach((swatch) => (swatch.style.background = colors[swatch.dataset.model]));
    for (const place of within.querySelectorAll(".plot")) {
      if (place.closest("section > details:not([open])")) continue;
      const name = place.dataset.panel;
      views.get(name)?.finalize();
      const given = study.panels[name].spec;
      const title = place.getAttribute("aria-label").replace("Plot: ", "");
      const spec = { ...given, description: title, height: rowsHeight(name) ?? given.height, datasets: tables(name) };
      const result = await vegaEmbed(place, spec, {
        mode: "vega-lite",
        renderer: "svg",
        ast: true, // expressions are interpreted, so that the page's policy can forbid eval
        config: { ...study.themes[tone], mark: { ...study.themes[tone].mark, aria: false }, axis: { ...study.themes[tone].axis, aria: false }, legend: { ...study.themes[tone].legend, aria: false } }, // the tables say it in numbers
        tooltip: { theme: tone },
        actions: { export: true, source: false, compiled: false, editor: false },
        downloadFileName: name,
      });
      place.querySelector("summary")?.setAttribute("aria-label", `Save the plot: ${title}`);
      views.set(name, result);
    }
  }

  document.querySelectorAll("input[name=model]").forEach((box) =>
    box.addEventListener("change", () => {
      const model = study.models[Number(box.value)];
      if (box.checked) state.models.add(model);
      else state.models.delete(model);
      update();
    }),
  );
  byId("support").addEventListener("change", (event) => {
    state.support = study.supports[Number(event.target.value)];
    fillMasks();
    update();
  });
  byId("seed").addEventListener("change", (event) => {
    state.seed = event.target.value === "all" ? "all" : Number(event.target.value);
    update();
  });
  byId("split").addEventListener("change", (event) => {
    state.split = event.target.value;
    fillMasks();
    update();
  });
  for (const [id, checked] of [["all", true], ["none", false]]) {
    byId(id).addEventListener("click", () => {
      document.querySelectorAll("input[name=mask]").forEach((box) => {
        box.checked = checked;
        if (checked) state.masks.add(box.value);
        else state.masks.delete(box.value);
      });
      update();
    });
  }
  document.querySelectorAll("form").forEach((form) => form.addEventListener("submit", (event) => event.preventDefault()));

  document.querySelectorAll("form").forEach((form) => form.reset()); // a browser may keep boxes across a reload
  fold();
  fillMasks();
  fillPooled();
  window.recombine = { tables, state }; // for the console, and for the tests
  followTone(draw).then(
    () => (document.documentElement.dataset.ready = "yes"),
    (error) => {
      document.documentElement.dataset.ready = "failed";
      console.error(error);
    },
  );
})();
