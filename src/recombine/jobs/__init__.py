"""Many runs: which runs to make, in what order, and where to execute them."""
