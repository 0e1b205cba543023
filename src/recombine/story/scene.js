"use strict";
// The scene of a task: its context, the two models' answers, and the hypertransformer's latents. It knows no page.
//
// The hypertransformer answers at once. The transformer needs milliseconds for each of the 64 test inputs, so its answers
// come in slices: `more(scene, milliseconds)` computes as many as fit, and the page draws after every slice.
explorable.scene = (() => {
  const { floats, unpack, readContext, predict, infer, project, execute } = explorable.network;
  const { steps } = explorable.inference;
  const teachers = explorable.teacher;

  // Both models, the teacher and the test inputs, unpacked.
  function open({ models: [first, second], facts }) {
    const transformer = unpack(first);
    const hyper = unpack(second);
    const teacher = teachers.unpack({ shape: [facts.modules, facts.hidden, facts.inputs], theta: facts.theta, a: facts.a });
    const queries = floats(facts.queries);
    return {
      facts, transformer, hyper, teacher, queries,
      projected: project(hyper, queries),
      span: { values: floats(facts.span), directions: facts.directions },
      map: { weights: floats(facts.map_weights), offset: floats(facts.map_offset) },
    };
  }

  // The image of the task's true latent in the model's own latent, by the map that was fitted on practised tasks.
  function trueLatent({ teacher, map, hyper }, z) {
    const v = teachers.scaled(teacher, z);
    return map.offset.map((offset, k) => v.reduce((sum, value, m) => sum + value * map.weights[m * hyper.modules + k], offset));
  }

  // `task`: { weights, draw, length, fresh }. A fresh teacher has other modules, so there is no true latent.
  function make(world, task) {
    const { hyper, transformer, queries } = world;
    const teacher = task.fresh === null ? world.teacher : teachers.fresh(task.fresh, world.teacher);
    const z = teachers.latent(task.weights);
    const x = teachers.contextInputs(task.draw, task.length, teacher.inputs);
    const y = teachers.label(teacher, z, x);
    const truth = teachers.label(teacher, z, queries);
    const guess = infer(hyper, readContext(hyper, { x, y })).z;
    const context = project(hyper, x);
    const most = world.facts.explicit.own.length - 1;
    const paths = {
      own: steps(hyper, context, y, guess, most),
      zero: steps(hyper, context, y, new Float64Array(hyper.modules), most),
    };
    return {
      world, task, z, x, y, truth, guess, paths,
      right: task.fresh === null ? trueLatent(world, z) : null,
      read: readContext(transformer, { x, y }),
      answers: new Float64Array(truth.length),
      done: 0,
    };
  }

  // Let the transformer answer more of the test inputs: at least `least`, then until the time is over. `seen(i, output)`
  // is told of each.
  function more(scene, milliseconds, least = 4, seen = () => {}) {
    const { queries, transformer, teacher: { inputs } } = scene.world;
    const end = performance.now() + milliseconds;
    for (let count = 0; scene.done < scene.answers.length && (count < least || performance.now() < end); count += 1) {
      const output = predict(transformer, scene.read, queries.subarray(scene.done * inputs, (scene.done + 1) * inputs));
      scene.answers[scene.done] = output.y;
      seen(scene.done, output);
      scene.done += 1;
    }
    return scene.done === scene.answers.length;
  }

  // The hypertransformer's answers from any latent.
  const executed = (scene, latent) => execute(scene.world.hyper, scene.world.projected, latent);

  // Scores of answers to the first test inputs. The novel part needs all of them, and a task with one.
  function score(scene, answers) {
    const { span } = scene.world;
    const whole = teachers.r2(scene.truth, answers, scene.y);
    if (answers.length < scene.truth.length) return { whole, novel: null };
    return { whole, novel: teachers.novelR2(teachers.outside(span, scene.truth), teachers.outside(span, answers)) };
  }

  const novelPart = (scene, values) => teachers.outside(scene.world.span, values);

  return { open, make, more, executed, score, novelPart, trueLatent };
})();
