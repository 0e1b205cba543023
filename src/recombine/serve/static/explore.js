"use strict";
// Compose a task, and see how trained models solve it.
(() => {
  const { byId, element, ask, say, number, theta, subscript, modulesOf, maskOf, writeAddress, trouble, inference, isExplorable } = recombine;
  const MOST_OPTIONS = 200;
  const TRUE = "true"; // in place of numbers: the image of the task's true latent
  const state = { runs: ["", ""], weights: [], length: null, draw: 0, teacher: 0, fresh: null, direction: 0, latents: [null, null] };
  let described = null; // descriptions of the chosen runs' models
  let key = "";
  let answer = null;
  let names = [];

  const naming = new Intl.Collator("en", { numeric: true });
  const chosen = () => state.runs.filter(Boolean);
  const labels = () => answer.models.map((one, i) => (answer.models.length === 2 && answer.models[0].model === answer.models[1].model ? `${one.model} (${i + 1})` : one.model));

  // A description of the task, for the names of saved files.
  const about = () => [maskOf(state.weights), `n${state.length}`, `draw${state.draw}`, ...(state.fresh === null ? [] : [`fresh${state.fresh}`]), ...(answer.models.some((one) => one.used) ? [state.latents.includes(TRUE) ? "latent-true" : state.latents.find(inference.isExplicit)?.toString() ?? "latent-moved"] : [])].join("_");

  function save() {
    writeAddress("explore", [
      ...state.runs.map((name, i) => [`run${i}`, name || null]), ["weights", state.weights.join(",") || null],
      ["length", state.length], ["draw", state.draw || null], ["teacher", state.teacher || null], ["fresh", state.fresh], ["direction", state.direction || null],
      ...state.latents.map((latent, i) => [`latent${i}`, latent?.toString() ?? null]),
    ]);
  }

  const sizes = (name) => JSON.stringify(recombine.runs.all.get(name)?.sizes);

  function fillRuns() {
    const able = [...recombine.runs.all.values()].filter(isExplorable);
    names = able.map((run) => run.name).sort(naming.compare);
    if (!state.runs[0]) {
      // Default: one of each of the paper's two models, with the same support, seed, sizes and study.
      const done = able.filter((run) => run.state === "done");
      const mates = (one) => done.filter((run) => run !== one && run.model === "hypertransformer" && run.support === one.support && run.seed === one.seed && sizes(run.name) === sizes(one.name) && run.study === one.study);
      const first = done.filter((run) => run.model === "transformer").sort((a, b) => (b.support === "connected+") - (a.support === "connected+") || b.step - a.step).find((run) => mates(run).length) ?? done[0] ?? able[0];
      state.runs = [first?.name ?? "", (first && mates(first)[0]?.name) ?? ""];
    }
    // Both models get the same task, so they must have been trained with the same sizes.
    const isHere = (name) => recombine.runs.all.has(name);
    const alike = names.filter((name) => sizes(name) === sizes(state.runs[0]));
    if (isHere(state.runs[1]) && isHere(state.runs[0]) && !alike.includes(state.runs[1])) state.runs[1] = "";
    state.runs.forEach((name, i) => {
      const select = byId(`run${i}`);
      // A chosen run stays chosen, even if its directory disappears.
      const some = [...(i ? [""] : []), ...(i ? alike : names)];
      const options = name && !some.includes(name) ? [...some, name] : some;
      const text = (one) => (one === "" ? "none" : some.includes(one) || recombine.runs.all.has(one) ? one : `${one} (missing)`);
      const option = (one) => element("option", { value: one, text: text(one) });
      const groups = [...refused()].map(([why, others]) => element("optgroup", { label: why, disabled: true }, ...others.filter((one) => !options.includes(one)).map(option)));
      const made = element("select", {}, ...options.map(option), ...groups);
      if (select.innerHTML !== made.innerHTML) select.replaceChildren(...made.childNodes);
      Object.assign(select, { value: name, title: name }); // a long name may be cut
    });
  }

  // The runs whose models the explorer does not show, by the reason.
  function refused() {
    const found = new Map();
    for (const { name, playable, not_explored: why } of recombine.runs.all.values()) if (playable && why) found.set(why, [...found.get(why) ?? [], name].sort(naming.compare));
    return found;
  }

  // In place of an explorer without a model.
  const nothing = () => [...refused()].map(([why, some]) => `${some[0]}${some.length > 1 ? ` and ${some.length - 1} more` : ""}: ${why}.`).join(" ")
    || "There is no trained model here. A run needs a checkpoint, or must have been exported with its parameters.";

  // When the first run changes to other sizes, change the second: the same model, as similar to the first as possible.
  function follow() {
    const [first, second] = state.runs.map((name) => recombine.runs.all.get(name));
    if (!first || !second || sizes(first.name) === sizes(second.name)) return;
    const likeness = (run) => (run.study === first.study) * 4 + (run.support === first.support) * 2 + (run.seed === first.seed);
    const others = names.map((name) => recombine.runs.all.get(name));
    state.runs[1] = others.filter((run) => run !== first && run.model === second.model && sizes(run.name) === sizes(first.name))
      .sort((a, b) => likeness(b) - likeness(a))[0]?.name ?? "";
  }

  // Enable the form once the models are described.
  function allow(on) {
    document.querySelectorAll("#task > fieldset:not(:first-of-type), #sliders fieldset, #direction").forEach((field) => { field.disabled = !on; });
  }

  // The model whose teacher labels the task. The graph shows its support.
  const teaching = () => described[state.teacher] ?? described[0];

  function slider(label, name, value, low, high, change) {
    const shown = element("span", { class: "value", "aria-hidden": "true", text: number(value, 2) }); // the slider announces its value itself
    const range = element("input", { type: "range", min: low, max: high, step: (high - low) / 100, value, "aria-label": name });
    range.addEventListener("input", () => {
      shown.textContent = number(Number(range.value), 2);
      change(Number(range.value));
    });
    return element("div", { class: "weight" }, element("span", { text: label }), range, shown);
  }

  function drawTask() {
    const { modules, masks } = teaching();
    const fresh = state.fresh !== null; // a fresh teacher's pairs were neither trained on nor held out
    byId("graph-key").hidden = fresh;
    explorable.graph(byId("graph"), { modules, masks: fresh ? { trained: [], held_out: [] } : masks, weights: state.weights, words: { trained: "trained on", held: "held out" },
      choose: (mask) => setWeights([...mask].map(Number)),
      toggle(i) {
        const next = state.weights.map((weight, j) => (j === i ? Number(!weight) : weight));
        if (next.some((weight) => weight > 0)) setWeights(next);
      } });
    drawWeights();
  }

  function drawWeights() {
    const active = state.weights.filter((weight) => weight > 0).length;
    byId("weights").replaceChildren(...state.weights.flatMap((weight, i) => (weight > 0
      ? [slider(theta(i), `weight of module ${i + 1}`, weight, 0.02, 1, (value) => {
        state.weights[i] = value;
        forgetMoved();
        tellLatent();
        update();
      })] : [])));
    byId("weights").querySelectorAll("input").forEach((range) => { range.disabled = active < 2; }); // a single weight has no effect
    tellLatent();
  }

  // The average of a point of the simplex and the mask, as in the paper's Algorithm 1.
  function tellLatent() {
    const sum = state.weights.reduce((total, weight) => total + weight, 0);
    const active = state.weights.filter((weight) => weight > 0);
    byId("weights").querySelectorAll(".weight").forEach((row, i) => {
      const text = `z ${number(0.5 * (active[i] / sum + 1), 2)}`;
      row.querySelector(".value").textContent = text;
      row.querySelector("input").setAttribute("aria-valuetext", text);
    });
  }

  // Discard latents that were moved by hand: they belong to the previous task. Every task has the others.
  function forgetMoved() {
    state.latents = state.latents.map((latent) => (Array.isArray(latent) ? null : latent));
  }

  function setWeights(weights) {
    state.weights = weights;
    forgetMoved();
    byId("combination").value = maskOf(weights);
    if (byId("combination").selectedIndex < 0) byId("combination").value = "";
    drawTask();
    update();
  }

  function tellLength() {
    byId("length-value").textContent = state.length;
    byId("length").setAttribute("aria-valuetext", `${state.length} examples`);
  }

  // If both models have the same teacher, the choice is between it and fresh ones.
  function drawTeacher() {
    const two = described.length === 2 && described[0].teacher !== described[1].teacher;
    if (!two) state.teacher = 0;
    byId("teacher-second").hidden = !two;
    byId("teacher-first").textContent = two ? "the first model's" : "the one it was trained on";
    document.querySelector(`input[name=teacher][value=${state.fresh === null ? ["run", "second"][state.teacher] : "fresh"}]`).checked = true;
    byId("reteach").hidden = state.fresh === null;
  }

  function drawForm() {
    const [first] = described;
    const option = (mask) => element("option", { value: mask, text: modulesOf(mask).map(theta).join(" + ") });
    const group = (label, masks) => (masks.length ? [element("optgroup", { label: masks.length > MOST_OPTIONS ? `${label} (the first ${MOST_OPTIONS} of ${masks.length})` : label }, ...masks.slice(0, MOST_OPTIONS).map(option))] : []);
    const { masks } = teaching();
    // A fresh teacher's combinations were neither trained on nor held out.
    const groups = state.fresh === null ? [["held out", masks.held_out], ["trained on", masks.trained]] : [["combinations", [...masks.held_out, ...masks.trained]]];
    byId("combination").replaceChildren(element("option", { value: "", text: "another" }), ...groups.flatMap(([label, some]) => group(label, some)));
    if (state.weights.length !== first.modules) state.weights = [...(masks.held_out[0] ?? masks.trained[0])].map(Number);
    byId("combination").value = maskOf(state.weights);
    if (byId("combination").selectedIndex < 0) byId("combination").value = "";
    if (!first.lengths.includes(state.length)) state.length = first.trained_length;
    byId("length").max = first.lengths.length - 1;
    byId("length").value = first.lengths.indexOf(state.length);
    tellLength();
    byId("direction").replaceChildren(element("option", { value: 0, text: "the steepest" }),
      ...Array.from({ length: first.input_dim }, (_, i) => element("option", { value: i + 1, text: `input ${i + 1}` })));
    byId("direction").value = state.direction;
    drawTeacher();
    byId("about").textContent = described.map((one) => `${one.model}: step ${one.step.toLocaleString("en")}, ${one.support}`).join(" · ");
    drawTask();
  }

  async function describe() {
    const now = JSON.stringify(chosen());
    if (now === key && described) return;
    byId("summary").replaceChildren(element("p", { class: "soft", text: "loading the models …" }));
    if (answer) document.querySelector(".results").classList.add("stale"); // its plots are those of other models
    allow(false);
    described = null;
    try {
      const { models } = await ask("/api/models", chosen().map((name) => ["run", name]));
      if (JSON.stringify(chosen()) !== now) return; // other models have been chosen meanwhile
      described = models;
    } catch (error) {
      if (JSON.stringify(chosen()) !== now) return;
      byId("summary").replaceChildren();
      throw error;
    }
    key = now;
    byId("summary").replaceChildren();
    drawForm();
    allow(true);
  }

  const KINDS = { trained: ["good", "trained on"], held_out: ["bad", "held out"], other: ["open", "neither trained on nor held out"], control: ["open", "another teacher's modules"] };

  // A model of ours has the same colour on all pages. Two of the same kind are told apart by the first two colours.
  const colors = () => recombine.modelColors(answer.models.map((one) => one.model));
  function dot(i) {
    const made = element("span", { class: "dot", "aria-hidden": "true" });
    made.style.background = colors()[i];
    return made;
  }

  let announcing = null;
  function summary() {
    const badge = (kind) => element("span", { class: `badge ${KINDS[kind][0]}`, text: kind === "control" && state.fresh !== null ? "a fresh teacher" : KINDS[kind][1] });
    const kinds = new Set(answer.models.map((one) => one.kind)); // the two models may have different supports
    byId("summary").replaceChildren(...(kinds.size === 1 ? [badge(answer.models[0].kind)] : []),
      ...answer.models.map((one, i) => element("span", {}, dot(i),
        `${labels()[i]} R² `, element("strong", { text: number(one.r2), class: one.partial ? "partial" : null }), ...(one.used ? [" ", element("span", { class: "badge open", text: answer.asked[i] === TRUE ? "true latent" : inference.isExplicit(answer.asked[i]) ? inference.badge(answer.asked[i]) : "latent moved" })] : []), ...(kinds.size > 1 ? [" ", badge(one.kind)] : []))));
    byId("ridge").textContent = number(answer.ridge);
    clearTimeout(announcing); // announce only when the numbers have settled
    announcing = setTimeout(() => say("announced", [...byId("summary").children].map((part) => part.textContent).join(", ")), 900);
  }

  // Sliders for the inferred latent of each model that has one. Created once, then updated, except while being dragged.
  let moving = "";
  function sliders() {
    const able = answer.models.map((one, i) => (one.inferred && described[i].latent_dim ? one.inferred : null));
    const made = JSON.stringify([labels(), able.map((one) => one?.length)]);
    if (made !== moving) {
      moving = made;
      byId("sliders").replaceChildren(...able.flatMap((one, i) => (one
        ? [element("fieldset", { "data-model": i }, element("legend", { text: `Latent of ${labels()[i]}` }),
          element("p", { class: "key", text: "Move a slider to change the latent and, with it, the prediction. The entries are the model's own: ẑ₁ is not the weight of θ₁." }),
          ...one.map((value, j) => slider(`ẑ${subscript(j)}`, `inferred latent, entry ${j + 1}`, value, -1, 1, (moved) => {
            state.latents[i] = Array.isArray(state.latents[i]) ? [...state.latents[i]] : [...(answer.models[i].used ?? answer.models[i].inferred)];
            state.latents[i][j] = Number(moved.toFixed(4));
            update();
          })),
          element("div", { class: "choices" }, ...[
            ["As inferred", null, "The latent that the model infers from the context"],
            ["The true one", TRUE, "The image of the task's true latent, by a map fitted on trained masks"],
          ].map(([text, latent, title]) => element("button", { type: "button", text, title, onclick: () => { state.latents[i] = latent; update(); } }))))]
        : [])));
    }
    inference.draw(able.map((one, i) => one && { label: labels()[i], latent: state.latents[i], asked: answer.asked[i], byStep: answer.models[i].by_step }), (i, latent) => {
      state.latents[i] = latent;
      update();
    });
    able.forEach((one, i) => {
      if (!one) return;
      const now = (Array.isArray(state.latents[i]) ? state.latents[i] : answer.models[i].used) ?? one;
      const [asInferred, theTrue] = document.querySelectorAll(`#sliders [data-model="${i}"] button`);
      asInferred.setAttribute("aria-pressed", state.latents[i] === null);
      theTrue.setAttribute("aria-pressed", state.latents[i] === TRUE);
      theTrue.disabled = !answer.models[i].true; // unknown for another teacher's modules
      const reach = Math.max(2, ...one.map(Math.abs), ...now.map(Math.abs)) * 1.5;
      document.querySelectorAll(`#sliders [data-model="${i}"] input`).forEach((range, j) => {
        if (range === document.activeElement && Array.isArray(state.latents[i])) return; // the user is dragging it
        Object.assign(range, { min: -reach, max: reach, step: reach / 50, value: now[j] });
        range.nextSibling.textContent = number(now[j], 2);
      });
    });
  }

  // Until the browser has shown what was drawn. A hidden page is not shown.
  const shown = () => new Promise((done) => { requestAnimationFrame(done); setTimeout(done, 100); });
  const count = (name) => { document.documentElement.dataset[name] = String(Number(document.documentElement.dataset[name] ?? 0) + 1); };

  let saving = null; // when a gesture rests: browsers limit how often an address may change
  let asking = false;
  let again = false;
  // One question at a time, and every answer is drawn. Of the questions that arrive meanwhile, only the last is asked.
  async function update() {
    if (!described) return;
    clearTimeout(saving);
    saving = setTimeout(save, 200);
    if (asking) {
      again = true;
      return;
    }
    asking = true;
    const results = document.querySelector(".results");
    results.dataset.asking = "yes";
    const inPage = described.every((one) => one.in_page);
    const busy = setTimeout(() => results.setAttribute("aria-busy", String(!inPage)), 250); // the page shows its answers as they come
    const waiting = setTimeout(() => say("waiting", inPage ? "" : "Still computing. The first answer at each context length takes longer, and while this machine is training, training has priority (increase --share to change that)."), 4000);
    try {
      do {
        again = false;
        const of = described;
        const { weights, length, draw, direction, teacher, fresh } = state;
        const question = { names: chosen(), described, weights: [...weights], length, draw, direction, teacher, fresh, latents: [...state.latents] };
        count("questions");
        for await (const found of recombine.inPage.answersTo(question)) {
          if (!described) return; // other models have been chosen; they are asked once they are loaded
          if (described !== of) {
            again = true;
            break;
          }
          answer = { ...found, asked: question.latents };
          trouble(null);
          summary();
          sliders();
          recombine.explorePlots({ answer, names: labels(), runs: state.runs, about: about() });
          results.classList.remove("stale");
          count("drawings");
          if (!performance.getEntriesByName("explored").length) performance.mark("explored"); // for whoever measures the pace
          await shown();
          if (again) break; // what is drawn next is the latest question
        }
        if (!again) recombine.inPage.prepare(question);
      } while (again && described);
      count("answers");
    } catch (error) {
      trouble(error.message);
      results.classList.add("stale"); // the results shown belong to an earlier task
    } finally {
      asking = false;
      results.dataset.asking = "no";
      clearTimeout(busy);
      clearTimeout(waiting);
      say("waiting", "");
      results.setAttribute("aria-busy", "false");
    }
    if (again && described) update();
  }

  const integer = (text) => (text === null || text === "" ? null : Number.parseInt(text, 10));
  const numbers = (text) => (text ? text.split(",").map(Number) : null);

  recombine.explore = {
    restore(parameters) {
      state.runs = [parameters.get("run0") ?? "", parameters.get("run1") ?? ""];
      state.weights = numbers(parameters.get("weights")) ?? [];
      state.length = integer(parameters.get("length"));
      state.draw = integer(parameters.get("draw")) ?? 0;
      state.teacher = integer(parameters.get("teacher")) === 1 ? 1 : 0;
      state.fresh = integer(parameters.get("fresh"));
      state.direction = integer(parameters.get("direction")) ?? 0;
      state.latents = ["latent0", "latent1"].map((name) => (parameters.get(name) === TRUE ? TRUE : inference.read(parameters.get(name)) ?? numbers(parameters.get(name))));
      key = ""; // so that the form shows the restored state
      fillRuns();
    },
    save,
    async show() {
      document.querySelector(".explorer").classList.toggle("empty", !chosen().length);
      if (!chosen().length) {
        byId("summary").replaceChildren(element("p", { text: `${nothing()} \`recombine serve --demo\` shows models that come with Recombine.` }));
        allow(false);
        return;
      }
      await describe();
      await update();
    },
    news({ changed, gone }) {
      const before = chosen().length;
      if (gone.length || changed.some((run) => names.includes(run.name) !== isExplorable(run))) fillRuns();
      if (!before && !byId("explore").hidden) recombine.explore.show().catch((error) => trouble(error.message)); // the first model has appeared
      const lost = gone.filter((name) => state.runs.includes(name));
      if (lost.length && !byId("explore").hidden) trouble(`${lost.join(", ")}: removed. The results shown were computed before.`);
    },
  };

  [0, 1].forEach((i) => byId(`run${i}`).addEventListener("change", (event) => {
    state.runs[i] = event.target.value;
    state.latents = [null, null];
    if (i === 0) follow();
    fillRuns();
    recombine.explore.show().catch((error) => trouble(error.message));
  }));
  byId("combination").addEventListener("change", (event) => {
    if (event.target.value) setWeights([...event.target.value].map(Number));
  });
  byId("length").addEventListener("input", (event) => {
    state.length = described[0].lengths[Number(event.target.value)];
    tellLength();
    forgetMoved();
    update();
  });
  byId("redraw").addEventListener("click", () => {
    state.draw += 1;
    forgetMoved();
    update();
  });
  byId("direction").addEventListener("change", (event) => { state.direction = Number(event.target.value); update(); });
  document.querySelectorAll("input[name=teacher]").forEach((radio) => radio.addEventListener("change", () => {
    state.fresh = radio.value === "fresh" ? 1 : null;
    state.teacher = radio.value === "second" ? 1 : 0;
    state.latents = [null, null];
    drawForm();
    update();
  }));
  byId("reteach").addEventListener("click", () => {
    state.fresh += 1;
    state.latents = [null, null];
    update();
  });
})();
