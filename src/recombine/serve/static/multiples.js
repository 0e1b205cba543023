"use strict";
// Small multiples: one plot per quantity, all over the same steps. A rule under the pointer reads all lines in all
// plots, and a drag zooms into a range of steps.
//
// recombine.multiples(place, { onread, onzoom }) returns { draw, point }. `draw` takes
//   panels  [{ metric, title, short, log, dim, marks }]   marks: [{ at, text, color }], horizontal lines
//   lines   [{ name, color, dash, symbol, faint, points: { metric: [{ step, mean, low, high, shown }] } }]
//   range   the steps of the axis, or null for all;  logarithmic: whether the axis of steps is
recombine.multiples = (() => {
  const { element, svg: make, ticks } = recombine;
  const [LEFT, RIGHT, TOP, BOTTOM, GAP] = [40, 10, 26, 22, 10];
  const SYMBOLS = 6; // per line
  const SHAPES = ["M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0Z", "M-3.5,-3.5H3.5V3.5H-3.5Z", "M0,-4.5L4.5,3.5H-4.5Z", "M0,-5L4,0L0,5L-4,0Z",
    "M0,4.5L4.5,-3.5H-4.5Z", "M-5,-1.5H-1.5V-5H1.5V-1.5H5V1.5H1.5V5H-1.5V1.5H-5Z", "M-4,-4L4,4M4,-4L-4,4", "M-5,0H5M0,-5V5"];
  const place = (value) => value.toFixed(1);

  function powers(low, high) {
    if (!(low > 0)) return [];
    const found = [];
    for (let k = Math.ceil(Math.log10(low) - 1e-9); 10 ** k <= high * 1.0001; k += 1) found.push(10 ** k);
    return found.length > 1 ? found : [low, high];
  }
  const short = (value) => (value === 0 ? "0" : Math.abs(value) >= 1e6 ? `${value / 1e6}M` : Math.abs(value) >= 1000 ? `${Number((value / 1000).toPrecision(3))}k` : String(value).replace("-", "−"));
  const tiny = (value) => (value >= 0.001 ? String(Number(value.toPrecision(2))) : value.toExponential(0).replace("e-", "e−"));

  // The ends of a plot's axis: for R², a little below all but the lowest 5 % of the values, because runs start low.
  function ends(panel, points, levels) {
    const begun = points.filter((point) => point.step > 0);
    const values = (begun.length ? begun : points).map((point) => point.mean);
    if (panel.log) return [Math.min(...values, ...levels) / 1.25, Math.max(...values, ...levels) * 1.25];
    const sorted = [...values].sort((a, b) => a - b);
    const most = Math.max(...values, ...levels);
    const least = Math.min(sorted[Math.floor(sorted.length / 20)], ...levels);
    const low = Math.min(0.9, Math.floor(10 * least - 0.5) / 10);
    return [low, most > 0.6 ? Math.max(1, most) : Math.max(low + 0.2, Math.ceil(10 * most + 0.5) / 10)];
  }

  return (where, { onread, onzoom }) => {
    let now = null; // the drawing: scales and elements, for the rule
    let given = null;

    function draw(question) {
      given = question;
      const { panels, lines, range, logarithmic, words } = question;
      const steps = [...new Set(lines.flatMap((line) => Object.values(line.points).flat().map((point) => point.step)))].filter((step) => step > 0 || !logarithmic).sort((a, b) => a - b);
      const width = Math.max(280, where.clientWidth);
      const columns = width >= 720 ? 3 : width >= 330 ? 2 : 1;
      const across = Math.floor((width - GAP * (columns - 1)) / columns);
      const down = columns === 3 ? 182 : 164;
      const [from, last] = range ?? [steps[0] ?? 0, steps.at(-1) ?? 1];
      const first = logarithmic ? Math.max(from, steps[0] ?? 1) : from; // a logarithmic axis has no 0
      const bend = logarithmic ? (step) => Math.log(Math.max(step, 0.5)) : (step) => step;
      const inner = across - LEFT - RIGHT;
      const x = (step) => LEFT + (inner * (bend(step) - bend(first))) / (bend(last) - bend(first) || 1);
      const rows = Math.ceil(panels.length / columns);
      const [ink, soft, rule, ground] = ["var(--ink)", "var(--soft)", "var(--line)", "var(--paper)"];
      const svg = make("svg", { xmlns: "http://www.w3.org/2000/svg", width, height: rows * down, viewBox: `0 0 ${width} ${rows * down}`, "font-family": "Helvetica, Arial, sans-serif", "font-size": 12, role: "img", "aria-label": words, tabindex: 0 });
      svg.append(make("rect", { width, height: rows * down, fill: ground }));
      const plots = panels.map((panel, i) => {
        const g = make("g", { transform: `translate(${(i % columns) * (across + GAP)},${Math.floor(i / columns) * down})`, "data-metric": panel.metric, class: panel.marks.length ? "judged" : "", opacity: panel.dim ? 0.35 : 1 });
        g.append(make("text", { x: LEFT, y: 15, fill: ink, "font-weight": 700 }, across < 230 ? panel.short : panel.title));
        const inside = (points) => points.filter(({ step }) => step >= first && step <= last);
        const points = lines.flatMap((line) => inside(line.points[panel.metric] ?? [])).filter((point) => !panel.log || point.mean > 0);
        const [height, bottom] = [down - TOP - BOTTOM, down - BOTTOM];
        if (!points.length) {
          g.append(make("text", { x: LEFT, y: TOP + 24, fill: soft }, "not measured"));
          svg.append(g);
          return null;
        }
        const [low, high] = ends(panel, points, panel.marks.map((mark) => mark.at));
        const level = panel.log ? Math.log : (value) => value;
        const y = (value) => bottom - (height * (level(value) - level(low))) / (level(high) - level(low));
        for (const at of panel.log ? powers(low, high) : ticks(low, high, 4)) {
          g.append(make("line", { x1: LEFT, x2: across - RIGHT, y1: y(at), y2: y(at), stroke: rule }), make("text", { x: LEFT - 5, y: y(at) + 4, fill: soft, "text-anchor": "end", class: "tick" }, panel.log ? tiny(at) : short(at)));
        }
        const marks = logarithmic ? powers(first, last) : ticks(first, last, Math.max(2, Math.floor(inner / 70)));
        for (const at of marks.filter((step) => step >= first && step <= last)) g.append(make("text", { x: x(at), y: bottom + 15, fill: soft, "text-anchor": x(at) > across - 24 ? "end" : "middle" }, short(at)));
        g.append(make("line", { x1: LEFT, x2: across - RIGHT, y1: bottom, y2: bottom, stroke: soft }));
        const clip = `clip-${where.id}-${panel.metric}`;
        g.append(make("clipPath", { id: clip }, make("rect", { x: LEFT, y: TOP - 2, width: inner, height: height + 2 })));
        const drawn = make("g", { "clip-path": `url(#${clip})`, fill: "none", "stroke-linejoin": "round" });
        for (const line of lines) drawn.append(...curve(line, line.points[panel.metric] ?? [], { x, y, low, panel, logarithmic }));
        g.append(drawn);
        // The label of the highest line stands above it, the others below theirs.
        for (const [rank, mark] of [...panel.marks].sort((a, b) => b.at - a.at).entries()) {
          g.append(make("line", { class: "threshold", x1: LEFT, x2: across - RIGHT, y1: y(mark.at), y2: y(mark.at), stroke: mark.color, "stroke-width": 2, "stroke-dasharray": "7 4" }),
            make("text", { class: "threshold", x: across - RIGHT - 2, y: y(mark.at) + (rank ? 1 + 12 * rank : -4), fill: ink, "text-anchor": "end", "font-weight": 700, stroke: ground, "stroke-width": 3, "paint-order": "stroke" }, mark.text));
        }
        const over = make("g", { class: "over" });
        g.append(over);
        svg.append(g);
        return { panel, over, y, low, high, left: (i % columns) * (across + GAP), top: Math.floor(i / columns) * down };
      });
      const before = now?.at ?? null;
      now = { svg, plots, x, steps: steps.filter((step) => step >= first && step <= last), first, last, across, down, columns, at: null };
      const focused = where.contains(document.activeElement);
      where.replaceChildren(svg);
      if (focused) svg.focus({ preventScroll: true, focusVisible: false });
      point(now.steps.includes(before) ? before : null);
      return new Map(plots.filter(Boolean).map(({ panel, low }) => [panel.metric, low])); // the lower ends of the axes
    }

    // A line with its interval: the values as measured faintly, if they are smoothed, and symbols.
    function* curve(line, points, { x, y, low, panel, logarithmic }) {
      const some = points.filter((point) => (panel.log ? point.mean > 0 : point.mean >= low) && (point.step > 0 || !logarithmic));
      if (!some.length) return;
      const path = (of) => some.map((point, i) => `${i ? "L" : "M"}${place(x(point.step))},${place(y(of(point)))}`).join("");
      const band = some.filter((point) => point.low !== null && point.step > 0 && (!panel.log || point.low > 0));
      if (band.length > 1 && !line.faint) {
        const edge = (of) => band.map((point) => `${place(x(point.step))},${place(y(of(point)))}`);
        yield make("path", { d: `M${edge((point) => point.high).join("L")}L${edge((point) => point.low).reverse().join("L")}Z`, fill: line.color, opacity: 0.1 });
      }
      const style = { stroke: line.color, "stroke-width": 2, "stroke-dasharray": line.dash, opacity: line.faint ? 0.15 : 1 };
      if (some.some((point) => point.shown !== point.mean)) yield make("path", { ...style, d: path((point) => point.mean), "stroke-width": 1, "stroke-dasharray": null, opacity: line.faint ? 0.05 : 0.3 });
      yield make("path", { ...style, d: path((point) => point.shown), class: "curve", "data-line": line.name });
      if (some.length === 1) yield make("circle", { cx: x(some[0].step), cy: y(some[0].shown), r: 3, fill: line.color });
      if (line.symbol === null) return;
      const every = Math.ceil(some.length / SYMBOLS);
      for (const point of some.filter((_, i) => (some.length - 1 - i) % every === 0)) yield make("path", { class: "symbol", d: SHAPES[line.symbol % SHAPES.length], transform: `translate(${place(x(point.step))},${place(y(point.shown))})`, fill: line.color, stroke: line.color, opacity: line.faint ? 0.15 : 1 });
    }

    // ---- the rule under the pointer, and the zoom ------------------------------------------------------------------

    function point(step) {
      if (!now) return;
      now.at = step;
      for (const plot of now.plots.filter(Boolean)) {
        plot.over.replaceChildren();
        if (step === null) continue;
        plot.over.append(make("line", { class: "rule", x1: now.x(step), x2: now.x(step), y1: TOP - 2, y2: now.down - BOTTOM, stroke: "var(--ink)", "stroke-width": 1 }));
        for (const line of given.lines) {
          const found = line.points[plot.panel.metric]?.find((one) => one.step === step);
          if (found && found.shown >= plot.low && found.shown <= plot.high && !line.faint) plot.over.append(make("circle", { cx: now.x(step), cy: plot.y(found.shown), r: 3.5, fill: line.color, stroke: "var(--paper)" }));
        }
      }
      onread(step);
    }

    const nearest = (x) => now.steps.reduce((best, step) => (Math.abs(now.x(step) - x) < Math.abs(now.x(best) - x) ? step : best), now.steps[0]);
    function spot(event) {
      const box = now.svg.getBoundingClientRect();
      const [px, py] = [((event.clientX - box.left) * now.svg.viewBox.baseVal.width) / box.width, event.clientY - box.top];
      const column = Math.min(now.columns - 1, Math.floor(px / (now.across + GAP)));
      return { x: px - column * (now.across + GAP), plot: now.plots[Math.floor(py / now.down) * now.columns + column] ?? null };
    }

    // The listeners are those of the place, because every drawing replaces the picture.
    let from = null;
    const on = (name, act) => where.addEventListener(name, (event) => now?.steps.length && act(event));
    on("pointermove", (event) => {
      const { x } = spot(event);
      point(nearest(x));
      if (from === null || Math.abs(x - from) < 4) return;
      for (const { over } of now.plots.filter(Boolean)) over.append(make("rect", { class: "brush", x: Math.max(LEFT, Math.min(x, from)), y: TOP - 2, width: Math.abs(Math.min(now.across - RIGHT, x) - from), height: now.down - TOP - BOTTOM + 2, fill: "var(--link)", opacity: 0.2 }));
    });
    on("pointerleave", () => { from = null; point(null); });
    on("pointerdown", (event) => {
      if (event.pointerType === "touch" || event.button) return; // a finger scrolls the page
      const { x, plot } = spot(event);
      from = plot && x >= LEFT - 4 ? Math.max(LEFT, x) : null;
    });
    on("mousedown", (event) => event.preventDefault()); // no text is selected, and a click draws no focus box
    on("pointerup", (event) => {
      const begun = from;
      from = null;
      if (begun === null) return;
      const { x } = spot(event);
      const [a, b] = [nearest(Math.min(begun, x)), nearest(Math.max(begun, x))];
      if (Math.abs(x - begun) > 8 && a !== b) onzoom([a, b]);
    });
    on("dblclick", () => onzoom(null));
    on("keydown", (event) => {
      const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape") onzoom(null);
      if (!way) return;
      event.preventDefault();
      const at = now.at === null ? (way > 0 ? -1 : now.steps.length) : now.steps.indexOf(now.at);
      point(now.steps[Math.max(0, Math.min(now.steps.length - 1, at + way))]);
    });
    on("focusout", () => point(null));

    // A plot is as wide as its place.
    let width = 0;
    new ResizeObserver(() => {
      if (!given || !where.clientWidth || where.clientWidth === width) return;
      width = where.clientWidth;
      if (now && Math.abs(now.svg.viewBox.baseVal.width - Math.max(280, width)) > 1) draw(given);
    }).observe(where);

    return { draw, point, clear(text) { given = now = null; where.replaceChildren(element("p", { class: "soft", text })); }, svg: () => now?.svg ?? null, shape: (i) => SHAPES[i % SHAPES.length] };
  };
})();
