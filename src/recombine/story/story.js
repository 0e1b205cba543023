"use strict";
// The story in four steps, and then free play. One screen: the modules, two plots, and the strip of all pairs.
//
// explorable.story(place, story, { save }) builds the page in `place` and returns { restore, show }. Every answer is
// drawn; while the transformer still computes, the latest question is asked next.
explorable.story = (place, packed, { save = () => {} } = {}) => {
  const { element, theta, modulesOf, maskOf, maskName } = explorable.drawing;
  const { rounded, square, strip } = explorable.storyPlots;
  const { open, make, more, executed, score, novelPart } = explorable.scene;
  const world = open(packed);
  const { facts } = world;
  const { scores, explicit } = facts;
  const MOST_STEPS = explicit.own.length - 1;
  const TOLD = 3; // the number of corrections whose scores the words give
  const SLICE = 28; // milliseconds of the transformer's work between two drawings
  const PACE = 800; // milliseconds between the steps that a page shows by itself
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const trainedFirst = facts.trained[0];
  const heldFirst = facts.held_out[0];
  const lengths = [1, 2, 3, 4, 6, 8, 11, 15, 19, 23, 27, 31, 47, 63].filter((n) => n <= 2 * facts.context + 1);
  if (!lengths.includes(facts.context)) lengths.push(facts.context);
  lengths.sort((a, b) => a - b);

  const state = { step: 0, weights: [], draw: 0, length: facts.context, fresh: null, answers: "inferred", steps: 0, start: "own", moved: null, show: "whole" };
  const even = (mask) => [...mask].map((bit) => Number(bit) / modulesOf(mask).length);
  const kindOf = (mask) => (facts.held_out.includes(mask) ? "held" : facts.trained.includes(mask) ? "trained" : "other");
  const current = () => maskOf(state.weights);
  const pair = () => maskName(current());

  // ---- the steps ---------------------------------------------------------------------------------------------------

  const term = (text) => element("span", { class: "term", text: ` (${text})` });
  const strong = (text) => element("strong", { text });
  const STEPS = [
    { title: "What both practised", words: () => [`Each circle is a skill`, term(`module`), `. A task mixes two skills; ${facts.context} solved examples are all a model sees of it`, term("in-context learning"), `. Both models practised the ${facts.trained.length} grey pairs. Each dot is one question of the task on the left. On practised pairs the answers are right: `, strong("the dots lie on the diagonal.")] },
    { title: "A pair they never saw", words: () => [`Now mix two skills that were never mixed in training`, term("held out"), `. On the whole answer, both models slip alike: R² ${rounded(scores.transformer.ood)} and ${rounded(scores.inferred.ood)} over all such tasks. But a weighted sum of practised tasks explains ${100 - Math.round(100 * facts.novel_share)} % of the variance of such answers. `, strong("Only the new part shows what is left, which no such sum predicts"), term("novel part"), `: there the plain transformer has R² ${rounded(scores.transformer.novel)}, the model with the bottleneck ${rounded(scores.inferred.novel)}.`] },
    { title: "Where does it fail?", words: () => [`The model with the bottleneck works in two parts: it guesses a recipe`, term("latent"), `, then carries the recipe out. Hand it the true recipe, and it `, strong("snaps onto the diagonal"), `: R² ${rounded(scores.true.novel)} on the new part of all such tasks. It could always carry out the new mix; `, strong("it did not fully recognise it."), ` The plain transformer has no recipe to hand over.`] },
    { title: "Let it work it out", words: () => [`Nobody hands it anything now. Instead of one quick guess, it tries its recipe on the ${facts.context} examples, sees the error, corrects the recipe, and repeats`, term("explicit inference: Gauss–Newton steps through its own modules"), `. From its guess, ${TOLD} corrections reach R² ${rounded(explicit.own[TOLD].novel)} on the new part of all such tasks: `, strong("its modules do recombine; the quick guess was the weak part.")] },
    { title: "Play", words: () => [`Click skills to switch them on, drag the mix, take fewer examples, move the recipe by hand, or take a teacher with skills that neither model has met`, term("control"), `.`] },
  ];
  const PLAY = STEPS.length - 1;

  // ---- the page ----------------------------------------------------------------------------------------------------

  const pills = STEPS.map(({ title }, i) => element("button", { type: "button", class: "pill", text: `${i < PLAY ? `${i + 1} · ` : ""}${title}`, onclick: () => go(i) }));
  const words = element("p", { class: "words" });
  const circles = element("div", { class: "graph" });
  const badge = element("p", { class: "kind" });
  const sliders = element("div", { class: "mix" });
  const lengthShown = element("output");
  const length = element("input", { type: "range", min: 0, max: lengths.length - 1, step: 1, "aria-label": "number of examples", oninput: () => { state.length = lengths[Number(length.value)]; forget(); ask(); } });
  const redraw = element("button", { type: "button", text: "Other examples", onclick: () => { state.draw += 1; forget(); ask(); } });
  const stranger = element("button", { type: "button", text: "Unknown skills", title: "A teacher whose modules neither model has met: the control", onclick: () => { state.fresh = state.fresh === null ? 1 : null; state.answers = state.answers === "true" ? "inferred" : state.answers; forget(); ask(); } });

  const choice = (group, value, text, act) => element("button", { type: "button", "data-group": group, "data-value": value, text, onclick: act });
  const views = element("div", { class: "choices views", role: "group", "aria-label": "what the plots show" },
    choice("show", "whole", "the whole answer", () => { state.show = "whole"; draw(true); keep(); }),
    choice("show", "novel", "only the new part", () => { state.show = "novel"; draw(true); keep(); }));
  const latents = element("div", { class: "choices latents", role: "group", "aria-label": "the recipe of the second model" },
    choice("answers", "inferred", "its own guess", () => answerFrom("inferred")),
    choice("answers", "true", "the true recipe", () => answerFrom("true")),
    choice("answers", "explicit", "worked out", () => answerFrom("explicit")));
  const counts = element("div", { class: "choices counts", role: "group", "aria-label": "corrections of the recipe" }, element("span", { text: "corrections", title: "Key k: one more; K: one less" }),
    ...Array.from({ length: MOST_STEPS + 1 }, (_, i) => choice("steps", String(i), String(i), () => stepTo(i))));
  const starts = element("div", { class: "choices starts", role: "group", "aria-label": "where the corrections start" }, element("span", { text: "start from" }),
    choice("start", "own", "its guess", () => startFrom("own")), choice("start", "zero", "zero", () => startFrom("zero")));
  const hand = element("div", { class: "hand" });

  const side = (kind, name, terms, ...controls) => {
    const parts = { big: element("p", { class: "big" }), novel: element("p", { class: "novel" }), all: element("p", { class: "all" }), note: element("p", { class: "note" }) };
    return { ...parts, node: element("div", { class: `side ${kind}` }, element("h2", { text: name }), element("p", { class: "term", text: terms }), parts.big, parts.novel, parts.all, ...controls, parts.note) };
  };
  const sides = [side("first", "Plain transformer", "transformer"), side("second", "With a recipe bottleneck", "hypertransformer", latents, counts, starts, hand)];
  const frames = [element("div", { class: "plot-of" }), element("div", { class: "plot-of" })];
  const plots = [["Plain transformer", "first"], ["With a recipe bottleneck", "second"]].map(([name, kind], i) => square(frames[i], { name, kind }, world.queries.length / facts.inputs));
  const [caption, detail] = [element("span"), element("span", { class: "detail" })];
  const pairs = element("div", { class: "strip" });
  const drawStrip = strip(pairs, facts, choose);
  const spoken = element("p", { class: "spoken", role: "status" });

  place.classList.add("story");
  place.replaceChildren(
    element("div", { class: "top" }, element("h1", { text: "Can a transformer recombine what it knows?" }), element("nav", { "aria-label": "Steps of the story" }, ...pills)),
    words,
    element("div", { class: "stage" },
      element("div", { class: "task" }, circles, badge, sliders, element("div", { class: "examples" }, element("label", { class: "length" }, lengthShown, length), element("div", { class: "choices" }, redraw, stranger))),
      ...[0, 1].map((i) => element("div", { class: "model" }, frames[i], sides[i].node))),
    element("div", { class: "below" }, element("p", { class: "caption" }, element("span", { class: "sign first", text: "●" }), " plain ", element("span", { class: "sign second", text: "■" }), caption, detail), views),
    pairs, spoken);

  // ---- asking and drawing ------------------------------------------------------------------------------------------

  let scene = null;
  let asked = false;
  let working = null;
  let playing = null;

  // Ask for the answers to the task as it is now, before the next frame. Questions in between are the same question.
  function ask() {
    keep();
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      clearTimeout(working);
      const { weights, draw: drawn, length: many, fresh } = state;
      scene = make(world, { weights: [...weights], draw: drawn, length: many, fresh });
      work();
    });
  }

  // A slice of the transformer's answers, drawn; then the next one, unless a newer question comes first.
  function work() {
    const all = more(scene, SLICE);
    draw(false);
    place.dataset.settled = all;
    if (!all) working = setTimeout(work, 0);
    else announce();
  }

  function latent() {
    switch (state.answers) {
      case "true": return scene.right ?? scene.guess;
      case "explicit": return scene.paths[state.start][state.steps];
      case "moved": return Float64Array.from(state.moved);
      default: return scene.guess;
    }
  }

  // The axes are those of the pair, whatever its mix: the reach of the truth over several mixes, rounded up.
  const reaches = new Map();
  function reach() {
    const key = `${current()} ${state.fresh} ${state.show}`;
    if (!reaches.has(key)) {
      let most = 0;
      const active = modulesOf(current());
      for (const share of [0.02, 0.5, 0.98]) {
        const weights = state.weights.map((_, i) => (active.includes(i) ? (i === active[0] ? share : (1 - share) / Math.max(1, active.length - 1)) : 0));
        const at = active.length > 1 ? weights : state.weights;
        const teacher = state.fresh === null ? world.teacher : explorable.teacher.fresh(state.fresh, world.teacher);
        const truth = explorable.teacher.label(teacher, explorable.teacher.latent(at), world.queries);
        const values = state.show === "novel" ? explorable.teacher.outside(world.span, truth) : truth;
        most = Math.max(most, ...values.map(Math.abs));
      }
      reaches.set(key, Math.ceil(20 * 1.06 * most) / 20);
    }
    return reaches.get(key);
  }

  // Only a held-out task has a part that no sum of practised tasks gives.
  const hasNovel = () => kindOf(current()) === "held" && state.fresh === null;

  let drawn = 0;
  function draw(glide) {
    if (!scene) return;
    const held = hasNovel();
    if (!held) state.show = "whole";
    const novel = state.show === "novel";
    const part = (values) => (novel ? novelPart(scene, values) : values);
    const answers = executed(scene, latent());
    const all = scene.done === scene.truth.length;
    const [first, second] = [score(scene, scene.answers.subarray(0, scene.done)), score(scene, answers)];
    const shared = { reach: reach(), words: novel ? "new part, " : "" };
    const told = (found) => `${shared.words}R² ${rounded(novel ? found.novel : found.whole)}`;
    const truth = part(scene.truth);
    const ghost = state.answers === "inferred" ? null : part(executed(scene, scene.guess));
    if (!novel || all) plots[0].draw({ ...shared, truth, answers: part(scene.answers), fresh: scene.done, ghost: null, glide, label: told(first) });
    plots[1].draw({ ...shared, truth, answers: part(answers), fresh: answers.length, ghost, glide: glide && !calm.matches, label: told(second) });
    const mask = current();
    const hyper = state.answers === "explicit" ? explicit[state.start][state.steps] : scores[state.answers] ?? scores.inferred;
    [[first, scores.transformer], [second, hyper]].forEach(([found, measured], i) => {
      const of = sides[i];
      of.big.textContent = rounded(novel ? found.novel : found.whole);
      of.big.dataset.of = novel ? "novel" : "whole";
      of.big.classList.toggle("partial", i === 0 && !all);
      of.novel.textContent = held ? (novel ? `whole: ${rounded(found.whole)}` : `new part: ${rounded(found.novel)}`) : " ";
      const over = state.fresh === null && !(i === 1 && state.answers === "moved") && state.length === facts.context ? (novel ? measured.novel_masks : measured.masks)[mask] : undefined;
      of.all.textContent = over === undefined ? " " : `all ${maskName(mask)}: ${rounded(over)}`;
    });
    sides[0].note.textContent = state.step === 2 || state.step === 3 ? "It has no recipe to hand over or to correct." : "";
    sides[1].note.textContent = ghost && state.step < PLAY ? "○ its first guess" : "";
    pairsOf(hyper, novel);
    controls();
    drawn += 1;
    place.dataset.draws = drawn;
    if (drawn === 1) performance.mark("picture"); // for whoever measures the pace
  }

  // All pairs, with the scores of what the plots show: the same part of the answers, from the same kind of latent.
  function pairsOf(hyper, novel) {
    const part = novel ? "novel_masks" : "masks";
    const lowest = Math.min(...[scores.transformer, ...(state.answers === "explicit" ? explicit[state.start] : [hyper])].flatMap((one) => Object.values(one[part])));
    drawStrip({
      chosen: state.fresh === null ? current() : "",
      first: scores.transformer[part],
      second: hyper[part],
      low: novel ? 0 : Math.max(0, Math.min(0.75, Math.floor(4 * lowest) / 4)), // the same for all corrections
      note: novel ? "practised: nothing new" : "practised",
    });
    const corrections = `${state.steps} correction${state.steps === 1 ? "" : "s"}${state.start === "zero" ? " from zero" : ""}`;
    const how = { true: " (true recipe)", explicit: ` (${corrections})` }[state.answers] ?? (state.step > 1 ? " (own guess)" : "");
    const tasks = (novel ? facts.novel_tasks : 2 * facts.episodes).toLocaleString("en");
    caption.textContent = ` bottleneck${how}: R² of ${novel ? "the new part" : "the whole answer"}`;
    detail.textContent = state.fresh === null ? ` for each pair, over ${tasks} test tasks in all, one seed. Click a pair.` : " for each pair of known skills";
  }

  let speaking = null;
  function announce() {
    clearTimeout(speaking);
    speaking = setTimeout(() => {
      const text = `${pair()}: R² ${sides[0].big.textContent} and ${sides[1].big.textContent}`;
      if (spoken.textContent !== text) spoken.textContent = text;
    }, 900);
  }

  // ---- the controls ------------------------------------------------------------------------------------------------

  const KINDS = { held: "never practised", trained: "practised", other: "never tried" };
  let shownTask = "";
  let shownHand = "";

  function controls() {
    const playful = state.step === PLAY;
    const mask = current();
    badge.textContent = state.fresh === null ? `${pair()}: ${KINDS[kindOf(mask)]}` : "skills that neither model has met";
    badge.dataset.kind = state.fresh === null ? kindOf(mask) : "other";
    const task = JSON.stringify([mask, playful]);
    if (task !== shownTask) {
      shownTask = task;
      explorable.graph(circles, { modules: facts.modules, masks: facts, weights: state.weights, words: KINDS, choose, toggle: playful ? toggle : null });
      mixers();
    }
    lengthShown.textContent = `${state.length} examples`;
    length.value = lengths.indexOf(state.length);
    length.setAttribute("aria-valuetext", `${state.length} examples`);
    length.parentElement.hidden = !playful;
    stranger.hidden = !playful;
    stranger.setAttribute("aria-pressed", state.fresh !== null);
    latents.hidden = state.step < 2 || state.step === 3;
    latents.querySelector('[data-value="explicit"]').hidden = !playful;
    latents.querySelector('[data-value="true"]').disabled = state.fresh !== null;
    counts.hidden = starts.hidden = state.answers !== "explicit";
    views.hidden = !hasNovel();
    for (const button of place.querySelectorAll("button[data-group]")) button.setAttribute("aria-pressed", String(state[button.dataset.group]) === button.dataset.value);
    hand.hidden = !playful || state.answers === "explicit";
    const now = latent();
    const shape = String(now.length);
    if (shape !== shownHand && playful) {
      shownHand = shape;
      hand.replaceChildren(element("p", { class: "term", text: "recipe ẑ, by hand" }), ...[...now].map((_, k) => element("input", { type: "range", min: -4, max: 4, step: 0.02, "aria-label": `entry ${k + 1} of the recipe`, oninput: ({ target }) => move(k, Number(target.value)) })));
    }
    if (playful) hand.querySelectorAll("input").forEach((range, k) => { if (range !== document.activeElement || state.answers !== "moved") range.value = now[k]; });
  }

  // One slider mixes two skills; more skills have one each.
  function mixers() {
    const active = modulesOf(current());
    const row = (label, name, value, change, after = "") => element("label", {}, element("span", { text: label }), element("input", { type: "range", min: 0.02, max: 0.98, step: 0.01, value, "aria-label": name, oninput: ({ target }) => { change(Number(target.value)); forget(); ask(); } }), element("span", { text: after }));
    if (active.length === 2) {
      const [i, j] = active;
      const share = state.weights[j] / (state.weights[i] + state.weights[j]);
      sliders.replaceChildren(row(theta(i), `the mix of ${theta(i)} and ${theta(j)}`, share, (value) => { state.weights[j] = value; state.weights[i] = 1 - value; }, theta(j)));
    } else sliders.replaceChildren(...(active.length > 2 ? active.map((i) => row(theta(i), `weight of ${theta(i)}`, state.weights[i], (value) => { state.weights[i] = value; })) : []));
  }

  // A latent moved by hand belongs to the task before.
  function forget() {
    if (state.answers === "moved") state.answers = "inferred";
    state.moved = null;
  }

  function move(k, value) {
    state.moved = [...latent()];
    state.moved[k] = value;
    state.answers = "moved";
    draw(false);
    keep();
  }

  function toggle(i) {
    const next = state.weights.map((weight, j) => (j === i ? Number(!weight) : weight));
    if (!next.some((weight) => weight > 0)) return;
    const count = next.filter((weight) => weight > 0).length;
    state.weights = next.map((weight) => (weight > 0 ? 1 / count : 0));
    forget();
    ask();
  }

  // The first two steps are about practised pairs and about the others: a click on a pair goes to its step.
  function choose(mask) {
    state.weights = even(mask);
    state.fresh = null;
    forget();
    if (state.step < 2) go(kindOf(mask) === "held" ? 1 : 0, mask);
    else ask();
  }

  function answerFrom(answers) {
    stop();
    state.answers = answers;
    if (answers === "explicit") correct();
    draw(true);
    keep();
  }

  function stepTo(steps) {
    if (steps < 0 || steps > MOST_STEPS) return;
    stop();
    state.steps = steps;
    draw(true);
    keep();
  }

  function startFrom(start) {
    state.start = start;
    correct();
    draw(true);
    keep();
  }

  function stop() {
    clearTimeout(playing);
    playing = null;
  }

  // Correct the recipe step by step, for all to see.
  function correct() {
    stop();
    const last = state.start === "zero" ? MOST_STEPS : TOLD;
    state.steps = calm.matches ? last : 0;
    const next = () => {
      if (state.steps >= last || state.answers !== "explicit") return;
      state.steps += 1;
      draw(true);
      keep();
      playing = setTimeout(next, PACE);
    };
    if (!calm.matches) playing = setTimeout(next, PACE);
  }

  // ---- going through the story -------------------------------------------------------------------------------------

  function go(step, mask = null) {
    if (step < 0 || step > PLAY) return;
    stop();
    state.step = step;
    const kind = kindOf(mask ?? current());
    const wanted = step === 0 ? "trained" : "held";
    if (mask) state.weights = even(mask);
    else if (step < PLAY && (kind !== wanted || state.fresh !== null)) state.weights = even(wanted === "held" ? heldFirst : trainedFirst);
    if (step < PLAY) Object.assign(state, { fresh: null, length: facts.context, start: "own", answers: "inferred", steps: 0, moved: null });
    else if (state.answers === "explicit") Object.assign(state, { start: "own", steps: TOLD });
    if (step < PLAY) state.show = step > 1 ? "novel" : "whole";
    if (step === 1) {
      if (calm.matches) state.show = "novel";
      else playing = setTimeout(() => { state.show = "novel"; draw(true); keep(); }, PACE);
    }
    if (step === 2) {
      if (calm.matches) state.answers = "true";
      else playing = setTimeout(() => { state.answers = "true"; draw(true); keep(); }, PACE);
    }
    if (step === 3) {
      state.answers = "explicit";
      correct();
    }
    tell();
    ask();
  }

  function tell() {
    words.replaceChildren(...STEPS[state.step].words());
    place.dataset.step = state.step;
    pills.forEach((pill, i) => (i === state.step ? pill.setAttribute("aria-current", "step") : pill.removeAttribute("aria-current")));
    pills[state.step].parentElement.scrollLeft = pills[state.step].offsetLeft - 60; // on a phone, the steps are wider than the screen
  }

  addEventListener("keydown", (event) => {
    if (place.hidden || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.target.matches?.("input, select, textarea")) return;
    if (state.answers === "explicit" && event.key.toLowerCase() === "k") stepTo(state.steps + (event.key === "k" ? 1 : -1));
    const by = { ArrowRight: 1, PageDown: 1, ArrowLeft: -1, PageUp: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    go(state.step + by);
  });

  // ---- the address -------------------------------------------------------------------------------------------------

  function keep() {
    const play = state.step === PLAY;
    save([["step", state.step + 1], ["pair", current()], ["weights", play ? state.weights.map((weight) => Number(weight.toFixed(3))).join(",") : null], ["draw", state.draw || null],
      ["length", state.length === facts.context ? null : state.length], ["fresh", state.fresh], ["answers", state.answers === "moved" ? null : state.answers], ["steps", state.answers === "explicit" ? state.steps : null], ["start", state.start === "own" ? null : state.start], ["show", state.show]]);
  }

  // Restore a linked state. What the link does not say, or says wrongly, is as at the start of its step.
  function restore(parameters) {
    const whole = (name, least, most) => {
      const value = Number.parseInt(parameters.get(name) ?? "", 10);
      return value >= least && value <= most ? value : null;
    };
    const step = (whole("step", 1, STEPS.length) ?? 1) - 1;
    const known = [...facts.trained, ...facts.held_out];
    const mask = known.includes(parameters.get("pair")) ? parameters.get("pair") : null;
    state.weights = even(step === 0 ? trainedFirst : heldFirst);
    state.draw = whole("draw", 0, 1e6) ?? 0;
    go(step, step === 0 && mask && kindOf(mask) === "held" ? null : mask);
    const weights = (parameters.get("weights") ?? "").split(",").map(Number);
    if (step === PLAY && weights.length === facts.modules && weights.every((weight) => weight >= 0 && weight <= 1) && weights.some((weight) => weight > 0)) state.weights = weights;
    if (step === PLAY) {
      state.fresh = whole("fresh", 1, 1e6);
      state.length = lengths.find((n) => n === whole("length", 1, 1e3)) ?? facts.context;
    }
    if (["inferred", "true", "explicit"].includes(parameters.get("answers")) && step > 1) {
      stop();
      state.answers = parameters.get("answers");
      state.start = parameters.get("start") === "zero" ? "zero" : "own";
      state.steps = whole("steps", 0, MOST_STEPS) ?? 0;
    }
    if (parameters.get("show") === "whole") {
      if (step === 1) stop();
      state.show = "whole";
    }
    if (parameters.get("show") === "novel" && step > 0) state.show = "novel";
    ask();
  }

  return { restore, keep };
};
