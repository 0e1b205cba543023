"use strict";
// The modules on a circle. A line joins two modules that some mask combines; a dashed one was only held out. A dashed ring
// is a single module that is held out. The combination of the task is drawn on top, as a line or a polygon.
explorable.graph = (() => {
  const { svg, theta, modulesOf, maskOf, maskName } = explorable.drawing;
  const [WIDTH, HEIGHT, RADIUS] = [260, 244, 96];

  // Whether each pair of modules, and each single module, is trained on (if any mask with it is) or held out.
  function kinds({ trained, held_out: heldOut }) {
    const pairs = new Map();
    const alone = new Map();
    for (const [kind, some] of [["held", heldOut], ["trained", trained]]) {
      for (const inside of some.map(modulesOf)) {
        if (inside.length === 1) alone.set(inside[0], kind);
        inside.forEach((a, i) => inside.slice(i + 1).forEach((b) => pairs.set(`${a} ${b}`, kind)));
      }
    }
    return { pairs, alone };
  }

  // `words` name the two kinds of masks. `choose(mask)` is called with a mask of two modules whose line was clicked;
  // `toggle(i)`, if given, with a module.
  return (place, { modules, masks, weights, words, choose, toggle }) => {
    const at = (i) => [WIDTH / 2 + RADIUS * Math.sin((2 * Math.PI * i) / modules), HEIGHT / 2 - RADIUS * Math.cos((2 * Math.PI * i) / modules)];
    const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: toggle ? "group" : "img", "aria-label": `The modules, and the pairs of them that were ${words.trained} or ${words.held}` });
    const { pairs, alone } = kinds(masks);
    const kindOf = (mask) => (masks.trained.includes(mask) ? "trained" : masks.held_out.includes(mask) ? "held" : "other");
    for (const [pair, kind] of pairs) {
      const [a, b] = pair.split(" ").map(Number);
      const [[x1, y1], [x2, y2]] = [at(a), at(b)];
      const mask = maskOf(weights.map((_, i) => Number(i === a || i === b)));
      const line = svg("line", { class: kind, x1, y1, x2, y2 });
      picture.append(kindOf(mask) === "other" ? line // part of larger masks only
        : svg("g", { class: "pair", onclick: () => choose(mask) }, svg("title", { text: `${maskName(mask)}: ${words[kind]}` }), svg("line", { class: "hit", x1, y1, x2, y2 }), line));
    }
    const chosen = modulesOf(maskOf(weights));
    if (chosen.length > 1) picture.append(svg("polygon", { class: kindOf(maskOf(weights)), points: chosen.map((i) => at(i).join(",")).join(" ") }));
    for (let i = 0; i < modules; i += 1) {
      const [x, y] = at(i);
      const on = weights[i] > 0;
      const act = toggle ? { role: "button", tabindex: 0, "aria-pressed": on, "aria-label": `module ${i + 1}${alone.get(i) === "held" ? `, ${words.held}` : ""}`, onclick: () => toggle(i), onkeydown: (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        toggle(i);
      } } : {};
      picture.append(svg("g", { class: `module${on ? " on" : ""}`, "data-module": i, ...act },
        svg("circle", { class: alone.get(i), cx: x, cy: y, r: Math.min(20, 86 * Math.sin(Math.PI / Math.max(3, modules))) }), svg("text", { x, y, text: theta(i) })));
    }
    const focused = place.contains(document.activeElement) ? document.activeElement.dataset.module : undefined;
    const focusVisible = document.activeElement?.matches(":focus-visible"); // a click with the mouse draws no box
    place.replaceChildren(picture);
    if (focused !== undefined) picture.querySelector(`[data-module="${focused}"]`)?.focus({ focusVisible });
  };
})();
