"use strict";
// The page of one run: its configuration, curves, scores and log. And the difference between two runs.
(() => {
  const { byId, element, ask, number, writeAddress, trouble, curves, maskName, isExplorable } = recombine;
  let name = "";
  let turn = 0;

  const score = (value) => (typeof value === "number" || value === null ? number(value) : value);
  function table({ title, head, rows }) {
    return element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title }, element("table", {},
      element("thead", {}, element("tr", {}, ...head.map((text, i) => element("th", { scope: "col", class: i ? "number" : null, text })))),
      element("tbody", {}, ...rows.map(([first, ...rest]) => element("tr", {}, element("th", { scope: "row", text: head[0] === "mask" ? maskName(first) : first }), ...rest.map((cell) => element("td", { class: "number", text: score(cell) })))))));
  }

  function configuration(fields) {
    const groups = new Map();
    for (const [field, text] of Object.entries(fields)) {
      const group = field.includes(".") ? field.split(".")[0] : "";
      groups.set(group, [...(groups.get(group) ?? []), [field, text]]);
    }
    const value = (field, text) => (/\.(masks|held_out)$/.test(field) ? text.split(", ").map(maskName).join(", ") : text);
    return [...groups].map(([group, some]) => element("details", { open: group !== "measure" && group !== "compute" }, element("summary", { text: group || "run" }),
      element("table", {}, element("tbody", {}, ...some.map(([field, text]) => element("tr", {}, element("th", { scope: "row", text: group ? field.slice(group.length + 1) : field }), element("td", { text: value(field, text) })))))));
  }

  async function show() {
    turn += 1;
    const mine = turn;
    const run = recombine.runs.all.get(name);
    byId("run-title").textContent = name || "No run";
    byId("run-back").href = run ? `#runs&${new URLSearchParams([["study", run.study]])}` : "#runs";
    if (!run) throw new Error(`${name}: there is no such run`);
    const step = run.num_steps ? `step ${run.step.toLocaleString("en")} of ${run.num_steps.toLocaleString("en")}` : "";
    byId("run-about").textContent = [run.model, run.support, run.seed === null ? null : `seed ${run.seed}`, run.state, step, run.error].filter(Boolean).join(" · ");
    byId("run-explore").hidden = !isExplorable(run);
    byId("run-explore").href = `#explore&${new URLSearchParams([["run0", name]])}`;
    const [detail] = await Promise.all([ask("/api/run", [["run", name]]), curves.showOne(name, byId("run-curves"), () => mine === turn)]);
    if (mine !== turn) return;
    byId("run-scores").replaceChildren(...(detail.scores.length ? detail.scores.flatMap((one) => [element("h3", { text: one.title }), table(one)]) : [element("p", { class: "soft", text: "Nothing has been measured yet." })]));
    byId("run-log").replaceChildren(...detail.log.map((text) => element("li", { text })));
    byId("run-config").replaceChildren(...configuration(detail.fields));
    trouble(null);
  }

  recombine.runPage = {
    restore(parameters) { name = parameters.get("name") ?? name; },
    save() { writeAddress("run", [["name", name || null]]); },
    show,
    news({ changed, gone }) {
      if (byId("run").hidden) return;
      if (gone.includes(name)) trouble(`${name}: removed. It is shown as it was.`);
      else if (changed.some((run) => run.name === name)) show().catch((error) => trouble(error.message));
    },
  };

  // The fields in which two runs differ.
  recombine.showDifference = async (picked, isCurrent) => {
    const place = byId("difference");
    if (picked.length !== 2) {
      place.replaceChildren(element("p", { class: "soft", text: "Select two runs to see in which fields they differ." }));
      return;
    }
    const { fields } = await ask("/api/difference", [["one", picked[0]], ["other", picked[1]]]);
    if (!isCurrent()) return; // other runs have been selected meanwhile
    const lines = Object.entries(fields).map(([field, [one, other]]) =>
      element("tr", {}, element("th", { scope: "row", text: field }), element("td", { text: one }), element("td", { text: other })));
    place.replaceChildren(lines.length
      ? element("div", { class: "scroll" }, element("table", {},
        element("thead", {}, element("tr", {}, element("th", { scope: "col", text: "field" }), ...picked.map((run) => element("th", { scope: "col", text: run })))),
        element("tbody", {}, ...lines)))
      : element("p", { class: "soft", text: "Their configurations are the same." }));
  };
})();
