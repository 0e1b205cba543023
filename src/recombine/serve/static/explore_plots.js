"use strict";
// Draws the explorer's plots of an answer. `names` are the labels of its models, `runs` the names of their runs.
(() => {
  const { byId, plot, unplot, number, theta, tone } = recombine;
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  let shown = []; // the models of the answer that is drawn
  const colors = () => recombine.modelColors(shown);
  const base = { $schema: "https://vega.github.io/schema/vega-lite/v6.json", width: "container", autosize: { type: "fit", contains: "padding" } };
  const modelColor = (names) => ({ field: "model", type: "nominal", scale: { domain: names, range: colors().slice(0, names.length) }, legend: { title: null } });

  function scatter({ answer, names, runs, about }) {
    const points = answer.models.flatMap((one, i) => one.y.map((y, j) => ({ query: j + 1, truth: answer.truth.y[j], predicted: y, model: names[i], run: runs[i] })));
    const all = points.flatMap(({ truth, predicted }) => [truth, predicted]);
    const scale = { zero: false, nice: true }; // both axes follow the diagonal, which spans all values
    const words = answer.models.map((one, i) => `${names[i]}: R² ${number(one.r2)}`).join("; ");
    return plot("scatter", {
      ...base, height: 280,
      layer: [
        { data: { name: "diagonal" }, mark: { type: "line", style: "reference", strokeDash: [4, 3] }, encoding: { x: { field: "at", type: "quantitative", scale }, y: { field: "at", type: "quantitative", scale } } },
        { data: { name: "points" }, mark: { type: "point", filled: true, size: 34, opacity: 0.65 },
          encoding: { x: { field: "truth", type: "quantitative", title: "true y", scale }, y: { field: "predicted", type: "quantitative", title: "predicted y", scale }, color: modelColor(names),
            shape: { field: "model", type: "nominal", scale: { domain: names }, legend: { title: null } },
            tooltip: [{ field: "model" }, { field: "truth", format: ".3f" }, { field: "predicted", format: ".3f" }] } },
      ],
    }, { points, diagonal: [{ at: Math.min(...all) }, { at: Math.max(...all) }] }, { rows: points, about, words: `${answer.truth.y.length} queries. ${words}` });
  }

  function slice({ answer, names, about }) {
    const lines = answer.models.flatMap((one, i) => one.slice.map((y, j) => ({ t: answer.slice.t[j], y, model: names[i] })));
    const truth = answer.truth.slice.map((y, j) => ({ t: answer.slice.t[j], y, model: "truth" }));
    const ticks = answer.slice.context.map((t, j) => ({ t, y: answer.context.y[j], model: "context, projected" }));
    const ends = (values) => [values[0], values[Math.floor(values.length / 2)], values.at(-1)].map((value) => number(value, 2)).join(", ");
    const words = [["the truth", answer.truth.slice], ...answer.models.map((one, i) => [names[i], one.slice])].map(([name, values]) => `${name}: ${ends(values)}`).join("; ");
    return plot("slice", {
      ...base, height: 280,
      layer: [
        { data: { name: "ticks" }, mark: { type: "tick", style: "reference", thickness: 1.5, size: 10, yOffset: -4 }, encoding: { x: { field: "t", type: "quantitative", title: "along the line" }, y: { value: "height" }, tooltip: [{ field: "y", title: "context example, y", format: ".3f" }] } },
        { data: { name: "truth" }, mark: { type: "line", strokeWidth: 5, color: color("--truth") }, encoding: { x: { field: "t", type: "quantitative" }, y: { field: "y", type: "quantitative", title: "y" } } },
        { data: { name: "lines" }, mark: { type: "line", strokeWidth: 2.2 }, encoding: { x: { field: "t", type: "quantitative" }, y: { field: "y", type: "quantitative" }, color: modelColor(names), strokeDash: { field: "model", type: "nominal", scale: { domain: names }, legend: { title: null } } } },
      ],
    }, { lines, truth, ticks }, { rows: [...truth, ...lines, ...ticks], about, words: `y at the line's start, middle and end. ${words}` });
  }

  function latent({ answer, names, runs, about }) {
    // A probe decodes the weights of its model's own modules. For another teacher there is nothing to compare.
    const comparable = answer.models.map((one) => one.kind !== "control" && one.decoded);
    if (!comparable.some(Boolean)) {
      return unplot("latent", answer.models.some((one) => one.decoded)
        ? "The latent weighs the modules of one teacher. These models were trained on another teacher, so there is nothing to compare."
        : "These models return no residual stream from which to decode the latent.");
    }
    const rows = answer.latent.map((value, i) => ({ module: i + 1, value, model: "truth", deviation: null }));
    comparable.forEach((decoded, i) => decoded && decoded.forEach((value, j) => rows.push({ module: j + 1, value, model: names[i], deviation: answer.models[i].deviation[j], run: runs[i] })));
    const bars = rows.map((row) => ({ ...row, low: row.value - row.deviation, high: row.value + row.deviation }));
    const domain = ["truth", ...names];
    const words = answer.latent.map((_, j) => `${theta(j)}: ${rows.filter((row) => row.module === j + 1).map((row) => `${row.model} ${number(row.value, 2)}`).join(", ")}`).join("; ");
    const x = { field: "module", type: "ordinal", title: null, axis: { labelAngle: 0, labelExpr: `${JSON.stringify(answer.latent.map((_, i) => theta(i)))}[datum.value - 1]` } };
    const xOffset = { field: "model", sort: domain };
    return plot("latent", {
      ...base, height: 250, data: { name: "bars" }, encoding: { x, xOffset },
      layer: [
        { mark: { type: "bar", cornerRadiusEnd: 2 },
          encoding: {
            y: { field: "value", type: "quantitative", title: "latent" },
            color: { field: "model", type: "nominal", scale: { domain, range: [color("--soft"), ...colors()] }, legend: { title: null } },
            tooltip: [{ field: "model" }, { field: "module" }, { field: "value", format: ".3f" }, { field: "deviation", title: "over queries ±", format: ".3f" }],
          } },
        { mark: { type: "rule", strokeWidth: 1.5, color: color("--ink") }, encoding: { y: { field: "low", type: "quantitative" }, y2: { field: "high" }, opacity: { condition: { test: "datum.deviation > 0.001", value: 1 }, value: 0 } } },
      ],
    }, { bars }, { rows, about, words });
  }

  function attention({ answer, names, runs, about }) {
    const cells = answer.models.flatMap((one, i) => (one.attention ?? []).flatMap((heads, layer) => heads.flatMap((weights, head) =>
      weights.map((weight, token) => ({ model: names[i], run: runs[i], layer: layer + 1, head: head + 1, token: token + 1, weight })))))
      .map((cell) => ({ ...cell, row: `${cell.model}, layer ${cell.layer}, head ${cell.head}` }));
    if (!cells.length) return unplot("attention", "These models return no attention weights.");
    const rows = [...new Set(cells.map((cell) => cell.row))];
    const most = rows.map((row) => cells.filter((cell) => cell.row === row).reduce((a, b) => (b.weight > a.weight ? b : a)));
    const words = most.map((cell) => `${cell.row}: most on token ${cell.token}, ${number(cell.weight, 2)}`).join("; ");
    // One small heat map per model and layer, all on one scale.
    const layers = [...new Set(cells.map((cell) => JSON.stringify([cell.model, cell.layer])))].map((text) => JSON.parse(text));
    const highest = Math.max(...cells.map((cell) => cell.weight));
    const heads = Math.max(...cells.map((cell) => cell.head));
    const map = ([model, layer], i) => ({
      title: { text: `${model}, layer ${layer}`, fontWeight: "normal", offset: 4 },
      width: Math.max(180, byId("attention").clientWidth - 120), height: heads * Math.max(8, Math.min(14, Math.round(60 / heads))),
      transform: [{ filter: { and: [{ field: "model", equal: model }, { field: "layer", equal: layer }] } }], mark: { type: "rect" },
      encoding: {
        x: { field: "token", type: "ordinal", title: i === layers.length - 1 ? "token; the last is read out" : null, axis: { labelAngle: 0, labelOverlap: true, labels: i === layers.length - 1, ticks: i === layers.length - 1 } },
        y: { field: "head", type: "ordinal", title: "head", axis: { labelFontSize: 10, labelOverlap: true } },
        color: { field: "weight", type: "quantitative", title: null, scale: { scheme: tone() === "dark" ? "viridis" : "blues", domain: [0, highest] }, legend: { orient: "right", gradientLength: 90, format: ".2f" } },
        tooltip: [{ field: "row" }, { field: "token" }, { field: "weight", format: ".3f" }],
      },
    });
    return plot("attention", { $schema: base.$schema, data: { name: "cells" }, vconcat: layers.map(map), spacing: 8 },
      { cells }, { rows: cells.map(({ row, ...cell }) => cell), about, words });
  }

  recombine.explorePlots = (drawn) => {
    shown = drawn.answer.models.map((one) => one.model);
    return Promise.all([scatter, slice, latent, attention].map((draw) => draw(drawn)));
  };
})();
