"use strict";
// The table of runs: filtering, sorting, selecting; and the difference between two runs.
(() => {
  const { byId, element, ask, say, number, writeAddress, trouble, curves, claims } = recombine;
  const runs = new Map();
  const rows = new Map();
  const MANY_PICKED = 24; // runs of a study that are selected by default
  const state = { filter: "", sort: "name", down: false, picked: new Set(), metric: "ood", means: true, study: "" };
  let sweeps = [];

  const naming = new Intl.Collator("en", { numeric: true });
  const words = (run) => [run.name, run.model, run.support, run.state].join(" ").toLowerCase();
  // Every word must occur; a word with a minus before it must not.
  const fits = (text, word) => (/^-./.test(word) ? !text.includes(word.slice(1)) : text.includes(word));
  const shown = (run) => state.filter.toLowerCase().split(/\s+/).every((word) => fits(words(run), word));

  function cells(run) {
    const step = run.num_steps ? `${run.step.toLocaleString("en")} / ${run.num_steps.toLocaleString("en")}` : "–";
    return [
      [run.model ?? "–"], [run.support ?? "–"], [run.seed ?? "–", "number"],
      [run.state, "state"], [step, "number"], [number(run.loss, 5), "number"], [number(run.in_dist), "number"], [number(run.ood), "number"], [number(run.novel), "number"],
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
    row.append(...cells(run).map(() => element("td")));
    rows.set(run.name, row);
    return fill(row, run);
  }

  function compare(a, b) {
    const [x, y] = [a[state.sort] ?? null, b[state.sort] ?? null];
    if (x === null || y === null) return (x === null) - (y === null);
    const way = typeof x === "number" && typeof y === "number" ? x - y : naming.compare(String(x), String(y));
    return state.down ? -way : way;
  }

  // The rows that match the filter, in order: the first ones, and more when the user scrolls down.
  const MANY = 60;
  let most = MANY;
  function arrange() {
    const visible = [...runs.values()].filter(shown).sort(compare);
    const now = visible.slice(0, most).map(rowOf);
    const body = byId("table").tBodies[0];
    if (body.rows.length !== now.length || now.some((row, i) => body.rows[i] !== row)) {
      const focused = document.activeElement;
      body.replaceChildren(...now);
      now.forEach((row, i) => row.setAttribute("aria-rowindex", i + 2)); // row 1 is the header
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

  // Select the first runs of the study, and new ones as they appear, until the user selects others.
  let follows = false;
  function follow() {
    for (const run of runs.values()) if (run.study === state.study && state.picked.size < MANY_PICKED) state.picked.add(run.name);
  }

  function pick(name, on) {
    follows = false;
    if (on) state.picked.add(name);
    else state.picked.delete(name);
    changed();
  }

  const question = () => ({ names: [...state.picked], metric: state.metric, means: state.means });
  let pending = null;
  function changed() {
    arrange();
    save();
    curves.abandon();
    clearTimeout(pending);
    pending = setTimeout(redraw, 120);
  }

  function redraw() {
    return Promise.all([curves.show(question), difference()]).then(() => trouble(null), (error) => trouble(error.message));
  }

  async function difference() {
    const place = byId("difference");
    const picked = [...state.picked].filter((name) => runs.has(name));
    if (picked.length !== 2) {
      place.replaceChildren(element("p", { class: "soft", text: "Select two runs to see in which fields they differ." }));
      return;
    }
    const { fields } = await ask("/api/difference", [["one", picked[0]], ["other", picked[1]]]);
    if ([...state.picked].join("\n") !== picked.join("\n")) return; // other runs have been selected meanwhile
    const lines = Object.entries(fields).map(([name, [one, other]]) =>
      element("tr", {}, element("th", { scope: "row", text: name }), element("td", { text: one }), element("td", { text: other })));
    place.replaceChildren(lines.length
      ? element("div", { class: "scroll" }, element("table", {},
        element("thead", {}, element("tr", {}, element("th", { scope: "col", text: "field" }), ...picked.map((name) => element("th", { scope: "col", text: name })))),
        element("tbody", {}, ...lines)))
      : element("p", { class: "soft", text: "Their configurations are the same." }));
  }

  function studies() {
    const counts = new Map();
    for (const run of runs.values()) counts.set(run.study, (counts.get(run.study) ?? 0) + 1);
    const names = [...counts.keys()].sort();
    const select = byId("study");
    const swept = new Set(sweeps.map((sweep) => sweep.name)); // claims cannot be judged on the configurations of a sweep
    if (!names.includes(state.study)) state.study = [...names].sort((a, b) => swept.has(a) - swept.has(b) || counts.get(b) - counts.get(a))[0] ?? "";
    if (JSON.stringify([...select.options].map((option) => option.value)) !== JSON.stringify(names)) {
      select.replaceChildren(...names.map((name) => element("option", { value: name, text: name === "." ? "this directory" : name })));
    }
    select.value = state.study;
  }

  recombine.runs = {
    all: runs,
    start(answer) {
      for (const run of answer.runs) runs.set(run.name, run);
      sweeps = answer.sweeps;
      claims.sweeps(sweeps);
    },
    restore(parameters) {
      curves.abandon();
      state.filter = parameters.get("q") ?? "";
      state.sort = parameters.get("sort") ?? "name";
      state.down = parameters.has("down");
      state.metric = parameters.get("metric") ?? "ood";
      state.means = !parameters.has("each");
      state.study = parameters.get("study") ?? "";
      studies();
      state.picked = new Set(parameters.has("all") ? [...runs.values()].filter(shown).map((run) => run.name) : parameters.getAll("run").filter((name) => runs.has(name)));
      follows = !state.picked.size && !parameters.has("none");
      if (follows) follow();
      byId("filter").value = state.filter;
      byId("metric").value = state.metric;
      byId("means").checked = state.means;
      refill();
      arrangeAnew();
    },
    show: () => Promise.all([curves.show(question), difference(), claims.show(state.study)]),
    save,
    news({ changed: some, gone, sweeps: now }) {
      for (const name of gone) {
        runs.delete(name);
        rows.get(name)?.remove();
        rows.delete(name);
        curves.forget(name);
        state.picked.delete(name);
      }
      const measured = some.some((run) => state.picked.has(run.name) && runs.get(run.name)?.measured !== run.measured);
      for (const run of some) {
        runs.set(run.name, run);
        const row = rows.get(run.name);
        if (!row) continue;
        fill(row, run);
        if (some.length > 50) continue;
        row.classList.add("fresh"); // highlighted for a moment
        setTimeout(() => row.classList.remove("fresh"), 800);
      }
      sweeps = now;
      claims.sweeps(sweeps);
      const { study } = state;
      studies();
      const before = state.picked.size;
      if (follows) follow();
      refill();
      arrange();
      if (byId("runs").hidden) return;
      if (state.study !== study) claims.show(state.study);
      if (gone.length || state.picked.size !== before) changed();
      else if (measured) curves.show(question).then(() => trouble(null), (error) => trouble(error.message));
      if (gone.length || some.some((run) => run.study === state.study)) claims.later(2000);
    },
  };

  byId("filter").addEventListener("input", (event) => {
    state.filter = event.target.value;
    arrangeAnew();
    save();
  });
  document.querySelectorAll("#table thead button").forEach((button) => button.addEventListener("click", () => {
    state.down = state.sort === button.dataset.sort ? !state.down : ["ood", "novel", "in_dist", "step"].includes(button.dataset.sort);
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
    follows = false;
    for (const run of runs.values()) if (shown(run)) state.picked.add(run.name);
    refill();
    changed();
  });
  byId("pick-none").addEventListener("click", () => {
    follows = false;
    state.picked.clear();
    refill();
    changed();
  });
  byId("metric").addEventListener("change", (event) => { state.metric = event.target.value; changed(); });
  byId("means").addEventListener("change", (event) => { state.means = event.target.checked; changed(); });
  byId("study").addEventListener("change", (event) => {
    state.study = event.target.value;
    save();
    claims.show(state.study);
  });
})();
