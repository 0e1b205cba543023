"use strict";
// What all drawings share: elements, names, numbers, and the axes of a plot. The story draws with it, and the explorer.
//
// A colour is written as a variable of the style sheet, such as var(--ink), so that a drawing follows the switch between
// dark and light. It is an attribute, so that a saved picture has it.
explorable.drawing = (() => {
  const element = (tag, attributes = {}, ...children) => dress(document.createElement(tag), attributes, children);
  const svg = (tag, attributes = {}, ...children) => dress(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

  // Text comes from run directories, so it is always set as text, never as markup.
  function dress(made, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "text") made.textContent = value;
      else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (name.startsWith("aria-") && typeof value === "boolean") made.setAttribute(name, String(value));
      else if (value === true) made.setAttribute(name, "");
      else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
  }

  const subscript = (i) => [...String(i + 1)].map((digit) => String.fromCodePoint(0x2080 + Number(digit))).join("");
  const theta = (i) => `θ${subscript(i)}`;
  const modulesOf = (mask) => [...mask].flatMap((bit, i) => (bit === "1" ? [i] : []));
  const maskOf = (weights) => weights.map((weight) => (weight > 0 ? "1" : "0")).join("");
  // A mask such as 100100 as the modules that it uses: θ₁+θ₄. Other texts stay as they are.
  const maskName = (text) => (/^[01]{2,}$/.test(text) && text.includes("1") ? modulesOf(text).map(theta).join("+") : text);
  const number = (value, digits = 3) => (Number.isFinite(value) ? value.toFixed(digits).replace(/^-(?=0\.?0*$)/, "").replace("-", "−") : "–"); // no minus before 0.000

  // Round numbers between two ends, about `many` of them.
  function ticks(low, high, many) {
    const rough = (high - low) / many || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((one) => one >= rough);
    const found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i += 1) found.push(Number((i * step).toPrecision(12)));
    return found;
  }

  // The ticks of an axis. None stands at its end, where the words of two axes would meet.
  const within = ([low, high]) => ticks(low + 0.015 * (high - low), high - 0.015 * (high - low), 5);

  // Ticks and their words, all with as many digits as their step needs.
  function labelled(found) {
    const digits = Math.max(0, Math.ceil(-Math.log10(found[1] - found[0] || 1) - 1e-9));
    return found.map((at) => [at, number(at, digits)]);
  }

  // The axes of a plot, and their scales. `margins`: [left, right, top, bottom]; `xs`, `ys`: the ends of the axes.
  function axes(place, { width, height, margins: [left, toRight, top, toBottom], xs, ys, xTitle, yTitle, xTicks = within(xs) }) {
    const [right, bottom] = [width - toRight, height - toBottom];
    const x = (value) => left + ((right - left) * (value - xs[0])) / (xs[1] - xs[0]);
    const y = (value) => bottom - ((bottom - top) * (value - ys[0])) / (ys[1] - ys[0]);
    const [across, up] = [labelled(xTicks), labelled(within(ys))];
    const grid = [...across.map(([at]) => `M${x(at).toFixed(1)},${top}V${bottom}`), ...up.map(([at]) => `M${left},${y(at).toFixed(1)}H${right}`)];
    const text = (name, content, more) => svg("text", { class: name, fill: "var(--soft)", "text-anchor": "middle", ...more }, content);
    place.append(
      svg("path", { d: grid.join(""), stroke: "var(--line)", "stroke-width": 0.6 }),
      svg("rect", { x: left, y: top, width: right - left, height: bottom - top, fill: "none", stroke: "var(--line)" }),
      ...across.map(([at, words]) => text("tick", words, { x: x(at), y: bottom + 15 })),
      ...up.map(([at, words]) => text("tick", words, { x: left - 6, y: y(at) + 4, "text-anchor": "end" })),
      text("axis", xTitle, { x: (left + right) / 2, y: height - 8 }),
      text("axis up", yTitle, { transform: `translate(12 ${(top + bottom) / 2}) rotate(-90)` }));
    return { x, y, right, bottom };
  }

  return { element, svg, subscript, theta, modulesOf, maskOf, maskName, number, ticks, axes };
})();
