"""Where jobs are executed: on this machine, on a Ray cluster, on a SLURM cluster."""
