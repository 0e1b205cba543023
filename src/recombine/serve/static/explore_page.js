"use strict";
// Answers the explorer's questions in the page, as the server does: the same inputs, the models' own weights, and the
// functions that the story runs. Weights and inputs are requested once.
//
// A model with a latent answers at once. A transformer needs milliseconds for each input, so its answers come in slices:
// every slice is an answer to the whole question, in which the inputs that are not yet computed are null.
recombine.inPage = (() => {
  const { ask } = recombine;
  const { floats, unpack, readContext, infer, project, execute, dot } = explorable.network;
  const { steps, solve } = explorable.inference;
  const { more, trueLatent } = explorable.scene;
  const teachers = explorable.teacher;
  const MOST_STEPS = 10; // of explicit inference
  const FIRST_SLICE = 8; // milliseconds of a transformer's work until the first drawing: a drag must not wait
  const SLICE = 30;
  const FEWEST = 12; // queries before R² is shown
  const RIDGE = 1; // the strength of the reference

  // ---- what is requested -----------------------------------------------------------------------------------------

  // The results of the last few requests, by their parameters.
  function remembering(most, request) {
    const known = new Map();
    return (...given) => {
      const key = JSON.stringify(given);
      if (!known.has(key)) known.set(key, request(...given).catch((error) => { known.delete(key); throw error; }));
      if (known.size > most) known.delete(known.keys().next().value);
      return known.get(key);
    };
  }

  const affine = (packed) => packed && { weights: floats(packed.weights), offset: floats(packed.offset) };

  // Of a run that is still training, each step that was described.
  const modelOf = remembering(4, async (name) => {
    const { model, maps } = await ask("/api/weights", [["run", name]]);
    return { net: unpack(model), probe: affine(maps.probe), map: affine(maps.to_inferred) };
  });

  const sceneOf = remembering(8, async (name, draw, fresh) => {
    const packed = await ask("/api/scene", [["run", name], ["draw", draw], ...(fresh === null ? [] : [["fresh", fresh]])]);
    return { ...packed, teacher: teachers.unpack(packed.teacher), context: floats(packed.context), queries: floats(packed.queries), base: floats(packed.base) };
  });

  // ---- a task ----------------------------------------------------------------------------------------------------

  // The line through the base point, along an axis or where the task is steepest.
  function lineOf({ teacher, base, line }, z, axis) {
    const d = teacher.inputs;
    const direction = axis ? Float64Array.from({ length: d }, (_, i) => Number(i === axis - 1)) : teachers.steepest(teacher, z, base);
    const along = dot(base, 0, direction, 0, d);
    const t = Array.from({ length: line }, (_, i) => (2 * i / (line - 1) - 1) * teachers.REACH);
    const x = Float64Array.from({ length: line * d }, (_, at) => base[at % d] + (t[Math.floor(at / d)] - along) * direction[at % d]);
    return { direction, t, x };
  }

  // The order in which a transformer answers: two queries, then a point of the line, whose points get closer and closer.
  function orderOf(queries, line) {
    const points = [...Array(line).keys()];
    const stride = (i) => [8, 4, 2, 1].find((one) => i % one === 0);
    points.sort((a, b) => stride(b) - stride(a) || a - b);
    const order = [];
    for (let q = 0, p = 0; q < queries || p < line;) {
      if (q < queries) order.push(q++);
      if (q < queries) order.push(q++);
      if (p < line) order.push(queries + points[p++]);
    }
    return order;
  }

  const plain = (attention) => attention.map((heads) => heads.map((weights) => [...weights]));
  const rowsOf = (x, d, some) => Float64Array.from(some.flatMap((row) => [...x.subarray(row * d, (row + 1) * d)]));

  // All that does not depend on latents that are replaced. While these are moved, nothing of it is computed again.
  let last = { key: "" };
  function compose(key, models, given, { weights, length, direction }) {
    if (last.key === key) return last;
    const { teacher, queries } = given;
    const d = teacher.inputs;
    const z = teachers.latent(weights);
    const x = given.context.subarray(0, length * d);
    const line = lineOf(given, z, direction);
    const at = new Float64Array(queries.length + line.x.length);
    at.set(queries);
    at.set(line.x, queries.length);
    const all = new Float64Array(x.length + at.length);
    all.set(x);
    all.set(at, x.length);
    const labels = teachers.label(teacher, z, all);
    const [y, truth] = [labels.subarray(0, length), labels.subarray(length)];
    const count = queries.length / d;
    const task = { key, given, d, z, x, y, line, at, truth, count };
    task.ridge = ridge(task);
    task.players = models.map((model) => (model.net.kind === "transformer" ? asTransformer : withLatent)(model, task));
    last = task;
    return task;
  }

  function asTransformer(model, { given, d, x, y, at, count }) {
    const order = orderOf(count, given.line);
    const asked = { world: { queries: rowsOf(at, d, order), transformer: model.net, teacher: { inputs: d } }, read: readContext(model.net, { x, y }), answers: new Float64Array(order.length), done: 0 };
    const found = { y: Array(order.length).fill(null), streams: [] };
    const player = { model, found, attention: null };
    const seen = (i, { stream, attention }) => {
      found.y[order[i]] = asked.answers[i];
      if (order[i] === 0) player.attention = plain(attention);
      if (order[i] < given.read) found.streams.push(stream);
    };
    return Object.assign(player, { work: (milliseconds) => more(asked, milliseconds, 2, seen) });
  }

  function withLatent(model, { given, z, x, y, at, truth, count }) {
    const { z: guess, attention } = infer(model.net, readContext(model.net, { x, y }));
    const context = project(model.net, x);
    const paths = {};
    const path = (start) => paths[start] ??= steps(model.net, context, y, start === "zero" ? guess.map(() => 0) : guess, MOST_STEPS);
    const projected = project(model.net, at);
    const predict = (latent) => [...execute(model.net, projected, latent)];
    const scores = {};
    const byStep = (start) => scores[start] ??= path(start).map((latent) => r2(truth, predict(latent).slice(0, count), y));
    const right = model.map && trueLatent({ teacher: given.teacher, map: model.map, hyper: model.net }, z);
    return { model, guess, right, attention: plain(attention), path, byStep, predict, work: () => true };
  }

  // R² of ridge regression on the context: centred, so that the intercept is not penalised.
  function ridge({ d, x, y, at, truth, count }) {
    const n = y.length;
    const mean = Float64Array.from({ length: d }, (_, k) => { let sum = 0; for (let i = 0; i < n; i += 1) sum += x[i * d + k]; return sum / n; });
    const centre = y.reduce((sum, value) => sum + value, 0) / n;
    const [A, b] = [new Float64Array(d * d), new Float64Array(d)];
    for (let i = 0; i < n; i += 1) for (let p = 0; p < d; p += 1) {
      b[p] += (x[i * d + p] - mean[p]) * (y[i] - centre);
      for (let q = 0; q < d; q += 1) A[p * d + q] += (x[i * d + p] - mean[p]) * (x[i * d + q] - mean[q]);
    }
    for (let p = 0; p < d; p += 1) A[p * d + p] += RIDGE;
    const w = solve(A, b, d);
    return r2(truth, Array.from({ length: count }, (_, i) => centre + dot(at, i * d, w, 0, d) - dot(mean, 0, w, 0, d)), y);
  }

  function r2(truth, predicted, y) {
    const some = [...predicted.keys()].filter((i) => predicted[i] !== null);
    const found = some.length ? teachers.r2(some.map((i) => truth[i]), some.map((i) => predicted[i]), y) : NaN;
    return Number.isFinite(found) ? found : null;
  }

  // ---- an answer -------------------------------------------------------------------------------------------------

  const refuse = (text) => { throw new Error(text); };

  // The latent in place of the inferred one, if any; null where the latent stays as inferred.
  function replaced(player, asked, right) {
    if (!asked) return null;
    if (!player.guess) return refuse("A transformer has no latent that can be replaced.");
    if (asked.start) return player.path(asked.start)[asked.steps];
    if (asked === "true") return right ?? refuse("The model was trained on another teacher, so there is no true latent.");
    return asked.length === player.guess.length ? Float64Array.from(asked) : refuse(`The latent has ${player.guess.length} numbers.`);
  }

  function decode(probe, streams) {
    if (!probe || !streams.length) return { decoded: null, deviation: null };
    const size = probe.offset.length;
    const all = streams.map((stream) => [...probe.offset].map((offset, m) => stream.reduce((sum, value, k) => sum + value * probe.weights[k * size + m], offset)));
    const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
    const decoded = [...probe.offset.keys()].map((m) => mean(all.map((one) => one[m])));
    return { decoded, deviation: decoded.map((centre, m) => Math.sqrt(mean(all.map((one) => (one[m] - centre) ** 2)))) };
  }

  function answerOf(task, player, described, asked, kind) {
    const { truth, count, y: contextY } = task;
    const { model, guess, found } = player;
    const right = kind === "control" ? null : player.right ?? null;
    const used = replaced(player, asked, right);
    const y = guess ? player.predict(used ?? guess) : found.y;
    if (y.some((value) => value !== null && !Number.isFinite(value))) refuse("The model computes a number that is not finite.");
    const queries = y.slice(0, count);
    const computed = queries.filter((value) => value !== null).length;
    return {
      kind, model: described.model, y: queries, slice: y.slice(count),
      r2: computed >= Math.min(FEWEST, count) ? r2(truth, queries, contextY) : null,
      partial: y.includes(null),
      true: right && [...right], inferred: guess ? [...guess] : null, used: used && [...used],
      by_step: asked?.start ? player.byStep(asked.start) : null,
      ...decode(model.probe, guess ? [used ?? guess] : found.streams),
      attention: player.attention,
    };
  }

  function kindOf(described, teaching, { weights, fresh }) {
    if (fresh !== null || described.teacher !== teaching.teacher) return "control";
    const mask = weights.map((weight) => (weight > 0 ? "1" : "0")).join("");
    return described.masks.trained.includes(mask) ? "trained" : described.masks.held_out.includes(mask) ? "held_out" : "other";
  }

  // The answers to a question, each more complete than the one before. `asked`: { names, described, weights, length, draw,
  // fresh, teacher, direction, latents }.
  async function* answers(asked) {
    const { names, described, weights, length, draw, fresh, teacher, direction, latents } = asked;
    const teaching = described[teacher];
    if (!weights.some((weight) => weight > 0)) refuse("at least one module must be active");
    if (!weights.every((weight) => weight >= 0 && Number.isFinite(weight))) refuse("every weight must be a number from 0");
    if (!(direction >= 0 && direction <= teaching.input_dim)) refuse(`the direction must be an axis from 1 to ${teaching.input_dim}`);
    if (described.some((one) => one.modules !== teaching.modules || one.input_dim !== teaching.input_dim)) refuse("both models must have been trained with the same sizes");
    const models = await Promise.all(names.map((name, i) => modelOf(name, described[i].step)));
    const given = await sceneOf(names[teacher], draw, fresh);
    const most = given.context.length / teaching.input_dim;
    if (!(Number.isInteger(length) && length >= 1 && length <= most)) refuse(`the number of examples must be from 1 to ${most}`);
    const key = JSON.stringify([names, described.map((one) => one.step), weights, length, draw, fresh, teacher, direction]);
    const task = compose(key, models, given, asked);
    const { line, count, truth, d } = task;
    for (let slice = FIRST_SLICE; ; slice = SLICE) {
      const ended = task.players.map((player) => player.work(slice)).every(Boolean);
      yield {
        latent: [...task.z], context: { y: [...task.y] }, truth: { y: [...truth.subarray(0, count)], slice: [...truth.subarray(count)] },
        slice: { t: line.t, context: [...task.y.keys()].map((i) => dot(task.x, i * d, line.direction, 0, d)) },
        ridge: task.ridge,
        models: task.players.map((player, i) => answerOf(task, player, described[i], latents[i], kindOf(described[i], teaching, asked))),
      };
      if (ended) return;
    }
  }

  // The same from whoever can answer. The server gives one answer, which is complete.
  async function* answersTo(asked) {
    if (asked.described.every((one) => one.in_page)) {
      yield* answers(asked);
      return;
    }
    const { names, weights, length, draw, direction, teacher, fresh, latents } = asked;
    yield await ask("/api/explore", [
      ...names.map((name) => ["run", name]), ["weights", weights.join(",")], ["length", length], ["draw", draw],
      ["direction", direction], ["teacher_of", teacher], ...(fresh === null ? [] : [["fresh", fresh]]),
      ...latents.flatMap((one, i) => (one && names[i] ? [[`latent${i}`, one.toString()]] : [])),
    ]);
  }

  // Request what the buttons "Other examples" and "a fresh one" will need, while the visitor looks: making inputs may take
  // the server a while the first time.
  let soon = null;
  function prepare({ names, described, draw, fresh, teacher }) {
    clearTimeout(soon);
    if (!described.every((one) => one.in_page)) return;
    soon = setTimeout(async () => {
      await sceneOf(names[teacher], draw + 1, fresh).catch(() => {});
      await sceneOf(names[teacher], draw, (fresh ?? 0) + 1).catch(() => {});
    }, 1500);
  }

  return { answers, answersTo, prepare };
})();
