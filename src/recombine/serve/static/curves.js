"use strict";
// Training curves of the selected runs, or their means over seeds.
recombine.curves = (() => {
  const { byId, ask, say, shared, colorOf, plot, unplot, number } = recombine;
  const FEW_POINTS = 4000; // up to this many, the pointer finds the nearest point
  const FEW_LINES = 8; // up to this many, lines are distinguished by symbols
  const SYMBOLS = 8; // per line
  const known = new Map(); // curves by run, until it has measured more

  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

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
    const variance = values.reduce((sum, value) => sum + (value - center) ** 2, 0) / (values.length - 1);
    const half = quantile(values.length) * Math.sqrt(variance / values.length);
    return [center - half, center + half];
  }

  // The lower end of the axis: a little below all but the lowest 5 % of the values, since runs start at low scores.
  function lowest(points) {
    const begun = points.filter((point) => point.step > 0);
    const sorted = (begun.length ? begun : points).map((point) => point.mean).sort((a, b) => a - b);
    return Math.min(0.9, Math.floor(10 * (sorted[Math.floor(sorted.length / 20)] ?? 0) - 0.5) / 10);
  }

  const narrow = () => byId("curves").clientWidth < 480;
  // In a tooltip of the nearest point, Vega-Lite shows a field only if it has a format, even text: hence `toString`.
  const near = { name: "near", select: { type: "point", on: "pointermove", nearest: true, clear: "pointerout", fields: ["runs", "step"] } };

  // `alike`: the names of lines that colour and dashes do not distinguish.
  function specification({ models, supports, metric, intervals, few, low, alike }) {
    const legend = { title: null, ...(narrow() ? { columns: 1 } : {}) };
    const below = { ...legend, orient: "bottom" };
    const keys = (supports > 1 ? 40 : 0) + 19 * alike.length + (narrow() ? 18 * (models.length + supports) : 0);
    const scale = metric === "loss" ? { type: "log" } : { domain: [low, 1], nice: false, zero: false }; // for every layer, because an area would include 0
    const y = { field: "mean", type: "quantitative", scale };
    return {
      $schema: "https://vega.github.io/schema/vega-lite/v6.json",
      width: "container", height: 300 + keys, autosize: { type: "fit", contains: "padding" },
      encoding: {
        x: { field: "step", type: "quantitative", title: "step", axis: { labelExpr: "datum.value ? format(datum.value, '~s') : '0'", tickCount: 6 } },
        color: { field: "model", type: "nominal", scale: { domain: models, range: models.map(colorOf) }, legend: { ...legend, symbolType: "stroke", symbolOpacity: 1 } },
        detail: { field: "runs" },
      },
      layer: [
        ...(intervals ? [{ data: { name: "points" }, transform: [{ filter: "datum.step > 0" }], mark: { type: "area", opacity: 0.18, clip: true }, encoding: { y: { field: "from", type: "quantitative", scale }, y2: { field: "to" } } }] : []),
        { data: { name: "points" }, mark: { type: "line", strokeWidth: few ? 2 : 1, opacity: few ? 1 : 0.5, clip: true, tooltip: few ? null : { content: "encoding" } },
          encoding: { ...(few ? {} : { tooltip: [{ field: "runs" }] }), strokeDash: { field: "support", type: "nominal", legend: supports > 1 ? below : null },
            y: { ...y, title: metric === "loss" ? "loss" : "R²" } } },
        ...(alike.length ? [{ data: { name: "symbols" }, mark: { type: "point", filled: true, size: 55, opacity: 1 },
          encoding: { y, shape: { field: "runs", type: "nominal", scale: { domain: alike }, legend: { ...below, columns: 1, labelLimit: Math.max(120, byId("curves").clientWidth - 60) } } } }] : []),
        ...(few ? [{ data: { name: "points" }, params: [near], mark: { type: "point", filled: true, size: 60 },
          encoding: { y, opacity: { condition: { param: "near", empty: false, value: 1 }, value: 0 },
            tooltip: [{ field: "runs", format: "s", formatType: "toString" }, { field: "step", format: "," }, { field: "mean", format: ".4f" }, { field: "seeds", title: "seeds", format: "," }] } }] : []),
      ],
    };
  }

  async function read(names, { metric, means }, isWanted) {
    const points = names.length <= 64 ? 300 : names.length <= 300 || means ? 64 : 20;
    const stamp = (name) => JSON.stringify([recombine.runs.all.get(name)?.measured, metric, points]);
    const missing = names.filter((name) => known.get(name)?.stamp !== stamp(name));
    const many = missing.length > 100;
    while (missing.length && isWanted()) { // the length of an address is limited
      if (many) say("reading", `reading: ${missing.length.toLocaleString("en")} to go`);
      const some = missing.splice(0, 1);
      for (let length = 0; missing.length && some.length < 100 && length < 8000; length += 5 + encodeURIComponent(some.at(-1)).length) some.push(missing.shift());
      const stamps = new Map(some.map((name) => [name, stamp(name)]));
      const found = await ask("/api/curves", [["metric", metric], ["points", points], ...some.map((name) => ["run", name])]);
      for (const [name, curve] of Object.entries(found)) known.set(name, { ...curve, stamp: stamps.get(name) });
    }
    say("reading", "");
  }

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

  // The lines to draw: the runs of each, and their values at each step.
  function gathered(names, { metric, means }) {
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
    return [...lines.values()];
  }

  function pointsOf({ line, model, support, ends, steps }) {
    const points = [];
    for (const [step, values] of [...steps].sort(([a], [b]) => a - b)) {
      // Longer curves are thinned more. A mean is drawn only where all runs that reached the step have a value.
      if (values.length < ends.filter((end) => end >= step).length) continue;
      const [low, high] = interval(values);
      points.push({ runs: line, model, support, step, mean: mean(values), low, high, seeds: values.length });
    }
    return points;
  }

  const listed = (some, text) => some.slice(0, 12).map(text).join("; ") + (some.length > 12 ? `; and ${some.length - 12} more` : "");

  async function draw(question) {
    const mine = turn;
    const { metric } = question;
    const names = question.names.filter((name) => recombine.runs.all.has(name));
    await read(names, question, () => turn === mine);
    if (turn !== mine) return undefined; // a newer plot has been requested
    const lines = gathered(names, question).map((line) => ({ ...line, points: pointsOf(line) })).filter((line) => line.points.length);
    const points = lines.flatMap((line) => line.points);
    say("below", "");
    if (!points.length) return unplot("curves", names.length ? "Nothing has been measured yet." : "Select runs to see their curves.");
    // Points below the plot are left out, so a line starts where it enters. Drawn at the edge, they would mislead.
    const low = metric === "loss" ? Math.min(...points.map((point) => point.mean)) / 2 : lowest(points);
    const within = (value) => Math.max(low, metric === "loss" ? value : Math.min(1, value));
    const inside = points.filter((point) => point.mean >= low)
      .map((point) => ({ ...point, from: within(point.low ?? point.mean), to: within(point.high ?? point.mean) }));
    const last = (line) => `${line.line} ${number(line.points.at(-1).mean, metric === "loss" ? 5 : 3)}`;
    const sunk = lines.filter((line) => line.points.at(-1).mean < low);
    if (sunk.length) say("below", `Below the plot at the end: ${listed(sunk, last)}`);
    const kinds = new Set(lines.map((line) => JSON.stringify([line.model, line.support])));
    const alike = kinds.size < lines.length && lines.length <= FEW_LINES ? lines.map((line) => line.line) : [];
    const symbols = alike.length ? lines.flatMap((line) => {
      const some = inside.filter((point) => point.runs === line.line);
      return some.filter((_, i) => (some.length - 1 - i) % Math.ceil(some.length / SYMBOLS) === 0);
    }) : [];
    const spec = specification({
      models: [...new Set(points.map((point) => point.model))].sort(), supports: new Set(points.map((point) => point.support)).size,
      metric, intervals: points.some((point) => point.low !== null), few: points.length <= FEW_POINTS, low, alike,
    });
    const words = `Latest values: ${listed(lines, (line) => `${last(line)} at step ${line.points.at(-1).step.toLocaleString("en")}`)}`;
    return plot("curves", spec, alike.length ? { points: inside, symbols } : { points: inside }, { rows: points, about: metric, words });
  }

  return { show, abandon() { turn += 1; }, forget: (name) => known.delete(name) };
})();
