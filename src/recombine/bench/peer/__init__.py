"""The peers: the same training job, written the way users of other libraries write it.

Each peer is a module with `REQUIRES`, the packages it imports, and `make_stepper`, which readies a job for training.
"""
