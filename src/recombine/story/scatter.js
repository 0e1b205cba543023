"use strict";
// A plot of predictions against labels. Its marks are made once and then moved, so that a plot can be dragged, and marks
// can glide to their new places.
//
// explorable.scatter(series) returns { node, draw }, where `series` are [{ count, radius, color, square, hollow }].
explorable.scatter = (() => {
  const { svg, axes } = explorable.drawing;
  const BEYOND = 0.02; // of an axis: a mark that lies beyond its end stays so close to it
  const [HOLLOW, STALE] = [0.55, 0.18]; // opacities

  function mark({ radius, color, square, hollow }) {
    const look = hollow ? { fill: "none", stroke: color } : { fill: color, "fill-opacity": 0.75, stroke: "var(--paper)", "stroke-width": 0.8 };
    return svg("rect", { class: hollow ? "ghost" : "point", width: 2 * radius, height: 2 * radius, rx: square ? null : radius, opacity: 0, ...look });
  }

  return (series) => {
    const frame = svg("g", { class: "frame" });
    const marks = series.map((one) => Array.from({ length: one.count }, () => mark(one)));
    const node = svg("g", {}, frame, ...marks.map((some) => svg("g", {}, ...some)));
    let framed = "";
    let scales = null;

    // The axes have the same ends, so that right predictions lie on the diagonal. They are drawn again only when they change.
    function frameOf(ends, layout) {
      const key = JSON.stringify([ends, layout]);
      if (key === framed) return;
      framed = key;
      frame.replaceChildren();
      scales = axes(frame, { xs: ends, ys: ends, ...layout });
      const [[x1, x2], [y1, y2]] = [ends.map(scales.x), ends.map(scales.y)];
      frame.append(svg("line", { class: "diagonal", x1, y1, x2, y2, stroke: "var(--edge)", "stroke-dasharray": "5 4" }));
    }

    // `predicted`: the predictions of each series, or null for one that is not shown. Where one is not computed yet, the
    // mark of the question before stays, faint. `layout`: what `axes` takes besides the ends.
    function draw({ ends, truth, predicted, glide = false, ...layout }) {
      frameOf(ends, layout);
      const gap = BEYOND * (ends[1] - ends[0]);
      const inside = (value) => Math.min(ends[1] + gap, Math.max(ends[0] - gap, value));
      node.classList.toggle("glide", glide);
      marks.forEach((some, i) => some.forEach((one, j) => {
        const value = predicted[i]?.[j] ?? null;
        one.setAttribute("opacity", value !== null ? (series[i].hollow ? HOLLOW : 1) : predicted[i] && one.hasAttribute("x") ? STALE : 0);
        if (value === null) return;
        one.setAttribute("x", (scales.x(inside(truth[j])) - series[i].radius).toFixed(1));
        one.setAttribute("y", (scales.y(inside(value)) - series[i].radius).toFixed(1));
      }));
      return scales;
    }

    return { node, draw };
  };
})();
