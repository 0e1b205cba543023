"use strict";
// Explicit inference: improve a latent by damped Gauss–Newton steps on the context, through the model's own modules.
//
//   r_i = y_i − f(x_i; z)      J = ∂f/∂z      z ← z + (JᵀJ + λ I)⁻¹ Jᵀ r      λ = damping · mean(diag JᵀJ)
//
// A step that does not fit the context better is not taken, and the next one is damped more (Levenberg–Marquardt): the
// same steps as in recombine/measure/latent/explicit_inference.py.
explorable.inference = (() => {
  const { execute, jacobian } = explorable.network;
  const [FIRST_DAMPING, AFTER_BETTER, AFTER_WORSE] = [0.01, 0.3, 3];

  // Solve A s = b for a symmetric positive definite A of size m, by Cholesky's factors.
  function solve(A, b, m) {
    const L = new Float64Array(m * m);
    for (let i = 0; i < m; i += 1) {
      for (let j = 0; j <= i; j += 1) {
        let sum = A[i * m + j];
        for (let k = 0; k < j; k += 1) sum -= L[i * m + k] * L[j * m + k];
        L[i * m + j] = i === j ? Math.sqrt(Math.max(sum, 1e-300)) : sum / L[j * m + j];
      }
    }
    const s = Float64Array.from(b);
    for (let i = 0; i < m; i += 1) {
      for (let k = 0; k < i; k += 1) s[i] -= L[i * m + k] * s[k];
      s[i] /= L[i * m + i];
    }
    for (let i = m - 1; i >= 0; i -= 1) {
      for (let k = i + 1; k < m; k += 1) s[i] -= L[k * m + i] * s[k];
      s[i] /= L[i * m + i];
    }
    return s;
  }

  function squaredError(y, predicted) {
    let sum = 0;
    for (let i = 0; i < y.length; i += 1) sum += (y[i] - predicted[i]) ** 2;
    return sum;
  }

  // The move from z that one step proposes. `projected` are the context's inputs, as `network.project` returns them.
  function propose(model, projected, residual, z, damping) {
    const m = model.modules;
    const J = jacobian(model, projected, z);
    const [A, b] = [new Float64Array(m * m), new Float64Array(m)];
    for (let i = 0; i < residual.length; i += 1) {
      for (let p = 0; p < m; p += 1) {
        b[p] += J[i * m + p] * residual[i];
        for (let q = 0; q < m; q += 1) A[p * m + q] += J[i * m + p] * J[i * m + q];
      }
    }
    let trace = 0;
    for (let p = 0; p < m; p += 1) trace += A[p * m + p];
    for (let p = 0; p < m; p += 1) A[p * m + p] += damping * trace / m;
    return solve(A, b, m);
  }

  // The latents before the first step and after each: count + 1 of them.
  function steps(model, projected, y, start, count) {
    const path = [Float64Array.from(start)];
    let damping = FIRST_DAMPING;
    for (let i = 0; i < count; i += 1) {
      const z = path[i];
      const before = execute(model, projected, z);
      const move = propose(model, projected, y.map((value, n) => value - before[n]), z, damping);
      const next = z.map((value, p) => value + move[p]);
      const better = squaredError(y, execute(model, projected, next)) < squaredError(y, before);
      path.push(better ? next : z);
      damping *= better ? AFTER_BETTER : AFTER_WORSE;
    }
    return path;
  }

  return { steps, solve };
})();
