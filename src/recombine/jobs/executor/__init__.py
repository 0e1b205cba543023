"""The executors of jobs: this machine, a Ray cluster, a SLURM cluster.

An executor is a generator of `JobEvent`s that follows these rules:

- For each job it yields `started` once, then any number of `progress` and `said`, then one of `done`, `failed` or
  `interrupted`, which ends the job.
- A job that fails is retried up to `retries` times, announced by `said`, unless its news is `hopeless`. `execute_job`
  resumes it from what it had saved.
- When `stop` is requested, no further job is started. Running jobs save, and end as `interrupted`.
- A process calls `prepare(threads=1)` before its first job. The number of threads affects the bits of a run, so a run
  that was started with another number does not resume.
- When the generator is closed, no process is left behind.
"""
