"use strict";
// What both views share: the address of the view, talking to the server, and drawing.
const recombine = (() => {
  const byId = (id) => document.getElementById(id);

  // All text comes from run directories: it is set as text, never as markup.
  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "text") made.textContent = value;
      else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value === true) made.setAttribute(name, "");
      else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
  }

  // Into a place that is read aloud: only what is new.
  function say(id, text) {
    if (byId(id).textContent !== text) byId(id).textContent = text;
  }

  function trouble(text) {
    say("trouble", text ?? "");
    byId("trouble").hidden = !text;
  }

  async function ask(path, parameters = [], signal) {
    const query = new URLSearchParams(parameters).toString();
    const response = await fetch(query ? `${path}?${query}` : path, { signal }).catch(() => { throw new Error("The server does not answer."); });
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error ?? response.statusText);
    return answer;
  }

  // The view and its state, as the part of the address behind #: a link restores it.
  function readAddress() {
    const [view, ...rest] = location.hash.slice(1).split("&");
    return [view || "runs", new URLSearchParams(rest.join("&"))];
  }

  function writeAddress(view, parameters) {
    if (byId(view).hidden) return;
    const query = new URLSearchParams(parameters.filter(([, value]) => value !== null && value !== undefined)).toString();
    const hash = `#${view}${query ? `&${query}` : ""}`;
    if (hash !== location.hash) history.replaceState(null, "", hash);
  }

  const shared = { themes: {}, colors: {}, quantiles: {} };
  const tone = () => document.documentElement.dataset.theme;

  function colorOf(model) {
    const colors = shared.colors[tone()];
    if (model && Object.hasOwn(colors, model)) return colors[model];
    let sum = 0;
    for (const letter of model ?? "") sum = (sum * 31 + letter.codePointAt(0)) >>> 0;
    return colors[""][sum % colors[""].length];
  }

  function download(name, type, text) {
    const url = URL.createObjectURL(new Blob([text], { type }));
    element("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  function csv(rows) {
    const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
    const cell = (value) => {
      const text = value === null || value === undefined ? "" : String(value);
      return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    return [names, ...rows.map((row) => names.map((name) => row[name]))].map((line) => line.map(cell).join(",")).join("\n") + "\n";
  }

  // What draws is large: all else is there before it.
  const drawing = new Promise((done, failed) => {
    document.head.append(element("script", { src: "/static/vega.js", onload: done, onerror: () => failed(new Error("the plots cannot be drawn: vega.js did not load")) }));
  });
  drawing.catch(() => {}); // whoever draws is told
  const drawn = new Map();

  // A plot: drawn anew when its specification or the tone changes, otherwise only its data are. What is saved is `rows`.
  async function plot(id, spec, data, rows, about = "") {
    const place = byId(id);
    const key = JSON.stringify([spec, tone()]);
    let known = drawn.get(id);
    if (!known || known.key !== key || !known.view) {
      known?.view?.finalize();
      known = { key, view: null, rows: [] };
      drawn.set(id, known);
      await drawing;
      if (drawn.get(id) !== known) return;
      const chart = placeFor(id);
      const description = place.closest("figure").querySelector("h2").textContent;
      const { view } = await vegaEmbed(chart, { ...spec, description, datasets: data }, {
        mode: "vega-lite",
        renderer: "svg",
        ast: true, // expressions are interpreted: the page's policy forbids eval
        config: { ...shared.themes[tone()], mark: { ...shared.themes[tone()].mark, aria: false } }, // hundreds of points are no reading
        tooltip: { disableDefaultStyle: true },
        defaultStyle: false,
        actions: false,
      });
      if (drawn.get(id) !== known) return view.finalize();
      known.view = view;
    } else {
      for (const [name, some] of Object.entries(data)) known.view.data(name, some);
      await known.view.runAsync();
    }
    Object.assign(known, { rows, about });
    place.setAttribute("role", "group");
    place.dataset.drawn = String(Number(place.dataset.drawn ?? 0) + 1);
  }

  // Where a plot is drawn: its buttons stay, and with them whose focus is on one.
  function placeFor(id) {
    const place = byId(id);
    const chart = element("div", { class: "chart" });
    if (place.querySelector(".saves")) {
      place.querySelector(".chart").replaceWith(chart);
      return chart;
    }
    const save = (kind) => async () => {
      const { view, rows, about } = drawn.get(id) ?? {};
      if (!view) return; // not drawn yet
      const name = `${id}${about ? `_${about}` : ""}.${kind}`;
      if (kind === "svg") download(name, "image/svg+xml", await view.toSVG());
      else download(name, "text/csv", csv(rows));
    };
    const title = place.closest("figure").querySelector("h2").textContent;
    place.replaceChildren(chart, element("div", { class: "saves" },
      element("button", { type: "button", text: "SVG", onclick: save("svg"), "aria-label": `Save as SVG: ${title}` }),
      element("button", { type: "button", text: "CSV", onclick: save("csv"), "aria-label": `Save the data as CSV: ${title}` })));
    return chart;
  }

  // Words where a plot would be.
  function unplot(id, text) {
    drawn.get(id)?.view?.finalize();
    drawn.delete(id);
    byId(id).replaceChildren(element("p", { class: "soft", text }));
  }

  const number = (value, digits = 3) => (typeof value === "number" ? value.toFixed(digits).replace("-", "−") : "–");

  return { byId, element, say, trouble, ask, readAddress, writeAddress, shared, tone, colorOf, plot, unplot, number };
})();
