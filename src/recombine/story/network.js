"use strict";
// The two models, in plain JavaScript: the same functions as recombine/model, in double precision.
//
// A model sees N − 1 pairs (x, y) and one last token. Only the last token differs between two queries of a context, and
// only the last token is read after the last block. So the work is split:
//   readContext(model, context)  what all queries share: the first block's keys, values and sums over the context;
//   readLast(model, read, token) the stream of the last token after all blocks, for one query.
// Matrices are flat Float64Arrays, row by row.
const explorable = {};

explorable.network = (() => {
  // ---- packed arrays -------------------------------------------------------------------------------------------

  function bytes(base64) {
    const text = atob(base64);
    const found = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i += 1) found[i] = text.charCodeAt(i);
    return found.buffer;
  }

  const floats = (base64) => Float64Array.from(new Float32Array(bytes(base64)));

  // Half precision: a sign bit, 5 bits of exponent, 10 of fraction. Numbers below 2⁻¹⁴ have no leading 1.
  const HALVES = new Float64Array(1 << 16);
  for (let bits = 0; bits < HALVES.length; bits += 1) {
    const sign = bits & 0x8000 ? -1 : 1;
    const exponent = (bits >> 10) & 31;
    const fraction = (bits & 1023) / 1024;
    HALVES[bits] = exponent ? sign * 2 ** (exponent - 15) * (1 + fraction) : sign * 2 ** -14 * fraction;
  }
  function halves(base64) {
    const packed = new Uint16Array(bytes(base64));
    const found = new Float64Array(packed.length);
    for (let i = 0; i < packed.length; i += 1) found[i] = HALVES[packed[i]];
    return found;
  }

  // ---- functions of numbers ------------------------------------------------------------------------------------

  // erf by the formula 7.1.26 of Abramowitz and Stegun: the error is below 1.5e-7.
  function erf(x) {
    const t = 1 / (1 + 0.3275911 * Math.abs(x));
    const tail = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t * Math.exp(-x * x);
    return x < 0 ? tail - 1 : 1 - tail;
  }

  const gelu = (x) => 0.5 * x * (1 + erf(x * Math.SQRT1_2));
  const geluSlope = (x) => 0.5 * (1 + erf(x * Math.SQRT1_2)) + x * Math.exp(-0.5 * x * x) / Math.sqrt(2 * Math.PI);

  // The blocks need GELU 16,000 times a query: a table, interpolated, with an error below 5e-7.
  const [REACH, PER_UNIT] = [8, 512];
  const TABLE = Float64Array.from({ length: 2 * REACH * PER_UNIT + 2 }, (_, i) => gelu(i / PER_UNIT - REACH));
  function geluAll(values) {
    for (let i = 0; i < values.length; i += 1) {
      const x = values[i];
      if (x >= REACH) continue; // GELU(x) = x
      if (x <= -REACH) values[i] = 0;
      else {
        const at = (x + REACH) * PER_UNIT;
        const k = at | 0;
        values[i] = TABLE[k] + (at - k) * (TABLE[k + 1] - TABLE[k]);
      }
    }
  }

  // ---- linear algebra ------------------------------------------------------------------------------------------

  // X W + b for `rows` rows. W is stored by its columns, so that the inner loop reads in order; four rows and three
  // columns at a time read each number less often. Three rows took 12 % longer.
  function affine({ columns, bias, inputs, outputs }, X, rows, out = new Float64Array(rows * outputs)) {
    const W = columns;
    const d = inputs;
    const h = outputs;
    const [fullRows, fullColumns] = [rows - (rows % 4), h - (h % 3)];
    for (let r = 0; r < fullRows; r += 4) {
      const [a, b, c, e] = [r * d, r * d + d, r * d + 2 * d, r * d + 3 * d];
      for (let o = 0; o < fullColumns; o += 3) {
        const [p, q, s] = [o * d, o * d + d, o * d + 2 * d];
        let a0 = bias[o]; let a1 = bias[o + 1]; let a2 = bias[o + 2];
        let b0 = a0; let b1 = a1; let b2 = a2;
        let c0 = a0; let c1 = a1; let c2 = a2;
        let e0 = a0; let e1 = a1; let e2 = a2;
        for (let k = 0; k < d; k += 1) {
          const x = X[a + k]; const y = X[b + k]; const z = X[c + k]; const t = X[e + k];
          const u = W[p + k];
          a0 += x * u; b0 += y * u; c0 += z * u; e0 += t * u;
          const v = W[q + k];
          a1 += x * v; b1 += y * v; c1 += z * v; e1 += t * v;
          const w = W[s + k];
          a2 += x * w; b2 += y * w; c2 += z * w; e2 += t * w;
        }
        const at = r * h + o;
        out[at] = a0; out[at + 1] = a1; out[at + 2] = a2;
        out[at + h] = b0; out[at + h + 1] = b1; out[at + h + 2] = b2;
        out[at + 2 * h] = c0; out[at + 2 * h + 1] = c1; out[at + 2 * h + 2] = c2;
        out[at + 3 * h] = e0; out[at + 3 * h + 1] = e1; out[at + 3 * h + 2] = e2;
      }
      for (let o = fullColumns; o < h; o += 1) for (let i = r; i < r + 4; i += 1) out[i * h + o] = bias[o] + dot(X, i * d, W, o * d, d);
    }
    for (let i = fullRows; i < rows; i += 1) for (let o = 0; o < h; o += 1) out[i * h + o] = bias[o] + dot(X, i * d, W, o * d, d);
    return out;
  }

  function dot(X, x, Y, y, length) {
    let [even, odd] = [0, 0];
    let k = 0;
    for (; k + 1 < length; k += 2) {
      even += X[x + k] * Y[y + k];
      odd += X[x + k + 1] * Y[y + k + 1];
    }
    return k < length ? even + odd + X[x + k] * Y[y + k] : even + odd;
  }

  // Layer normalisation of every row; without a norm, a copy.
  function normalise(norm, X, rows, width) {
    if (!norm) return X.slice(0, rows * width);
    const out = new Float64Array(rows * width);
    for (let r = 0; r < rows; r += 1) {
      const at = r * width;
      let mean = 0;
      for (let k = 0; k < width; k += 1) mean += X[at + k];
      mean /= width;
      let variance = 0;
      for (let k = 0; k < width; k += 1) variance += (X[at + k] - mean) ** 2;
      const scale = 1 / Math.sqrt(variance / width + norm.eps);
      for (let k = 0; k < width; k += 1) out[at + k] = (X[at + k] - mean) * scale * norm.weight[k] + norm.bias[k];
    }
    return out;
  }

  // ---- a model from its packed arrays --------------------------------------------------------------------------

  function unpack(packed) {
    const values = packed.precision === "half" ? halves(packed.weights) : floats(packed.weights);
    const arrays = {};
    let at = 0;
    for (const [name, shape] of packed.arrays) {
      const size = shape.reduce((product, n) => product * n, 1);
      arrays[name] = { shape, values: values.subarray(at, at + size) };
      at += size;
    }
    const linear = (name) => {
      const { shape: [inputs, outputs], values: W } = arrays[`${name}.weight`];
      const columns = new Float64Array(W.length);
      for (let i = 0; i < inputs; i += 1) for (let o = 0; o < outputs; o += 1) columns[o * inputs + i] = W[i * outputs + o];
      return { inputs, outputs, columns, bias: arrays[`${name}.bias`].values };
    };
    const norm = (name) => (arrays[`${name}.weight`] ? { weight: arrays[`${name}.weight`].values, bias: arrays[`${name}.bias`].values, eps: packed.eps } : null);
    const { options } = packed;
    const blocks = Array.from({ length: options.num_layers }, (_, i) => ({
      attentionNorm: norm(`trunk.blocks.${i}.attention_norm`),
      query: linear(`trunk.blocks.${i}.attention.query`),
      key: linear(`trunk.blocks.${i}.attention.key`),
      value: linear(`trunk.blocks.${i}.attention.value`),
      output: linear(`trunk.blocks.${i}.attention.output`),
      feedforwardNorm: norm(`trunk.blocks.${i}.feedforward_norm`),
      expand: linear(`trunk.blocks.${i}.feedforward.expand`),
      contract: linear(`trunk.blocks.${i}.feedforward.contract`),
    }));
    const tables = Array.from({ length: options.num_layers }, (_, i) => arrays[`trunk.position_biases.${i}.table`]).filter(Boolean);
    const model = { kind: packed.kind, options, blocks, tables, embedding: linear("trunk.embedding"), finalNorm: norm("trunk.final_norm"), readout: linear("readout") };
    if (packed.kind === "hypertransformer") {
      const [modules, hidden, inputs] = arrays.theta.shape;
      Object.assign(model, { latent: linear("latent"), theta: arrays.theta.values, base: arrays.base?.values ?? null, modules, hidden, inputs });
    }
    return model;
  }

  // ---- the trunk -----------------------------------------------------------------------------------------------

  // T5's bucket of the distance from a token to the one that it attends to (see model/layer/position.py).
  function bucket(distance, bidirectional) {
    let buckets = 32;
    let [offset, steps] = [0, Math.max(-distance, 0)];
    if (bidirectional) {
      buckets /= 2;
      offset = distance > 0 ? buckets : 0;
      steps = Math.abs(distance);
    }
    const exact = buckets / 2;
    if (steps < exact) return offset + steps;
    const widening = Math.log(steps / exact) / Math.log(128 / exact);
    return offset + Math.min(exact + Math.floor(widening * (buckets - exact) + 1e-9), buckets - 1);
  }

  // bias(head, from, to) of a block; 0 for a model without positions.
  function positionBias({ tables, options }, layer) {
    const table = tables[Math.min(layer, tables.length - 1)];
    if (!table) return () => 0;
    const known = new Map();
    return (head, from, to) => {
      const distance = to - from;
      if (!known.has(distance)) known.set(distance, bucket(distance, !options.causal));
      return table.values[head * table.shape[1] + known.get(distance)];
    };
  }

  const scaleOf = (model) => (model.options.scale_scores ? 1 / Math.sqrt(model.options.embed_dim / model.options.num_heads) : 1);

  function addTo(X, Y) {
    for (let i = 0; i < X.length; i += 1) X[i] += Y[i];
    return X;
  }

  function feedforward(block, X, rows, width) {
    const inside = affine(block.expand, normalise(block.feedforwardNorm, X, rows, width), rows);
    geluAll(inside);
    return addTo(X, affine(block.contract, inside, rows));
  }

  // The part of the first block that no query changes. For each context token i and head h: Σ_j e^s(i,j) v_j and
  // Σ_j e^s(i,j) over the context, to which a query adds its own term.
  function readContext(model, { x, y }) {
    const [D, H] = [model.options.embed_dim, model.options.num_heads];
    const [n, d, width] = [y.length, model.embedding.inputs - 1, D / H];
    const tokens = new Float64Array(n * (d + 1));
    for (let i = 0; i < n; i += 1) {
      tokens.set(x.subarray(i * d, (i + 1) * d), i * (d + 1));
      tokens[i * (d + 1) + d] = y[i];
    }
    const X = affine(model.embedding, tokens, n);
    const [block] = model.blocks;
    const normed = normalise(block.attentionNorm, X, n, D);
    const [q, k, v] = [block.query, block.key, block.value].map((map) => affine(map, normed, n));
    const [bias, scale, causal] = [positionBias(model, 0), scaleOf(model), model.options.causal];
    const [sums, totals, largest] = [new Float64Array(n * D), new Float64Array(n * H), new Float64Array(n * H)];
    const scores = new Float64Array(n);
    for (let i = 0; i < n; i += 1) {
      for (let h = 0; h < H; h += 1) {
        const seen = causal ? i + 1 : n;
        let most = -Infinity;
        for (let j = 0; j < seen; j += 1) {
          scores[j] = scale * dot(q, i * D + h * width, k, j * D + h * width, width) + bias(h, i, j);
          most = Math.max(most, scores[j]);
        }
        let total = 0;
        for (let j = 0; j < seen; j += 1) {
          const e = Math.exp(scores[j] - most);
          total += e;
          for (let c = 0; c < width; c += 1) sums[i * D + h * width + c] += e * v[j * D + h * width + c];
        }
        totals[i * H + h] = total;
        largest[i * H + h] = most;
      }
    }
    const toQuery = Float64Array.from({ length: n * H }, (_, at) => bias(at % H, Math.floor(at / H), n));
    const fromQuery = Float64Array.from({ length: (n + 1) * H }, (_, at) => bias(at % H, n, Math.floor(at / H)));
    return { n, X, q, k, v, sums, totals, largest, toQuery, fromQuery };
  }

  // The last token's stream after all blocks, and the attention from it in each block, of every head.
  function readLast(model, read, token) {
    const [D, H, L] = [model.options.embed_dim, model.options.num_heads, model.options.num_layers];
    const [n, width, scale, causal] = [read.n, D / H, scaleOf(model), model.options.causal];
    const rows = n + 1;
    const [block] = model.blocks;
    const embedded = affine(model.embedding, token, 1);
    const normed = normalise(block.attentionNorm, embedded, 1, D);
    const [q, k, v] = [block.query, block.key, block.value].map((map) => affine(map, normed, 1));
    const gathered = new Float64Array(rows * D);
    for (let i = 0; i < n; i += 1) {
      for (let h = 0; h < H; h += 1) {
        const at = i * D + h * width;
        const score = causal ? -Infinity : scale * dot(read.q, at, k, h * width, width) + read.toQuery[i * H + h];
        const e = Math.exp(score - read.largest[i * H + h]);
        const total = read.totals[i * H + h] + e;
        for (let c = 0; c < width; c += 1) gathered[at + c] = (read.sums[at + c] + e * v[h * width + c]) / total;
      }
    }
    const attention = [attendFromLast(H, width, n, scale, q, [read.k, k], [read.v, v], (h, j) => read.fromQuery[j * H + h], gathered, n * D)];
    let X = new Float64Array(rows * D);
    X.set(read.X);
    X.set(embedded, n * D);
    if (L === 1) {
      X = addTo(X.slice(n * D), affine(block.output, gathered.subarray(n * D), 1));
      return { X: feedforward(block, X, 1, D), attention };
    }
    X = feedforward(block, addTo(X, affine(block.output, gathered, rows)), rows, D);
    for (let layer = 1; layer < L; layer += 1) {
      const here = model.blocks[layer];
      const stream = normalise(here.attentionNorm, X, rows, D);
      const bias = positionBias(model, layer);
      if (layer === L - 1) {
        const { gathered: last, weights } = attendOnce(here, stream, n, H, width, scale, bias);
        attention.push(weights);
        X = addTo(X.slice(n * D), affine(here.output, last, 1));
        return { X: feedforward(here, X, 1, D), attention };
      }
      const [Q, K, V] = [here.query, here.key, here.value].map((map) => affine(map, stream, rows));
      const all = new Float64Array(rows * D);
      let last = null;
      for (let i = 0; i < rows; i += 1) last = attendFromLast(H, width, causal ? i : n, scale, Q.subarray(i * D), [K], [V], (h, j) => bias(h, i, j), all, i * D);
      attention.push(last);
      X = feedforward(here, addTo(X, affine(here.output, all, rows)), rows, D);
    }
    return null;
  }

  // softmax(q·k + bias) v from one token over the tokens 0 … last, of every head, written into out[at …]. The keys and
  // values may be in two pieces: the context's, and the last token's.
  function attendFromLast(H, width, last, scale, q, keys, values, bias, out, at) {
    const D = H * width;
    const piece = (some, j) => (some.length > 1 && j === last ? [some[1], 0] : [some[0], j * D]);
    return Array.from({ length: H }, (_, h) => {
      const weights = new Float64Array(last + 1);
      for (let j = 0; j <= last; j += 1) {
        const [array, start] = piece(keys, j);
        weights[j] = scale * dot(q, h * width, array, start + h * width, width) + bias(h, j);
      }
      softmax(weights);
      for (let j = 0; j <= last; j += 1) {
        const [array, start] = piece(values, j);
        for (let c = 0; c < width; c += 1) out[at + h * width + c] += weights[j] * array[start + h * width + c];
      }
      return weights;
    });
  }

  // The last block's attention, from the last token alone. q·(W_kᵀ s) = (W_k q)·s and Σ w_j (W_vᵀ s_j) = W_vᵀ Σ w_j s_j,
  // so that no key and no value is formed. (The bias of the keys shifts all scores alike, which softmax ignores.)
  function attendOnce(block, stream, last, H, width, scale, bias) {
    const D = H * width;
    const q = affine(block.query, stream.subarray(last * D, (last + 1) * D), 1);
    const gathered = new Float64Array(D);
    const weights = Array.from({ length: H }, (_, h) => {
      const pulled = new Float64Array(D);
      for (let c = 0; c < width; c += 1) {
        const [at, value] = [(h * width + c) * D, q[h * width + c]];
        for (let k = 0; k < D; k += 1) pulled[k] += value * block.key.columns[at + k];
      }
      const row = new Float64Array(last + 1);
      for (let j = 0; j <= last; j += 1) row[j] = scale * dot(pulled, 0, stream, j * D, D) + bias(h, last, j);
      softmax(row);
      const mixed = new Float64Array(D);
      for (let j = 0; j <= last; j += 1) for (let k = 0; k < D; k += 1) mixed[k] += row[j] * stream[j * D + k];
      for (let c = h * width; c < (h + 1) * width; c += 1) gathered[c] = block.value.bias[c] + dot(mixed, 0, block.value.columns, c * D, D);
      return row;
    });
    return { gathered, weights };
  }

  function softmax(values) {
    const most = values.reduce((a, b) => Math.max(a, b), -Infinity);
    let total = 0;
    for (let i = 0; i < values.length; i += 1) total += values[i] = Math.exp(values[i] - most);
    for (let i = 0; i < values.length; i += 1) values[i] /= total;
  }

  // ---- the models ----------------------------------------------------------------------------------------------

  const finish = (model, X) => normalise(model.finalNorm, X, 1, model.options.embed_dim);

  // The transformer's prediction for one query: the query is the last token, with 0 in place of its label. `stream` is the
  // residual stream before the last norm.
  function predict(model, read, x) {
    const token = new Float64Array(x.length + 1);
    token.set(x);
    const { X, attention } = readLast(model, read, token);
    return { y: affine(model.readout, finish(model, X), 1)[0], attention, stream: X };
  }

  // The hypertransformer's guess of the latent: the last token is 0, so no query can change it.
  function infer(model, read) {
    const { X, attention } = readLast(model, read, new Float64Array(model.embedding.inputs));
    return { z: affine(model.latent, finish(model, X), 1), attention };
  }

  // θ_m x for every input and module, and θ₀ x last where the model has a base: formed once, then any latent is cheap.
  function project(model, x) {
    const { theta, base, modules, hidden, inputs } = model;
    const n = x.length / inputs;
    const parts = modules + (base ? 1 : 0);
    const out = new Float64Array(n * parts * hidden);
    for (let i = 0; i < n; i += 1) {
      for (let m = 0; m < parts; m += 1) {
        const [weights, from] = m < modules ? [theta, m * hidden * inputs] : [base, 0];
        for (let h = 0; h < hidden; h += 1) out[(i * parts + m) * hidden + h] = dot(weights, from + h * inputs, x, i * inputs, inputs);
      }
    }
    return { n, parts, values: out };
  }

  // W(z) x_i = Σ_m z_m θ_m x_i (+ θ₀ x_i).
  function hiddenOf(model, { parts, values }, z, i) {
    const u = new Float64Array(model.hidden);
    for (let m = 0; m < parts; m += 1) {
      const [weight, from] = [m < model.modules ? z[m] : 1, (i * parts + m) * model.hidden];
      for (let h = 0; h < model.hidden; h += 1) u[h] += weight * values[from + h];
    }
    return u;
  }

  // Execute a latent on projected inputs: f(x; z) = readout · GELU(W(z) x).
  function execute(model, projected, z) {
    const out = new Float64Array(projected.n);
    for (let i = 0; i < projected.n; i += 1) {
      const u = hiddenOf(model, projected, z, i);
      let y = model.readout.bias[0];
      for (let h = 0; h < model.hidden; h += 1) y += model.readout.columns[h] * gelu(u[h]);
      out[i] = y;
    }
    return out;
  }

  // ∂f(x_i; z) / ∂z_m = readout · (GELU'(W(z) x_i) ⊙ θ_m x_i), by rows.
  function jacobian(model, projected, z) {
    const J = new Float64Array(projected.n * model.modules);
    for (let i = 0; i < projected.n; i += 1) {
      const u = hiddenOf(model, projected, z, i);
      for (let h = 0; h < model.hidden; h += 1) u[h] = model.readout.columns[h] * geluSlope(u[h]);
      for (let m = 0; m < model.modules; m += 1) J[i * model.modules + m] = dot(u, 0, projected.values, (i * projected.parts + m) * model.hidden, model.hidden);
    }
    return J;
  }

  return { bytes, floats, halves, gelu, geluSlope, dot, unpack, readContext, predict, infer, project, execute, jacobian };
})();
