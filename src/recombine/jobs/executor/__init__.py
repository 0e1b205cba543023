"""Where jobs are executed: on this machine, on a Ray cluster, on a SLURM cluster.

An executor is a generator of `JobEvent`s, which keeps these rules:

- For each job it yields `started` once, then any number of `progress` and `said`, then one of `done`, `failed` or
  `interrupted`, which ends the job.
- A job that fails is tried again `retries` times, told by `said`, unless its news is `hopeless`. What it had saved is
  there: `execute_job` resumes it.
- When `stop` is requested, no job is started any more, and those under way save and end as `interrupted`.
- A process calls `prepare(threads=1)` before its first job: how many threads there are is part of what a run's bits
  depend on, and a run that was begun with another number does not resume.
- When the generator is closed, no process is left behind.
"""
