"use strict";
// The story's own drawings: a square plot of one model's predictions, and the strip of all pairs.
explorable.storyPlots = (() => {
  const { element, svg, theta, modulesOf, maskName, number } = explorable.drawing;
  const SIZE = 320; // of a square plot, in its own units
  const MARGINS = [54, 4, 10, 48];

  // Two digits; close to 1, where two would hide the difference, three that are never rounded up to 1.
  const rounded = (value) => (value >= 0.99 ? number(Math.floor(1000 * value) / 1000) : number(value, 2));

  // A plot of one model's predictions. `fresh`: how many of the answers belong to this question. `ghost`: other answers,
  // if any, as rings. The axes go from −reach to reach.
  function square(place, { name, kind }, count) {
    const marks = explorable.scatter([{ count, radius: 4.5, color: "var(--edge)", hollow: true }, { count, radius: 5.5, color: `var(--${kind})` }]);
    const picture = svg("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img", class: "square" }, marks.node);
    place.replaceChildren(picture);

    return { draw({ truth, answers, fresh, ghost, reach, words, glide, label }) {
      marks.draw({ ends: [-reach, reach], truth, predicted: [ghost, Array.from(answers).slice(0, fresh)], glide,
        width: SIZE, height: SIZE, margins: MARGINS, xTitle: `${words}true answer →`, yTitle: `${words}predicted →` });
      picture.setAttribute("aria-label", `${name}: prediction against truth. ${label}`);
    } };
  }

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
        const scores = first[mask] === undefined ? "no new part" : `R² ${rounded(first[mask])} and ${rounded(second[mask])}`;
        button.setAttribute("aria-label", `${maskName(mask)}, ${kind === "held" ? "never practised" : "practised"}: ${scores}`);
      }
    };
  }

  return { rounded, square, strip };
})();
