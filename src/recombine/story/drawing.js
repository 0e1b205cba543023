"use strict";
// What the story draws: the graph of the modules, two square plots, and the strip of all pairs.
explorable.drawing = (() => {
  const SIZE = 320; // of a square plot, in its own units
  const [LEFT, TOP, RIGHT, BOTTOM] = [54, 10, 316, 272];

  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    return dress(made, attributes, children);
  }

  function shape(tag, attributes = {}, ...children) {
    return dress(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
  }

  function dress(made, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "text") made.textContent = value;
      else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value === true) made.setAttribute(name, "");
      else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
  }

  const theta = (i) => `θ${[...String(i + 1)].map((digit) => String.fromCodePoint(0x2080 + Number(digit))).join("")}`;
  const modulesOf = (mask) => [...mask].flatMap((bit, i) => (bit === "1" ? [i] : []));
  const nameOf = (mask) => modulesOf(mask).map(theta).join("+");

  // Two digits; close to 1, where two would hide the difference, three that are never rounded up to 1.
  function number(value) {
    if (value === null || !Number.isFinite(value)) return "–";
    return value >= 0.99 ? (Math.floor(1000 * value) / 1000).toFixed(3) : value.toFixed(2).replace("-", "−");
  }

  // ---- the graph of the modules ----------------------------------------------------------------------------------

  // `choose(mask)` is called with a pair whose line was clicked; `toggle(i)`, if given, with a module.
  function graph(place, { modules, trained, held_out: heldOut }, weights, { choose, toggle }) {
    const at = (i) => [130 + 96 * Math.sin((2 * Math.PI * i) / modules), 122 - 96 * Math.cos((2 * Math.PI * i) / modules)];
    const svg = shape("svg", { viewBox: "0 0 260 244", role: toggle ? "group" : "img", "aria-label": "The modules, and the pairs of them that were practised or held out" });
    const line = (mask, kind) => {
      const [[x1, y1], [x2, y2]] = modulesOf(mask).map(at);
      const group = shape("g", { class: `pair ${kind}`, onclick: () => choose(mask) }, shape("line", { class: "hit", x1, y1, x2, y2 }), shape("line", { class: "seen", x1, y1, x2, y2 }));
      group.append(shape("title", { text: `${nameOf(mask)}: ${kind === "held" ? "never practised" : "practised"}` }));
      return group;
    };
    const pairs = (masks) => masks.filter((mask) => modulesOf(mask).length === 2);
    svg.append(...pairs(trained).map((mask) => line(mask, "trained")), ...pairs(heldOut).map((mask) => line(mask, "held")));
    const chosen = weights.flatMap((weight, i) => (weight > 0 ? [i] : []));
    const mask = weights.map((weight) => (weight > 0 ? "1" : "0")).join("");
    const kind = trained.includes(mask) ? "trained" : heldOut.includes(mask) ? "held" : "other";
    if (chosen.length > 1) svg.append(shape("polygon", { class: `chosen ${kind}`, points: chosen.map((i) => at(i).join(",")).join(" ") }));
    for (let i = 0; i < modules; i += 1) {
      const [cx, cy] = at(i);
      const on = weights[i] > 0;
      const act = toggle ? { role: "button", tabindex: 0, "aria-pressed": on, "aria-label": `module ${i + 1}`, onclick: () => toggle(i), onkeydown: (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        toggle(i);
      } } : {};
      svg.append(shape("g", { class: `module${on ? " on" : ""}`, "data-module": i, ...act }, shape("circle", { cx, cy, r: 20 }), shape("text", { x: cx, y: cy, text: theta(i) })));
    }
    const focused = place.contains(document.activeElement) ? document.activeElement.dataset?.module : undefined;
    const focusVisible = document.activeElement?.matches(":focus-visible"); // a click with the mouse draws no box
    place.replaceChildren(svg);
    if (focused !== undefined) svg.querySelector(`[data-module="${focused}"]`)?.focus({ focusVisible });
  }

  // ---- a square plot ---------------------------------------------------------------------------------------------

  // Round numbers for the ticks of an axis from −reach to reach.
  function ticks(reach) {
    const step = [0.05, 0.1, 0.2, 0.25, 0.5, 1, 2].find((one) => reach / one <= 2.6) ?? reach;
    const count = Math.floor(0.97 * reach / step);
    return Array.from({ length: 2 * count + 1 }, (_, i) => (i - count) * step);
  }

  // A plot of predictions against the truth, drawn once and then moved.
  function square(place, { name, kind }, count) {
    const frame = shape("g", { class: "frame" });
    const make = (className) => Array.from({ length: count }, () => shape("circle", { class: className, r: className === "point" ? 5.5 : 4.5 }));
    const [ghosts, points] = [make("ghost"), make("point")];
    const svg = shape("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img", class: `square ${kind}` }, frame, shape("g", {}, ...ghosts), shape("g", {}, ...points));
    place.replaceChildren(svg);
    let drawn = "";

    function axes(reach, words) {
      const key = `${reach} ${words}`;
      if (key === drawn) return;
      drawn = key;
      const to = scale(reach);
      frame.replaceChildren(
        shape("rect", { x: LEFT, y: TOP, width: RIGHT - LEFT, height: BOTTOM - TOP }),
        ...ticks(reach).flatMap((tick) => {
          const text = Number(tick.toFixed(2)).toString().replace("-", "−");
          return [shape("line", { class: "grid", x1: to.x(tick), x2: to.x(tick), y1: TOP, y2: BOTTOM }), shape("line", { class: "grid", x1: LEFT, x2: RIGHT, y1: to.y(tick), y2: to.y(tick) }),
            shape("text", { class: "tick", x: to.x(tick), y: BOTTOM + 15, "text-anchor": "middle", text }), shape("text", { class: "tick", x: LEFT - 6, y: to.y(tick) + 4, "text-anchor": "end", text })];
        }),
        shape("line", { class: "diagonal", x1: LEFT, y1: BOTTOM, x2: RIGHT, y2: TOP }),
        shape("text", { class: "axis", x: (LEFT + RIGHT) / 2, y: SIZE - 8, "text-anchor": "middle", text: `${words}true answer →` }),
        shape("text", { class: "axis up", transform: `translate(12 ${(TOP + BOTTOM) / 2}) rotate(-90)`, "text-anchor": "middle", text: `${words}predicted →` }));
    }

    const scale = (reach) => ({ x: (value) => LEFT + (value / reach + 1) / 2 * (RIGHT - LEFT), y: (value) => BOTTOM - (value / reach + 1) / 2 * (BOTTOM - TOP) });

    // `fresh`: how many points are of this question; the others are those of the one before, and faint.
    function draw({ truth, answers, fresh, ghost, reach, words, glide, label }) {
      axes(reach, words);
      const to = scale(reach);
      const inside = (value) => Math.min(1.04 * reach, Math.max(-1.04 * reach, value)); // what lies beyond stays at the edge
      svg.classList.toggle("glide", glide);
      const put = (circle, x, y) => { circle.style.transform = `translate(${to.x(inside(x)).toFixed(1)}px, ${to.y(inside(y)).toFixed(1)}px)`; };
      points.forEach((circle, i) => {
        circle.classList.toggle("stale", i >= fresh);
        if (i < fresh) put(circle, truth[i], answers[i]);
      });
      ghosts.forEach((circle, i) => {
        circle.classList.toggle("shown", Boolean(ghost));
        if (ghost) put(circle, truth[i], ghost[i]);
      });
      svg.setAttribute("aria-label", `${name}: prediction against truth. ${label}`);
    }

    return { draw };
  }

  // ---- the strip of all pairs ------------------------------------------------------------------------------------

  // A button for every mask: a circle for the transformer's R², a square for the hypertransformer's. `draw` is given both
  // models' scores by mask; a mask without scores has no marks. Marks below the axis stay at its bottom.
  function strip(place, { trained, held_out: heldOut }, choose) {
    const marks = new Map();
    const column = (mask, kind) => {
      const [circle, box] = [element("i", { class: "mark first" }), element("i", { class: "mark second" })];
      const button = element("button", { type: "button", class: `column ${kind}`, onclick: () => choose(mask) },
        element("span", { class: "track" }, circle, box), ...modulesOf(mask).map((i) => element("span", { class: "skill", text: theta(i) })));
      marks.set(mask, { button, circle, box, kind });
      return button;
    };
    const axis = element("div", { class: "scale", "aria-hidden": "true" });
    const named = element("p", { class: "group-name" });
    const group = (name, kind, masks, title) => {
      const made = element("div", { class: `group ${kind}`, role: "group", "aria-label": name }, title, element("div", { class: "columns-of" }, ...masks.map((mask) => column(mask, kind))));
      made.style.flex = String(masks.length);
      return made;
    };
    place.replaceChildren(axis, group("never practised", "held", heldOut, element("p", { class: "group-name", text: "never practised" })), group("practised", "trained", trained, named));

    return ({ chosen, first, second, low, note }) => {
      named.textContent = note;
      const height = (value) => `${100 * Math.max(0, Math.min(1, (value - low) / (1 - low)))}%`;
      axis.replaceChildren(...[1, (1 + low) / 2, low].map((value) => {
        const tick = element("span", { text: String(Number(value.toFixed(3))) });
        tick.style.bottom = height(value);
        return tick;
      }));
      for (const [mask, { button, circle, box, kind }] of marks) {
        for (const [mark, value] of [[circle, first[mask]], [box, second[mask]]]) {
          mark.hidden = value === undefined;
          if (value !== undefined) mark.style.bottom = height(value);
        }
        button.setAttribute("aria-pressed", mask === chosen);
        const scores = first[mask] === undefined ? "no new part" : `R² ${number(first[mask])} and ${number(second[mask])}`;
        button.setAttribute("aria-label", `${nameOf(mask)}, ${kind === "held" ? "never practised" : "practised"}: ${scores}`);
      }
    };
  }

  return { element, shape, theta, modulesOf, nameOf, number, graph, square, strip };
})();
