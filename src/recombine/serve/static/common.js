"use strict";
// Code that both views share: the address of a view, requests to the server, and plots.
const recombine = (() => {
  const byId = (id) => document.getElementById(id);

  // Text comes from run directories, so it is always set as text, never as markup.
  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
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

  // Update a live region only if its text has changed, because screen readers announce every update.
  function say(id, text) {
    if (byId(id).textContent !== text) byId(id).textContent = text;
  }

  function trouble(text) {
    say("trouble", text ?? "");
    byId("trouble").hidden = !text;
  }

  // Request data from the server. A busy server is asked again a few times. A failure becomes an error with a message.
  const PAUSES = [500, 1500, 4000];
  async function ask(path, parameters = []) {
    const query = new URLSearchParams(parameters).toString();
    for (let tries = 0; ; tries += 1) {
      const response = await fetch(query ? `${path}?${query}` : path).catch(() => { throw new Error("The server does not answer."); });
      const answer = await response.json().catch(() => ({}));
      if (response.ok) return answer;
      if (response.status !== 503 || tries === PAUSES.length) throw new Error(answer.error ?? `The server answers ${response.status}.`);
      await new Promise((done) => { setTimeout(done, PAUSES[tries]); });
    }
  }

  // The view and its state are stored in the address after the #, so that a link restores them.
  function readAddress() {
    const [view, ...rest] = location.hash.slice(1).split("&");
    return [view, new URLSearchParams(rest.join("&"))];
  }

  function writeAddress(view, parameters) {
    if (byId(view).hidden) return;
    const query = new URLSearchParams(parameters.filter(([, value]) => value !== null && value !== undefined)).toString();
    const hash = `#${view}${query ? `&${query}` : ""}`;
    if (hash !== location.hash) history.replaceState(null, "", hash);
  }

  const shared = { colors: {}, quantiles: {} };
  const tone = () => document.documentElement.dataset.theme;

  function colorOf(model) {
    const colors = shared.colors[tone()];
    if (model && Object.hasOwn(colors, model)) return colors[model];
    let sum = 0;
    for (const letter of model ?? "") sum = (sum * 31 + letter.codePointAt(0)) >>> 0;
    return colors[""][sum % colors[""].length];
  }

  // The colours of the models that are compared: each its own. A second model of the same kind has one that no kind has:
  // yellow beside the transformer's blue, light blue beside the others.
  function modelColors(models) {
    const own = models.map(colorOf);
    const others = shared.colors[tone()][""].filter((color) => !own.includes(color));
    return own.map((color, i) => (own.indexOf(color) === i ? color : others[models[i] === "transformer" ? 0 : 1]));
  }

  function download(name, type, text) {
    const url = URL.createObjectURL(new Blob([text], { type }));
    element("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  function csv(rows) {
    const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
    const cell = (value) => {
      const plain = value === null || value === undefined ? "" : String(value);
      const text = typeof value === "string" && /^[=+\-@\t\r]/.test(plain) ? `'${plain}` : plain; // a name must not become a formula
      return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    return [names, ...rows.map((row) => names.map((name) => row[name]))].map((line) => line.map(cell).join(",")).join("\n") + "\n";
  }

  // An SVG element. Colours are attributes, so that a saved picture has them.
  function svg(tag, attributes = {}, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== undefined) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }
  // A colour of the style sheet. Reading it takes the browser a while, so it is remembered.
  const paints = new Map();
  function paint(name) {
    const key = `${tone()} ${name}`;
    if (!paints.has(key)) paints.set(key, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
    return paints.get(key);
  }

  // Round numbers between two ends, about `many` of them.
  function ticks(low, high, many) {
    const rough = (high - low) / many || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((one) => one >= rough);
    const found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i += 1) found.push(Number((i * step).toPrecision(12)));
    return found;
  }

  // Draw a plot: `draw(picture, width)` fills the picture. `rows` are saved as CSV, in a file named after `about`;
  // `words` describe the plot for screen readers.
  const drawn = new Map();
  const widths = new WeakMap(); // to ask for a width amid changes would make the browser lay the page out anew each time
  const resized = new ResizeObserver((entries) => entries.forEach(({ target, contentRect }) => widths.set(target, contentRect.width)));
  const widthOf = (chart) => widths.get(chart) || chart.clientWidth;
  function plot(id, { height, draw, rows, about = "", words }) {
    const place = byId(id);
    const chart = place.querySelector(".chart") ?? placeFor(id);
    const width = Math.max(240, Math.floor(widthOf(chart)));
    const picture = svg("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}`, "font-family": "Helvetica, Arial, sans-serif", "font-size": 12, "aria-hidden": "true" });
    picture.append(svg("rect", { width, height, fill: paint("--paper") }));
    draw(picture, width);
    chart.replaceChildren(picture);
    chart.setAttribute("role", "img");
    chart.setAttribute("aria-label", `${place.closest("figure").querySelector("h2").textContent}. ${words}`);
    drawn.set(id, { picture, rows, about });
    place.dataset.drawn = String(Number(place.dataset.drawn ?? 0) + 1);
  }

  // The element in which a plot is drawn, above the buttons that save it.
  function placeFor(id) {
    const place = byId(id);
    const chart = element("div", { class: "chart" });
    resized.observe(chart);
    const save = (kind) => () => {
      const { picture, rows, about } = drawn.get(id);
      const name = `${id}${about ? `_${about}` : ""}.${kind}`;
      if (kind === "svg") download(name, "image/svg+xml", new XMLSerializer().serializeToString(picture));
      else download(name, "text/csv", csv(rows));
    };
    const title = place.closest("figure").querySelector("h2").textContent;
    place.replaceChildren(chart, element("div", { class: "saves" },
      element("button", { type: "button", text: "SVG", onclick: save("svg"), "aria-label": `Save as SVG: ${title}` }),
      element("button", { type: "button", text: "CSV", onclick: save("csv"), "aria-label": `Save the data as CSV: ${title}` })));
    return chart;
  }

  // Show a text in place of a plot.
  function unplot(id, text) {
    drawn.delete(id);
    byId(id).replaceChildren(element("p", { class: "soft", text }));
  }

  const subscript = (i) => [...String(i + 1)].map((digit) => String.fromCodePoint(0x2080 + Number(digit))).join("");
  const theta = (i) => `θ${subscript(i)}`;
  const modulesOf = (mask) => [...mask].flatMap((bit, i) => (bit === "1" ? [i] : []));
  // A mask such as 100100 as the modules that it uses: θ₁ + θ₄. Other texts stay as they are.
  const maskName = (text) => (/^[01]{2,}$/.test(text) && text.includes("1") ? modulesOf(text).map(theta).join("+") : text);
  const number = (value, digits = 3) => (typeof value === "number" ? value.toFixed(digits).replace("-", "−") : "–");

  return { byId, element, say, trouble, ask, readAddress, writeAddress, shared, tone, colorOf, modelColors, download, csv, svg, paint, ticks, plot, unplot, number, subscript, theta, modulesOf, maskName };
})();
