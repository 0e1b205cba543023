"use strict";
// Code that the views share: the address of a view, requests to the server, and plots that can be saved.
const recombine = (() => {
  const { element, svg } = explorable.drawing;
  const byId = (id) => document.getElementById(id);

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

  // A picture outside the page has no style sheet, so its variables are replaced by their colours.
  function downloadPicture(name, picture) {
    const style = getComputedStyle(document.documentElement);
    const text = new XMLSerializer().serializeToString(picture).replace(/var\((--[\w-]+)\)/g, (_, variable) => style.getPropertyValue(variable).trim());
    download(name, "image/svg+xml", text);
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

  // Whether the explorer shows a run's model.
  const isExplorable = (run) => run.playable && !run.not_explored;

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
    picture.append(svg("rect", { width, height, fill: "var(--paper)" }));
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
      if (kind === "svg") downloadPicture(name, picture);
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

  return { ...explorable.drawing, byId, say, trouble, ask, readAddress, writeAddress, shared, colorOf, modelColors, download, downloadPicture, csv, isExplorable, plot, unplot };
})();
