"""Throughput and memory of a training step, beside the peers'."""
