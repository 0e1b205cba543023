"use strict";
// Draws the modules on a circle. A line joins two modules that some mask combines. A dashed ring marks a single module
// that is held out. The chosen combination is drawn on top, as a line or a polygon.
recombine.drawGraph = (() => {
  const { byId, theta, modulesOf } = recombine;
  const [WIDTH, HEIGHT, RADIUS] = [270, 250, 100];

  function make(tag, attributes) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  }

  // Whether each pair of modules, and each single module, is trained on (if any mask with it is) or held out.
  function kinds(masks) {
    const pairs = new Map();
    const alone = new Map();
    for (const [kind, some] of [["held", masks.held_out], ["trained", masks.trained]]) {
      for (const mask of some) {
        const inside = modulesOf(mask);
        if (inside.length === 1) alone.set(inside[0], kind);
        inside.forEach((a, i) => inside.slice(i + 1).forEach((b) => pairs.set(`${a} ${b}`, kind)));
      }
    }
    return { pairs, alone };
  }

  return ({ modules, masks, weights, kind, choose }) => {
    const at = (i) => [WIDTH / 2 + RADIUS * Math.sin((2 * Math.PI * i) / modules), HEIGHT / 2 - RADIUS * Math.cos((2 * Math.PI * i) / modules)];
    const svg = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", "aria-label": "The modules: choose those that the task uses" });
    const { pairs, alone } = kinds(masks);
    for (const [pair, of] of pairs) {
      const [[x1, y1], [x2, y2]] = pair.split(" ").map((i) => at(Number(i)));
      svg.append(make("line", { class: of, x1, y1, x2, y2 }));
    }
    const chosen = weights.flatMap((weight, i) => (weight > 0 ? [i] : []));
    if (chosen.length > 1) svg.append(make("polygon", { class: `chosen ${kind}`, points: chosen.map((i) => at(i).join(",")).join(" ") }));
    const focused = document.activeElement?.closest?.("#graph g")?.dataset.module;
    const focusVisible = document.activeElement?.matches(":focus-visible"); // a click with the mouse draws no box
    for (let i = 0; i < modules; i += 1) {
      const [x, y] = at(i);
      const on = weights[i] > 0;
      const node = make("g", { role: "button", tabindex: 0, "aria-pressed": on, "aria-label": `module ${i + 1}${alone.get(i) === "held" ? ", held out" : ""}`, "data-module": i });
      const text = make("text", { x, y });
      text.textContent = theta(i);
      node.append(make("circle", { class: alone.get(i) ?? "", cx: x, cy: y, r: Math.min(20, 90 * Math.sin(Math.PI / Math.max(3, modules))) }), text);
      const toggle = () => {
        const next = weights.map((weight, j) => (j === i ? Number(!on) : weight));
        if (next.some((weight) => weight > 0)) choose(next);
      };
      node.addEventListener("click", toggle);
      node.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        toggle();
      });
      svg.append(node);
    }
    byId("graph").replaceChildren(svg);
    if (focused !== undefined) svg.querySelector(`[data-module="${focused}"]`)?.focus({ focusVisible });
  };
})();
