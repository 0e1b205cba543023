"use strict";
// The table of runs: the study that is shown, filtering, sorting, grouping and selecting.
(() => {
  const { byId, element, ask, say, number, writeAddress, trouble, curves, claims, isExplorable } = recombine;
  const runs = new Map();
  const rows = new Map();
  const MANY_PICKED = 24; // runs of a study that are selected by default
  const ALL = ""; // in place of a study: all of them
  const state = { filter: "", sort: "name", down: false, picked: new Set(), means: true, study: ALL, only: false, group: true, smooth: 0, logarithmic: false, range: null, hidden: new Set() };
  let sweeps = [];
  let columns = { study: null, fields: [], values: {} }; // the fields in which the runs of the study differ

  const naming = new Intl.Collator("en", { numeric: true });
  const words = (run) => [run.name, run.model, run.support, run.state].join(" ").toLowerCase();
  // Every word must occur; a word with a minus before it must not.
  const fits = (text, word) => (/^-./.test(word) ? !text.includes(word.slice(1)) : text.includes(word));
  const inStudy = (run) => state.study === ALL || run.study === state.study;
  const shown = (run) => inStudy(run) && (!state.only || state.picked.has(run.name)) && state.filter.toLowerCase().split(/\s+/).every((word) => fits(words(run), word));

  // ---- the table ---------------------------------------------------------------------------------------------------

  const FIRST = [["name", "run"], ["model", "model"], ["support", "support"], ["seed", "seed", "number"]];
  const LAST = [["state", "state"], ["step", "step", "number"], ["loss", "loss", "score"], ["in_dist", "in_dist", "score", "R² on masks trained on"], ["ood", "ood", "score", "R² on held-out masks"],
    ["novel", "novel", "score", "R² of the novel part: what of a held-out task no blend of trained tasks explains"], ["probe", "probe", "score", "R² of the latent, decoded from the last residual stream by a linear probe"]];
  const own = () => columns.fields.map((field) => [`.${field}`, field.split(".").at(-1).replaceAll("_", " "), "field", field]);
  const all = () => [...FIRST, ...own(), ...LAST];

  function head() {
    const made = all().map(([sort, text, kind = "", title]) => element("th", { scope: "col", "aria-sort": "none", class: kind === "score" ? "number score" : kind },
      element("button", { type: "button", "data-sort": sort, text, title, onclick: () => sortBy(sort) })));
    byId("table").tHead.rows[0].replaceChildren(element("th", { scope: "col" }, element("span", { class: "hidden-text", text: "selected" })), ...made);
    rows.clear();
  }

  function sortBy(name) {
    state.down = state.sort === name ? !state.down : ["ood", "novel", "in_dist", "probe", "step"].includes(name);
    state.sort = name;
    arrangeAnew();
    save();
  }

  const field = (run, i) => columns.values[run.name]?.[i] ?? "–";
  // The name without its study, and without the settings that have columns.
  const shortName = (run) => {
    const base = state.study !== ALL && run.study !== "." ? run.name.slice(run.study.length + 1) : run.name;
    return columns.fields.length ? base.replace(/[\w.]+=[^,=]*?(,[\w.]+=[^,=]*?)*(?=-seed\d+$|$)/, "…") : base;
  };

  function cells(run) {
    const step = run.num_steps ? (run.step === run.num_steps ? run.step.toLocaleString("en") : `${run.step.toLocaleString("en")} / ${run.num_steps.toLocaleString("en")}`) : "–";
    return [
      [run.model ?? "–"], [run.support ?? "–"], [run.seed ?? "–", "number"],
      ...columns.fields.map((_, i) => [field(run, i), "field"]),
      [run.state, "state"], [step, "number"], [number(run.loss, 5), "number score"], [number(run.in_dist), "number score"], [number(run.ood), "number score"], [number(run.novel), "number score"], [number(run.probe), "number score"],
    ];
  }

  function fill(row, run) {
    row.firstChild.firstChild.checked = state.picked.has(run.name);
    row.classList.toggle("picked", state.picked.has(run.name));
    row.querySelector(".to-explore").hidden = !isExplorable(run);
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
    const to = (view, name, text, more) => element("a", { href: `#${view}&${new URLSearchParams([[name, run.name]])}`, title: run.name, ...more }, text);
    row = element("tr", {}, element("td", {}, box), element("th", { scope: "row", title: run.name },
      to("run", "name", element("bdi", { text: shortName(run) }), {}), " ", to("explore", "run0", "explore", { class: "to-explore", "aria-label": `explore ${run.name}` })));
    row.append(...cells(run).map(() => element("td")));
    rows.set(run.name, row);
    return fill(row, run);
  }

  function compare(a, b) {
    const of = (run) => (state.sort.startsWith(".") ? field(run, columns.fields.indexOf(state.sort.slice(1))) : run[state.sort] ?? null);
    const [x, y] = [of(a), of(b)];
    if (x === null || y === null) return (x === null) - (y === null);
    const way = typeof x === "number" && typeof y === "number" ? x - y : naming.compare(String(x), String(y));
    return state.down ? -way : way;
  }

  const grouped = () => state.study === ALL && state.group && new Set([...runs.values()].map((run) => run.study)).size > 1;
  const headings = new Map(); // the rows that head the groups
  function heading(study, some) {
    if (!headings.has(study)) {
      headings.set(study, element("tr", { class: "group" }, element("th", { scope: "colgroup" },
        element("button", { type: "button", onclick: () => chooseStudy(study) }), " ", element("span", { class: "soft" }))));
    }
    const row = headings.get(study);
    row.firstChild.colSpan = all().length + 1;
    row.querySelector("button").textContent = study === "." ? "this directory" : study;
    row.querySelector("span").textContent = `${some.length.toLocaleString("en")} runs, best ood ${number(Math.max(...some.map((run) => run.ood ?? -Infinity)))}`.replace("-Infinity", "–");
    return row;
  }

  // The rows that match the filter, in order: the first ones, and more when the user scrolls down.
  const MANY = 60;
  let most = MANY;
  function arrange() {
    const byStudy = grouped();
    const visible = [...runs.values()].filter(shown).sort((a, b) => (byStudy && naming.compare(a.study, b.study)) || compare(a, b));
    const some = visible.slice(0, most);
    const now = some.flatMap((run, i) => (byStudy && run.study !== some[i - 1]?.study ? [heading(run.study, visible.filter((one) => one.study === run.study)), rowOf(run)] : [rowOf(run)]));
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
    const within = [...runs.values()].filter(inStudy).length;
    say("count", `${visible.length.toLocaleString("en")} of ${within.toLocaleString("en")} runs, ${state.picked.size.toLocaleString("en")} selected`);
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
    const every = state.picked.size > 60 && visible.length === state.picked.size && visible.every((run) => state.picked.has(run.name));
    writeAddress("runs", [
      ["q", state.filter || null], ["sort", state.sort === "name" ? null : state.sort], ["down", state.down ? "1" : null],
      ["each", state.means ? null : "1"], ["log", state.logarithmic ? "1" : null], ["smooth", state.smooth || null], ["steps", state.range?.join("-") ?? null],
      ["study", state.study], ["claim", claim], ["only", state.only ? "1" : null], ["flat", state.group ? null : "1"], ...[...state.hidden].map((name) => ["hide", name]),
      ["all", every ? "1" : null], ["none", state.picked.size ? null : "1"],
      ...(every || follows ? [] : [...state.picked].map((name) => ["run", name])),
    ]);
  }

  // Select the first runs of the study, and new ones as they appear, until the user selects others.
  let follows = false;
  function follow() {
    for (const run of runs.values()) if (inStudy(run) && state.picked.size < MANY_PICKED) state.picked.add(run.name);
  }

  function pick(name, on) {
    follows = false;
    if (on) state.picked.add(name);
    else state.picked.delete(name);
    rows.get(name)?.classList.toggle("picked", on);
    changed();
  }

  const question = () => ({ names: [...state.picked], means: state.means, smooth: state.smooth, logarithmic: state.logarithmic, range: state.range, hidden: state.hidden, parts: claim === null ? [] : claims.parts() });
  const difference = () => {
    const picked = [...state.picked].filter((name) => runs.has(name));
    return recombine.showDifference(picked, () => [...state.picked].join("\n") === picked.join("\n"));
  };
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

  // ---- the study, which the table, the curves and the claims show ---------------------------------------------------

  let claim = null; // the number of the claim whose curves are shown

  async function readColumns() {
    const { study } = state;
    const many = [...runs.values()].filter((run) => run.study === study).length;
    if (columns.study === study && columns.many === many) return;
    const found = study === ALL ? { fields: [], values: {} } : await ask("/api/columns", [["study", study]]);
    if (study !== state.study) return;
    const same = JSON.stringify(found.fields) === JSON.stringify(columns.fields);
    columns = { study, many, ...found };
    if (!same) head();
    refill();
    arrange();
  }

  function chooseStudy(study) {
    state.study = study;
    choose(null);
    follows = true;
    state.picked.clear();
    state.hidden.clear();
    state.range = null;
    byId("study").value = study;
    follow();
    fillOptions();
    rows.clear();
    arrangeAnew();
    changed();
    claims.show(study);
    readColumns().catch((error) => trouble(error.message));
  }

  // Show the curves and the criterion of a claim; of none, all curves.
  function choose(number) {
    claim = number;
    claims.choose(number);
    changed();
  }

  let begun = false; // a study is chosen once there are runs
  function studies() {
    const counts = new Map();
    const longest = new Map(); // training, in steps: a short study comes second
    for (const run of runs.values()) {
      counts.set(run.study, (counts.get(run.study) ?? 0) + 1);
      longest.set(run.study, Math.max(longest.get(run.study) ?? 0, run.step ?? 0));
    }
    const names = [...counts.keys()].sort();
    const select = byId("study");
    const swept = new Set(sweeps.map((sweep) => sweep.name)); // claims cannot be judged on the configurations of a sweep
    if ((!begun || state.study !== ALL) && !names.includes(state.study)) state.study = [...names].sort((a, b) => swept.has(a) - swept.has(b) || longest.get(b) - longest.get(a) || counts.get(b) - counts.get(a))[0] ?? ALL;
    begun = names.length > 0;
    const texts = [[ALL, `all studies (${runs.size.toLocaleString("en")} runs)`], ...names.map((name) => [name, `${name === "." ? "this directory" : name} (${counts.get(name).toLocaleString("en")})`])];
    if (JSON.stringify([...select.options].map((option) => [option.value, option.text])) !== JSON.stringify(texts)) {
      select.replaceChildren(...texts.map(([value, text]) => element("option", { value, text })));
    }
    select.value = state.study;
  }

  function fillOptions() {
    byId("filter").value = state.filter;
    byId("means").checked = state.means;
    byId("log-steps").checked = state.logarithmic;
    byId("smooth").value = state.smooth;
    byId("only").checked = state.only;
    byId("group").checked = state.group;
    byId("group-label").hidden = state.study !== ALL;
    byId("unzoom").hidden = state.range === null;
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
      state.means = !parameters.has("each");
      state.logarithmic = parameters.has("log");
      state.smooth = Math.min(0.95, Math.max(0, Number(parameters.get("smooth")) || 0));
      const range = (parameters.get("steps") ?? "").split("-").map(Number);
      state.range = range.length === 2 && range[0] < range[1] ? range : null;
      state.hidden = new Set(parameters.getAll("hide"));
      state.only = parameters.has("only");
      state.group = !parameters.has("flat");
      const named = new Set(parameters.getAll("run").map((name) => runs.get(name)?.study));
      state.study = parameters.get("study") ?? (named.size === 1 ? [...named][0] ?? ALL : ALL);
      begun = state.study === ALL && (parameters.has("study") || named.size > 1);
      studies();
      claim = Number(parameters.get("claim")) || null;
      claims.choose(claim);
      state.picked = new Set(parameters.has("all") ? [...runs.values()].filter(shown).map((run) => run.name) : parameters.getAll("run").filter((name) => runs.has(name)));
      follows = !state.picked.size && !parameters.has("none");
      if (follows) follow();
      fillOptions();
      head();
      arrangeAnew();
    },
    show: () => Promise.all([curves.show(question), difference(), claims.show(state.study), readColumns()]),
    redraw,
    choose,
    zoom(range) {
      state.range = range;
      fillOptions();
      changed();
    },
    hide(name) {
      if (!state.hidden.delete(name)) state.hidden.add(name);
      changed();
    },
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
      readColumns().catch((error) => trouble(error.message));
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
  byId("table").parentElement.addEventListener("scroll", ({ target }) => {
    if (target.scrollHeight - target.scrollTop - target.clientHeight > 600 || rows.size === 0) return;
    if (byId("table").querySelectorAll("tbody tr:not(.group)").length < most) return;
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
  const option = (id, act) => byId(id).addEventListener(byId(id).type === "range" ? "input" : "change", (event) => { act(event.target); changed(); });
  option("means", ({ checked }) => { state.means = checked; state.hidden.clear(); });
  option("log-steps", ({ checked }) => { state.logarithmic = checked; });
  option("smooth", ({ value }) => { state.smooth = Number(value); });
  option("only", ({ checked }) => { state.only = checked; });
  option("group", ({ checked }) => { state.group = checked; });
  byId("unzoom").addEventListener("click", () => recombine.runs.zoom(null));
  byId("study").addEventListener("change", (event) => chooseStudy(event.target.value));
})();
