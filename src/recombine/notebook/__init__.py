"""The names of `import recombine as rc`: load, train, sample, predict, patch, examine, tables, figures."""
