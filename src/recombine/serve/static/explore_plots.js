"use strict";
// Draws the explorer's plots of an answer. `names` are the labels of its models, `runs` the names of their runs.
// An answer is drawn in a few milliseconds, so that the plots move while a slider is dragged. A prediction that is not yet
// computed is null.
(() => {
  const { byId, plot, unplot, number, theta, svg, axes, ticks } = recombine;
  const [LEFT, RIGHT, TOP, BOTTOM] = [52, 12, 26, 40];
  const HEIGHT = 232; // four plots and the scores fit on a small screen
  const layout = (width) => ({ width, height: HEIGHT, margins: [LEFT, RIGHT, TOP, BOTTOM] });
  const MARKS = [(x, y) => `M${x - 3},${y}a3,3 0 1,0 6,0a3,3 0 1,0 -6,0Z`, (x, y) => `M${x - 2.7},${y - 2.7}h5.4v5.4h-5.4Z`]; // dots, squares
  const SHADES = 60;
  const DASHES = [null, "8 4"];
  let colors = [];

  // The ends of an axis stay while the values fit into them and fill at least half, so that plots do not jump.
  const kept = new Map();
  function endsOf(name, values) {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const [from, to] = kept.get(name) ?? [Infinity, -Infinity];
    if (low >= from && high <= to && high - low > 0.5 * (to - from)) return [from, to];
    const gap = 0.06 * (high - low || 1);
    kept.set(name, [low - gap, high + gap]);
    return kept.get(name);
  }

  const text = (x, y, content, more = {}) => svg("text", { x, y, fill: "var(--soft)", ...more }, content);
  const points = (xs, ys, x, y) => xs.map((at, i) => `${i ? "L" : "M"}${x(at).toFixed(1)},${y(ys[i]).toFixed(1)}`).join("");

  // The legend, above a plot: for each model its name and its mark. Long names are smaller, so that none is cut.
  function legend(picture, width, entries) {
    const room = (width - LEFT - 30 * entries.length) / entries.reduce((sum, [name]) => sum + name.length + 1, 0);
    const size = Math.max(7, Math.min(12, room / 0.55));
    let at = LEFT - 12;
    for (const [name, ...marks] of entries) {
      picture.append(svg("g", { transform: `translate(${at},12)` }, ...marks), text(at + 26, 16, name, { fill: "var(--ink)", "font-size": size.toFixed(1) }));
      at += 30 + 0.55 * size * (name.length + 1);
    }
  }

  // The marks are those of the drawing before, unless the models have other colours or there are other queries.
  const scattered = { key: "", plot: null };
  function marksOf(count) {
    const key = JSON.stringify([colors, count]);
    if (key !== scattered.key) Object.assign(scattered, { key, plot: explorable.scatter(colors.map((color, i) => ({ count, radius: 3.5, color, square: i > 0 }))) });
    return scattered.plot;
  }

  function scatter({ answer, names, runs, about }) {
    const truth = answer.truth.y;
    const rows = answer.models.flatMap((one, i) => one.y.map((y, j) => ({ query: j + 1, truth: truth[j], predicted: y, model: names[i], run: runs[i] }))).filter((row) => row.predicted !== null);
    const words = answer.models.map((one, i) => `${names[i]}: R² ${number(one.r2)}`).join("; ");
    plot("scatter", { height: HEIGHT, rows, about, words: `${truth.length} queries. ${words}`, draw(picture, width) {
      const marks = marksOf(truth.length);
      const ends = endsOf("scatter", rows.flatMap((row) => [row.truth, row.predicted]));
      const { x, y } = marks.draw({ ends, truth, predicted: answer.models.map((one) => one.y), ...layout(width), xTitle: "true y", yTitle: "predicted y" });
      picture.append(marks.node);
      legend(picture, width, names.map((name, i) => [name, svg("path", { d: MARKS[i](12, 0), fill: colors[i] })]));
      nearest(picture, rows.map((row) => [x(row.truth), y(row.predicted), `${row.model}: true ${number(row.truth)}, predicted ${number(row.predicted)}`]), width);
    } });
  }

  // Beside the pointer: what the nearest point says.
  function nearest(picture, marks, width) {
    const shown = text(width - RIGHT, HEIGHT - BOTTOM - 6, "", { "text-anchor": "end", fill: "var(--ink)", stroke: "var(--paper)", "stroke-width": 3, "paint-order": "stroke" });
    const ring = svg("circle", { r: 6, fill: "none", stroke: "var(--ink)", visibility: "hidden" });
    picture.append(ring, shown);
    picture.addEventListener("pointermove", (event) => {
      const box = picture.getBoundingClientRect();
      const [px, py] = [event.clientX - box.left, event.clientY - box.top];
      const [x, y, words] = marks.reduce((best, mark) => (Math.hypot(mark[0] - px, mark[1] - py) < Math.hypot(best[0] - px, best[1] - py) ? mark : best));
      const near = Math.hypot(x - px, y - py) < 30;
      shown.textContent = near ? words : "";
      for (const [name, value] of [["cx", x], ["cy", y], ["visibility", near ? "visible" : "hidden"]]) ring.setAttribute(name, value);
    });
    picture.addEventListener("pointerleave", () => { shown.textContent = ""; ring.setAttribute("visibility", "hidden"); });
  }

  function slice({ answer, names, about }) {
    const { t, context } = answer.slice;
    const lines = answer.models.flatMap((one, i) => one.slice.map((y, j) => ({ t: t[j], y, model: names[i] }))).filter((row) => row.y !== null);
    const truth = answer.truth.slice.map((y, j) => ({ t: t[j], y, model: "truth" }));
    const examples = context.map((at, j) => ({ t: at, y: answer.context.y[j], model: "context, projected" }));
    const three = (values) => [values[0], values[Math.floor(values.length / 2)], values.at(-1)].map((value) => number(value, 2)).join(", ");
    const words = [["the truth", answer.truth.slice], ...answer.models.map((one, i) => [names[i], one.slice])].map(([name, values]) => `${name}: ${three(values)}`).join("; ");
    plot("slice", { height: HEIGHT, rows: [...truth, ...lines, ...examples], about, words: `y at the line's start, middle and end. ${words}`, draw(picture, width) {
      const ys = endsOf("slice", [...answer.truth.slice, ...lines.map((row) => row.y)]);
      const { x, y, bottom } = axes(picture, { ...layout(width), xs: [t[0], t.at(-1)], ys, xTitle: "along the line", yTitle: "y" });
      context.forEach((at, j) => at >= t[0] && at <= t.at(-1) && picture.append(svg("path", { class: "example", "data-example": j + 1, d: `M${x(at)},${bottom}v-9`, stroke: "var(--soft)", "stroke-width": 1.5 })));
      picture.append(svg("path", { d: points(t, answer.truth.slice, x, y), stroke: "var(--edge)", "stroke-width": 5, fill: "none" }));
      answer.models.forEach((one, i) => picture.append(one.slice.includes(null) // a line through the few points that are known would be another function's
        ? svg("path", { d: one.slice.map((value, j) => (value === null ? "" : MARKS[i](Number(x(t[j]).toFixed(1)), Number(y(value).toFixed(1))))).join(""), fill: colors[i] })
        : svg("path", { d: points(t, one.slice, x, y), stroke: colors[i], "stroke-width": 2.2, "stroke-dasharray": DASHES[i], fill: "none" })));
      const piece = (color, thick, dash) => svg("path", { d: "M0,0h22", stroke: color, "stroke-width": thick, "stroke-dasharray": dash });
      legend(picture, width, [["truth", piece("var(--edge)", 5, null)], ...names.map((name, i) => [name, piece(colors[i], 2.2, DASHES[i])])]);
    } });
  }

  function latent({ answer, names, runs, about }) {
    // A probe decodes the weights of its model's own modules. For another teacher there is nothing to compare.
    const comparable = answer.models.map((one) => one.kind !== "control" && one.decoded);
    if (!comparable.some(Boolean)) {
      unplot("latent", answer.models.some((one) => one.decoded)
        ? "The latent weighs the modules of one teacher. These models were trained on another teacher, so there is nothing to compare."
        : "These models return no residual stream from which to decode the latent.");
      return;
    }
    const rows = answer.latent.map((value, i) => ({ module: i + 1, value, model: "truth", deviation: null }));
    comparable.forEach((decoded, i) => decoded && decoded.forEach((value, j) => rows.push({ module: j + 1, value, model: names[i], deviation: answer.models[i].deviation[j], run: runs[i] })));
    const words = answer.latent.map((_, j) => `${theta(j)}: ${rows.filter((row) => row.module === j + 1).map((row) => `${row.model} ${number(row.value, 2)}`).join(", ")}`).join("; ");
    plot("latent", { height: HEIGHT, rows, about, words, draw(picture, width) {
      const many = answer.latent.length;
      const ys = endsOf("latent", [0, 1, ...rows.flatMap(({ value, deviation }) => [value - (deviation ?? 0), value + (deviation ?? 0)])]);
      const { x, y, bottom } = axes(picture, { ...layout(width), xs: [0, many], ys, xTitle: "module", yTitle: "latent", xTicks: [] });
      const series = ["truth", ...names];
      const shades = ["var(--soft)", ...colors];
      const wide = Math.min(22, (x(1) - x(0) - 6) / series.length);
      answer.latent.forEach((_, j) => picture.append(text(x(j + 0.5), bottom + 15, theta(j), { "text-anchor": "middle", fill: "var(--ink)", "font-size": 14 })));
      for (const { module, value, model, deviation } of rows) {
        const rank = series.indexOf(model);
        const at = x(module - 0.5) + (rank - series.length / 2) * wide;
        picture.append(svg("path", { d: `M${at.toFixed(1)},${y(0).toFixed(1)}h${(wide - 1).toFixed(1)}V${y(value).toFixed(1)}h${(1 - wide).toFixed(1)}Z`, fill: shades[rank] }));
        if (deviation > 0.001) picture.append(svg("path", { d: `M${(at + wide / 2).toFixed(1)},${y(value - deviation).toFixed(1)}V${y(value + deviation).toFixed(1)}`, stroke: "var(--ink)", "stroke-width": 1.5 }));
      }
      picture.append(svg("path", { d: `M${LEFT},${y(0)}H${width - RIGHT}`, stroke: "var(--soft)" }));
      legend(picture, width, series.map((name, i) => [name, svg("path", { d: "M6,-6h12v12h-12Z", fill: shades[i] })]));
    } });
  }

  // One small heat map per model and layer, all on one scale. A column that is pointed at marks its example elsewhere.
  // Replacing a latent does not change the attention, so the maps are drawn again only for another task.
  let attended = [];
  function attention({ answer, names, runs, about }) {
    const given = answer.models.map((one) => one.attention);
    if (given.length === attended.length && given.every((one, i) => one === attended[i])) return;
    attended = given;
    const rows = answer.models.flatMap((one, i) => (one.attention ?? []).flatMap((heads, layer) => heads.flatMap((weights, head) =>
      weights.map((weight, token) => ({ model: names[i], run: runs[i], layer: layer + 1, head: head + 1, token: token + 1, weight })))));
    if (!rows.length) {
      unplot("attention", "These models return no attention weights.");
      return;
    }
    const maps = answer.models.flatMap((one, i) => (one.attention ?? []).map((heads, layer) => ({ name: `${names[i]}, layer ${layer + 1}`, heads })));
    const highest = Math.max(...rows.map((row) => row.weight));
    const words = maps.flatMap(({ name, heads }) => heads.map((weights, head) => `${name}, head ${head + 1}: most on token ${weights.indexOf(Math.max(...weights)) + 1}, ${number(Math.max(...weights), 2)}`)).join("; ");
    const many = Math.max(...maps.map(({ heads }) => heads.length));
    const cell = Math.max(6, Math.min(14, Math.floor((HEIGHT - 40) / maps.length / many - 22 / many)));
    const down = many * cell + 22;
    plot("attention", { height: Math.max(HEIGHT, maps.length * down + 32), rows, about, words, draw(picture, width) {
      const tokens = maps[0].heads[0].length;
      const across = (width - LEFT - RIGHT - 52) / tokens;
      const ink = "var(--link)";
      const shades = Array(SHADES + 1).fill(""); // one path for all cells of a shade: hundreds of elements would be slow to draw
      const marked = svg("rect", { fill: "none", stroke: "var(--ink)", "stroke-width": 1.5, visibility: "hidden" });
      maps.forEach(({ name, heads }, k) => {
        picture.append(text(LEFT, k * down + 14, name, { fill: "var(--ink)" }), text(LEFT - 6, k * down + 20 + (many * cell) / 2 + 4, many > 1 ? `${heads.length} heads` : "head", { "text-anchor": "end", "font-size": 10 }));
        heads.forEach((weights, head) => weights.forEach((weight, token) => {
          shades[Math.round((SHADES * weight) / highest)] += `M${(LEFT + token * across).toFixed(1)},${k * down + 20 + head * cell}h${(across - 0.5).toFixed(1)}v${cell - 0.5}h-${(across - 0.5).toFixed(1)}Z`;
        }));
      });
      shades.forEach((d, i) => d && picture.append(svg("path", { d, fill: ink, "fill-opacity": (0.03 + (0.97 * i) / SHADES).toFixed(3) })));
      const bottom = maps.length * down;
      for (const token of [1, ...ticks(1, tokens, 6).filter((at) => at > 2 && at < tokens - tokens / 12), tokens]) picture.append(text(LEFT + (token - 0.5) * across, bottom + 8, token, { "text-anchor": "middle" }));
      picture.append(text(LEFT + (tokens * across) / 2, bottom + 26, "token; the last is read out", { "text-anchor": "middle" }));
      const bar = width - RIGHT - 34;
      for (let i = 0; i < 20; i += 1) picture.append(svg("path", { d: `M${bar},${20 + i * 5}h12v5h-12Z`, fill: ink, "fill-opacity": 0.03 + (0.97 * (19 - i)) / 19 }));
      picture.append(text(bar + 15, 28, number(highest, 2)), text(bar + 15, 120, "0"), marked);
      const read = text(LEFT, bottom + 26, "", { fill: "var(--ink)" });
      picture.append(read);
      const mark = (token) => {
        document.querySelectorAll("#slice .example").forEach((one) => {
          const on = Number(one.dataset.example) === token;
          one.setAttribute("stroke", `var(${on ? "--ink" : "--soft"})`);
          one.setAttribute("stroke-width", on ? 5 : 1.5);
        });
        marked.setAttribute("visibility", token ? "visible" : "hidden");
        read.textContent = token ? (token < tokens ? `example ${token}: y ${number(answer.context.y[token - 1], 2)}` : "the query") : "";
        if (token) for (const [name, value] of [["x", LEFT + (token - 1) * across - 0.5], ["y", 17], ["width", across], ["height", bottom - 20]]) marked.setAttribute(name, value);
      };
      picture.addEventListener("pointermove", (event) => {
        const token = Math.floor((event.clientX - picture.getBoundingClientRect().left - LEFT) / across) + 1;
        mark(token >= 1 && token <= tokens ? token : 0);
      });
      picture.addEventListener("pointerleave", () => mark(0));
    } });
  }

  recombine.explorePlots = (drawn) => {
    colors = recombine.modelColors(drawn.answer.models.map((one) => one.model));
    for (const draw of [scatter, slice, latent, attention]) draw(drawn);
  };

  // Plots are as wide as the page lets them.
  let last = null;
  const draw = recombine.explorePlots;
  recombine.explorePlots = (given) => { last = given; draw(given); };
  let width = 0;
  new ResizeObserver(() => {
    const now = byId("scatter").clientWidth;
    if (last && now && now !== width) {
      attended = [];
      draw(last);
    }
    width = now;
  }).observe(byId("scatter"));
})();
