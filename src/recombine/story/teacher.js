"use strict";
// The teacher and its tasks: labels, contexts, and scores. The same functions as recombine/task and recombine/measure.
explorable.teacher = (() => {
  const { floats, gelu, geluSlope, dot } = explorable.network;
  const REACH = Math.sqrt(3); // inputs are uniform on [−√3, √3]: mean 0, variance 1

  // A small generator of random numbers (mulberry32): the same seed gives the same numbers in every browser.
  function random(seed) {
    let state = seed >>> 0;
    return () => {
      state = (state + 0x6d2b79f5) >>> 0;
      let t = Math.imul(state ^ (state >>> 15), state | 1);
      t = (t + Math.imul(t ^ (t >>> 7), t | 61)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
    };
  }

  function unpack(packed) {
    const [modules, hidden, inputs] = packed.shape;
    return { modules, hidden, inputs, theta: floats(packed.theta), a: floats(packed.a) };
  }

  // A teacher of the same sizes that no model has met: normal entries, cut at two standard deviations.
  function fresh(seed, { modules, hidden, inputs }) {
    const next = random(seed * 7919 + 17);
    const normal = () => {
      for (;;) {
        const value = Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next());
        if (Math.abs(value) <= 2) return value;
      }
    };
    const draw = (length, scale) => Float64Array.from({ length }, () => scale * normal());
    return { modules, hidden, inputs, theta: draw(modules * hidden * inputs, 1 / Math.sqrt(modules)), a: draw(hidden, 1 / Math.sqrt(hidden)) };
  }

  // The latent that Algorithm 1 makes of a point of the simplex: its average with the mask.
  function latent(weights) {
    const sum = weights.reduce((total, weight) => total + weight, 0);
    return Float64Array.from(weights, (weight) => (weight > 0 ? 0.5 * (weight / sum + 1) : 0));
  }

  // Σ_m z_m θ_m, of `hidden` rows.
  function mix(teacher, z) {
    const size = teacher.hidden * teacher.inputs;
    const W = new Float64Array(size);
    for (let m = 0; m < teacher.modules; m += 1) if (z[m]) for (let i = 0; i < size; i += 1) W[i] += z[m] * teacher.theta[m * size + i];
    return W;
  }

  // The largest singular value of W: the root of the largest eigenvalue of WᵀW, by Jacobi's rotations.
  function operatorNorm(W, rows, columns) {
    const n = columns;
    const A = new Float64Array(n * n);
    for (let r = 0; r < rows; r += 1) for (let i = 0; i < n; i += 1) for (let j = 0; j < n; j += 1) A[i * n + j] += W[r * n + i] * W[r * n + j];
    for (let sweep = 0; sweep < 30; sweep += 1) {
      let [off, on] = [0, 0];
      for (let i = 0; i < n; i += 1) for (let j = 0; j < n; j += 1) if (i === j) on += A[i * n + j] ** 2; else off += A[i * n + j] ** 2;
      if (off <= 1e-24 * on) break;
      for (let p = 0; p < n; p += 1) {
        for (let q = p + 1; q < n; q += 1) {
          const apq = A[p * n + q];
          if (apq === 0) continue;
          const ratio = (A[q * n + q] - A[p * n + p]) / (2 * apq);
          const t = (ratio < 0 ? -1 : 1) / (Math.abs(ratio) + Math.sqrt(ratio * ratio + 1));
          const c = 1 / Math.sqrt(t * t + 1);
          const s = t * c;
          for (let k = 0; k < n; k += 1) {
            const [x, y] = [A[k * n + p], A[k * n + q]];
            A[k * n + p] = c * x - s * y;
            A[k * n + q] = s * x + c * y;
          }
          for (let k = 0; k < n; k += 1) {
            const [x, y] = [A[p * n + k], A[q * n + k]];
            A[p * n + k] = c * x - s * y;
            A[q * n + k] = s * x + c * y;
          }
        }
      }
    }
    let largest = 0;
    for (let i = 0; i < n; i += 1) largest = Math.max(largest, A[i * n + i]);
    return Math.sqrt(largest);
  }

  // v = z / ‖W(z)‖, in which the weights of the task network are linear.
  function scaled(teacher, z) {
    const norm = operatorNorm(mix(teacher, z), teacher.hidden, teacher.inputs);
    return Float64Array.from(z, (value) => value / norm);
  }

  // y = aᵀ GELU(W x), W = Σ_m v_m θ_m, for inputs by rows.
  function label(teacher, z, x) {
    const { hidden, inputs, a } = teacher;
    const W = mix(teacher, scaled(teacher, z));
    return Float64Array.from({ length: x.length / inputs }, (_, i) => {
      let y = 0;
      for (let h = 0; h < hidden; h += 1) y += a[h] * gelu(dot(W, h * inputs, x, i * inputs, inputs));
      return y;
    });
  }

  // The direction in which a task is steepest at x: its gradient Wᵀ (a ⊙ GELU'(W x)), of length 1.
  function steepest(teacher, z, x) {
    const { hidden, inputs, a } = teacher;
    const W = mix(teacher, scaled(teacher, z));
    const gradient = new Float64Array(inputs);
    for (let h = 0; h < hidden; h += 1) {
      const slope = a[h] * geluSlope(dot(W, h * inputs, x, 0, inputs));
      for (let k = 0; k < inputs; k += 1) gradient[k] += slope * W[h * inputs + k];
    }
    const norm = Math.max(Math.hypot(...gradient), 1e-12);
    return gradient.map((value) => value / norm);
  }

  // The inputs of a context. A longer context keeps the examples of a shorter one.
  function contextInputs(draw, length, inputs) {
    const next = random(draw * 104729 + 1);
    return Float64Array.from({ length: length * inputs }, () => (2 * next() - 1) * REACH);
  }

  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

  // R² over the first queries, relative to the mean of the context's labels.
  function r2(truth, predicted, contextY) {
    const centre = mean(contextY);
    let [error, spread] = [0, 0];
    for (let i = 0; i < predicted.length; i += 1) {
      error += (truth[i] - predicted[i]) ** 2;
      spread += (truth[i] - centre) ** 2;
    }
    return 1 - error / spread;
  }

  // What the span of the trained tasks leaves of values at all queries: the novel part. `span` is orthonormal, by rows.
  function outside({ values, directions }, y) {
    const out = Float64Array.from(y);
    const inside = new Float64Array(directions);
    for (let i = 0; i < y.length; i += 1) for (let k = 0; k < directions; k += 1) inside[k] += values[i * directions + k] * y[i];
    for (let i = 0; i < y.length; i += 1) for (let k = 0; k < directions; k += 1) out[i] -= values[i * directions + k] * inside[k];
    return out;
  }

  // R² of the novel part alone, given the novel parts of truth and prediction.
  function novelR2(truth, predicted) {
    let [error, spread] = [0, 0];
    for (let i = 0; i < truth.length; i += 1) {
      error += (truth[i] - predicted[i]) ** 2;
      spread += truth[i] ** 2;
    }
    return 1 - error / spread;
  }

  return { REACH, unpack, fresh, latent, scaled, operatorNorm, label, steepest, contextInputs, random, r2, outside, novelR2 };
})();
