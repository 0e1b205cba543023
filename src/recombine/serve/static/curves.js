"use strict";
// Training curves of the selected runs, or their means over seeds; and the list of lines, which reads their values.
recombine.curves = (() => {
  const { byId, element, ask, say, shared, colorOf, number, download, downloadPicture, csv, svg } = recombine;
  const PANELS = [
    ["ood", "held-out masks (ood)", "ood"], ["novel", "novel part (ood)", "novel"], ["in_dist", "trained masks (in_dist)", "in_dist"],
    ["probe", "linear probe (ood)", "probe"], ["control", "control: a fresh teacher", "control"], ["loss", "training loss", "loss"],
  ];
  const MODULES = ["control_modules", "control: fresh modules", "control"];
  const DASHES = [null, "7 3", "2 3", "9 3 2 3", "4 4"];
  const FEW_LINES = 8; // up to this many, lines are distinguished by symbols
  const known = new Map(); // curves by run, until it has measured more

  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const value = (metric, some) => (metric === "loss" && typeof some === "number" ? some.toPrecision(3) : number(some));

  // Student's t: sent by the server for few seeds, approximated from the normal distribution for many.
  function quantile(count) {
    const z = shared.quantiles.normal;
    return shared.quantiles[count] ?? z + (z ** 3 + z) / (4 * (count - 1));
  }

  // Like `band` in statistics.py: no interval for one seed, the range for two, a t-interval of the mean for more.
  function interval(values) {
    if (values.length < 2) return [null, null];
    if (values.length === 2) return [Math.min(...values), Math.max(...values)];
    const center = mean(values);
    const variance = values.reduce((sum, one) => sum + (one - center) ** 2, 0) / (values.length - 1);
    const half = quantile(values.length) * Math.sqrt(variance / values.length);
    return [center - half, center + half];
  }

  async function read(names, means, isWanted) {
    const points = names.length <= 64 ? 300 : names.length <= 300 || means ? 64 : 20;
    const stamp = (name) => JSON.stringify([recombine.runs.all.get(name)?.measured, points]);
    const missing = names.filter((name) => known.get(name)?.stamp !== stamp(name));
    const many = missing.length > 100;
    const asked = [...PANELS, MODULES].map(([metric]) => ["metric", metric]);
    while (missing.length && isWanted()) { // the length of an address is limited
      if (many) say("reading", `reading: ${missing.length.toLocaleString("en")} to go`);
      const some = missing.splice(0, 1);
      for (let length = 0; missing.length && some.length < 100 && length < 8000; length += 5 + encodeURIComponent(some.at(-1)).length) some.push(missing.shift());
      const stamps = new Map(some.map((name) => [name, stamp(name)]));
      const found = await ask("/api/curves", [...asked, ["points", points], ...some.map((name) => ["run", name])]);
      for (const [name, curve] of Object.entries(found)) known.set(name, { ...curve, stamp: stamps.get(name) });
    }
    if (many) say("reading", "");
  }

  // The lines to draw: the runs of each, with their values.
  function gathered(names, { means, smooth }) {
    const lines = new Map();
    const labels = new Set();
    for (const name of names) {
      const run = recombine.runs.all.get(name);
      const curve = known.get(name);
      if (!run || !curve) continue;
      const of = means ? `${run.study} ${run.configuration}` : name; // means are over the seeds of one configuration
      if (!lines.has(of)) {
        const short = means ? name.replace(/-seed\d+$/, "") : name;
        const line = labels.has(short) ? name : short; // two configurations may have the same short name
        labels.add(line);
        lines.set(of, { name: line, model: run.model, support: run.support, curves: [] });
      }
      lines.get(of).curves.push(curve);
    }
    return [...lines.values()].map(({ curves, ...line }) => ({ ...line, seeds: curves.length,
      points: Object.fromEntries([...PANELS, MODULES].map(([metric]) => [metric, smoothed(pointsOf(curves, metric), smooth)])) }))
      .filter((line) => Object.values(line.points).some((points) => points.length));
  }

  function pointsOf(curves, metric) {
    const steps = new Map();
    const ends = curves.map((curve) => {
      let end = -1;
      curve.steps.forEach((step, i) => {
        const one = curve.values[metric]?.[i] ?? null;
        if (one === null || (metric === "loss" && one <= 0)) return;
        if (!steps.has(step)) steps.set(step, []);
        steps.get(step).push(one);
        end = step;
      });
      return end;
    });
    const points = [];
    for (const [step, values] of [...steps].sort(([a], [b]) => a - b)) {
      // Longer curves are thinned more. A mean is drawn only where all runs that reached the step have a value.
      if (values.length < ends.filter((end) => end >= step).length) continue;
      const [low, high] = interval(values);
      points.push({ step, mean: mean(values), low, high, seeds: values.length });
    }
    return points;
  }

  // An exponential moving average over the points after the start. Intervals and readings stay as measured.
  function smoothed(points, weight) {
    let [sum, total] = [0, 0];
    return points.map((point) => {
      if (!weight || !point.step) return { ...point, shown: point.mean };
      [sum, total] = [weight * sum + (1 - weight) * point.mean, weight * total + 1 - weight];
      return { ...point, shown: sum / total };
    });
  }

  // Each line gets the colour of its model, the dashes of its support, and a symbol if these do not tell it apart.
  function styled(lines) {
    const supports = [...new Set(lines.map((line) => line.support))].sort();
    const kinds = new Set(lines.map((line) => JSON.stringify([line.model, line.support])));
    const alike = kinds.size < lines.length && lines.length <= FEW_LINES;
    return lines.map((line, i) => ({ ...line, color: colorOf(line.model), dash: DASHES[Math.max(0, supports.indexOf(line.support)) % DASHES.length], symbol: alike ? i : null }));
  }

  const panel = (metric, title) => ({ metric, title: metric === "loss" ? title : `R², ${title}`, short: metric === "loss" ? "loss" : `R² ${metric.replace("_modules", "")}`, log: metric === "loss", marks: [] });
  const listed = (some, text) => some.slice(0, 12).map(text).join("; ") + (some.length > 12 ? `; and ${some.length - 12} more` : "");
  const at = (line, metric, step) => (step === null ? line.points[metric].at(-1) : line.points[metric].find((point) => point.step === step));

  // ---- the view of runs --------------------------------------------------------------------------------------------

  let shown = { lines: [], panels: [] };
  const plots = recombine.multiples(byId("curves"), { onread: tell, onzoom: (range) => recombine.runs.zoom(range) });

  // Draw one plot at a time. If a newer one was requested meanwhile, it is drawn next; every drawing is finished.
  let turn = 0; // counts requests, so that answers to outdated ones are ignored
  let wanted = null; // a function that returns the next request to draw
  let underWay = null;
  function show(question) {
    wanted = question;
    underWay ??= (async () => {
      try {
        while (wanted) {
          const now = wanted;
          wanted = null;
          await draw(now());
        }
      } finally {
        underWay = null;
        if (wanted) setTimeout(() => wanted && show(wanted).catch(() => {}), 1000); // retry what was requested during a failure
      }
    })();
    return underWay;
  }

  async function draw(question) {
    const mine = turn;
    const names = question.names.filter((name) => recombine.runs.all.has(name));
    await read(names, question.means, () => turn === mine);
    if (turn !== mine) return; // a newer plot has been requested
    const { hidden, parts, range, logarithmic } = question;
    const all = styled(gathered(names, question));
    say("below", "");
    shown = { lines: all, panels: [] };
    if (!all.length) {
      plots.clear(names.length ? "Nothing has been measured yet." : "Select runs to see their curves.");
      list(question);
      return;
    }
    const judged = parts.filter((part) => part.metric && part.first);
    const five = PANELS.filter(([metric]) => metric !== "control" || !judged.some((part) => part.metric === "control_modules"));
    const possible = five.length < PANELS.length ? [...five.slice(0, -1), MODULES, five.at(-1)] : PANELS;
    const panels = measured(possible, all).map(([metric, title]) => {
      const about = judged.filter((part) => part.metric === metric);
      return { ...panel(metric, title), dim: judged.length > 0 && !about.length,
        marks: about.filter((part) => typeof part.line === "number").map((part) => ({ at: part.line, color: colorOf(part.model), text: `${part.model} ${part.sign} ${number(part.line, 2)}` })) };
    });
    const concerned = (line) => !judged.length || judged.some((part) => part.model === line.model && part.support === line.support);
    const lines = all.filter((line) => !hidden.has(line.name)).map((line) => ({ ...line, faint: !concerned(line) }));
    shown = { lines: all, panels };
    list(question);
    const lows = plots.draw({ panels, lines, range, logarithmic, words: `Curves over training. Latest values: ${listed(lines, (line) => `${line.name}: ${panels.map(({ metric }) => `${metric} ${value(metric, at(line, metric, null)?.mean)}`).join(", ")}`)}` });
    const end = (line, metric) => line.points[metric].at(-1)?.mean;
    const sunk = lines.flatMap((line) => [...lows].filter(([metric, low]) => end(line, metric) < low).map(([metric]) => `${line.name} ${value(metric, end(line, metric))} (${metric})`));
    const missing = possible.filter(([metric]) => !panels.some((one) => one.metric === metric));
    say("below", [...(missing.length ? [`Not measured by these runs: ${listed(missing, ([, title]) => title)}.`] : []), ...(sunk.length ? [`Below the plot at the end: ${listed(sunk, (text) => text)}`] : [])].join(" "));
    byId("curves").dataset.drawn = String(Number(byId("curves").dataset.drawn ?? 0) + 1);
  }

  // The panels for which some line has a value: an empty plot would only take room.
  const measured = (panels, lines) => panels.filter(([metric]) => lines.some((line) => line.points[metric].length));

  // The part of the names that all lines share, up to a separator: it is not repeated in the list.
  function commonStart(names) {
    let start = names.length > 1 ? names[0] : "";
    while (!names.every((name) => name.startsWith(start))) start = start.slice(0, -1);
    return start.replace(/[^/,-]*$/, "");
  }

  // The list of lines: a button that shows or hides each, and the values under the pointer or at the end.
  function list({ hidden }) {
    const { lines, panels } = shown;
    const titles = new Map([...PANELS, MODULES].map(([metric, , short]) => [metric, short]));
    byId("lines").hidden = !lines.length;
    const start = commonStart(lines.map((line) => line.name)).length;
    byId("lines").tHead.rows[0].replaceChildren(element("th", { scope: "col", text: "line" }), element("th", { scope: "col", class: "number", text: "seeds" }),
      ...panels.map(({ metric }) => element("th", { scope: "col", class: "number", text: titles.get(metric) })));
    byId("lines").tBodies[0].replaceChildren(...lines.map((line) => element("tr", {},
      element("th", { scope: "row" }, element("button", { type: "button", class: "line", "aria-pressed": !hidden.has(line.name), title: `Show or hide ${line.name}`, onclick: () => recombine.runs.hide(line.name) }, key(line), element("bdi", { text: line.name.slice(start) }))),
      element("td", { class: "number", text: line.seeds }), ...panels.map(() => element("td", { class: "number" })))));
    tell(null);
  }

  // A piece of the line, as in the plots.
  function key({ color, dash, symbol }) {
    const piece = svg("svg", { width: 34, height: 12, "aria-hidden": "true" }, svg("line", { x1: 1, x2: 33, y1: 6, y2: 6, stroke: color, "stroke-width": 2.5, "stroke-dasharray": dash }));
    if (symbol !== null) piece.append(svg("path", { d: plots.shape(symbol), transform: "translate(17,6)", fill: color, stroke: color }));
    return piece;
  }

  function tell(step) {
    const { lines, panels } = shown;
    say("at-step", step === null ? "Values at the end of each line." : `Values at step ${step.toLocaleString("en")}, as measured.`);
    [...byId("lines").tBodies[0].rows].forEach((row, i) => panels.forEach(({ metric }, j) => {
      const found = at(lines[i], metric, step);
      const text = value(metric, found?.mean) + (found && found.seeds < lines[i].seeds ? ` (${found.seeds})` : ""); // measured on fewer seeds
      if (row.cells[j + 2].textContent !== text) row.cells[j + 2].textContent = text;
    }));
  }

  byId("save-curves-svg").addEventListener("click", () => plots.svg() && downloadPicture("curves.svg", plots.svg()));
  byId("save-curves-csv").addEventListener("click", () => download("curves.csv", "text/csv", csv(shown.lines.flatMap(({ name, model, support, points }) =>
    shown.panels.flatMap(({ metric }) => points[metric].map((point) => ({ metric, runs: name, model, support, step: point.step, mean: point.mean, low: point.low, high: point.high, seeds: point.seeds })))))));

  // The curves of one run, for its page.
  async function showOne(name, place, isCurrent) {
    await read([name], false, isCurrent);
    if (!isCurrent()) return;
    const lines = styled(gathered([name], { means: false, smooth: 0 }));
    const inside = element("div", { id: "run-plots" });
    place.replaceChildren(inside);
    if (!lines.length) return;
    const panels = measured(PANELS, lines).map(([metric, title]) => panel(metric, title));
    const reading = (step) => say("run-at", step === null ? "" : `step ${step.toLocaleString("en")}: ${panels.map(({ metric }) => `${metric} ${value(metric, at(lines[0], metric, step)?.mean)}`).join(", ")}`);
    recombine.multiples(inside, { onread: reading, onzoom: () => {} }).draw({ panels, lines, range: null, logarithmic: false, words: `Curves of ${name} over training` });
  }

  return { show, showOne, abandon() { turn += 1; }, forget: (name) => known.delete(name) };
})();
