"use strict";
// The verdicts on the claims for a study so far, and the progress of sweeps.
recombine.claims = (() => {
  const { byId, element, ask, number } = recombine;
  const BADGES = { holds: ["good", "✓"], "does not hold": ["bad", "✗"] };
  const unfolded = new Set();
  let shown = null;
  let chosen = null; // the number of the claim whose curves are shown
  let verdicts = [];
  let judging = null; // when to ask again

  async function show(study) {
    shown = study;
    clearTimeout(judging);
    judging = null;
    const place = byId("claims");
    if (!study) {
      verdicts = [];
      place.replaceChildren(element("p", { class: "soft", text: recombine.runs.all.size ? "Choose one study to see what its runs say about the paper's claims." : "No study yet." }));
      return;
    }
    const answer = await ask("/api/claims", [["study", study]]).catch((error) => ({ error: error.message }));
    if (study !== shown) return;
    if (answer.again) later(1000 * answer.again);
    const left = answer.left_out?.length ? [element("p", { class: "soft", text: `left out, because they cannot be read: ${answer.left_out.join(", ")}` })] : [];
    if (answer.error) {
      verdicts = [];
      place.replaceChildren(element("p", { class: "soft", text: answer.error }), ...left);
      return;
    }
    verdicts = answer.verdicts;
    place.replaceChildren(element("p", { class: "soft", text: "Click a claim to see its curves and its criterion." }), element("ul", {}, ...verdicts.map((verdict) => {
      const [kind, sign] = BADGES[verdict.state] ?? ["open", "?"];
      const badge = element("span", verdict.lean ? { class: "badge hollow", text: verdict.lean } : { class: `badge ${kind}`, text: `${sign} ${verdict.state}` });
      const drawn = verdict.parts.some((part) => part.first && part.metric);
      const text = `${verdict.number}. ${verdict.claim}`;
      return element("li", { "data-claim": verdict.number },
        ...(drawn ? [element("button", { type: "button", class: "claim", "aria-pressed": verdict.number === chosen, title: "Show its curves and its criterion", onclick: () => recombine.runs.choose(verdict.number === chosen ? null : verdict.number) }, badge, ` ${text}`)]
          : [badge, ` ${text}`]),
        element("details", { open: unfolded.has(verdict.number) || verdict.number === chosen, ontoggle: ({ target }) => unfolded[target.open ? "add" : "delete"](verdict.number) },
          element("summary", { text: verdict.note, "aria-label": `claim ${verdict.number}: ${verdict.note}` }),
          ...verdict.parts.map((part) => element("p", { class: "soft note", text: `${(BADGES[part.state] ?? ["", "?"])[1]} ${part.text}` }))));
    })), ...left);
    if (chosen !== null) recombine.runs.redraw();
  }

  // Choose a claim: its curves are shown with its criterion. `parts` is what was measured for it.
  function choose(number) {
    chosen = number;
    byId("claims").querySelectorAll("li").forEach((item) => {
      const on = Number(item.dataset.claim) === number;
      item.querySelector("button")?.setAttribute("aria-pressed", on);
      if (on) item.querySelector("details").open = true;
    });
  }
  const parts = () => verdicts.find((verdict) => verdict.number === chosen)?.parts ?? [];

  function later(milliseconds) {
    judging ??= setTimeout(() => show(shown), milliseconds);
  }

  // Folded when all sweeps are done, unless the user has chosen otherwise.
  let folded = null;
  function sweeps(some) {
    if (!some.length) {
      byId("sweeps").replaceChildren();
      return;
    }
    const done = some.reduce((sum, sweep) => sum + (sweep.states?.done ?? 0), 0);
    const runs = some.reduce((sum, sweep) => sum + (sweep.runs ?? 0), 0);
    const lines = some.map((sweep) => {
      if (sweep.error) return element("p", { class: "sweep", text: `sweep ${sweep.name}: ${sweep.error}` });
      const text = Object.entries(sweep.states).map(([name, many]) => `${many.toLocaleString("en")} ${name}`).join(", ");
      const best = sweep.best ? ` · best so far, by R² for selection: ${sweep.best[1]} (${number(sweep.best[0])})` : "";
      return element("p", { class: "sweep" }, element("progress", { max: sweep.runs, value: sweep.states.done ?? 0, "aria-label": `sweep ${sweep.name}` }), ` sweep ${sweep.name}: ${text}${best}`);
    });
    const open = folded === null ? done < runs || some.some((sweep) => sweep.error) : !folded;
    const summary = element("summary", { text: `${some.length === 1 ? "1 sweep" : `${some.length} sweeps`}: ${done.toLocaleString("en")} of ${runs.toLocaleString("en")} runs done`, onclick: () => { folded = byId("sweeps").firstChild.open; } });
    byId("sweeps").replaceChildren(element("details", { open }, summary, ...lines));
  }

  return { show, choose, parts, later, sweeps };
})();
