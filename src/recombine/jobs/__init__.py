"""Many runs: which ones, in what order, and where they are executed."""
