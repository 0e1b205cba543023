"""`python -m tests.jobs.ray_cluster`: a Ray cluster of two nodes on this machine, until stdin closes.

It needs a separate process: Ray's cluster utility forks, which is not allowed in a process that has started JAX.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ray_cluster() -> Iterator[str]:
    """Yields the address of the cluster while it exists."""
    command = [sys.executable, "-m", __name__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            lines = iter(process.stdout.readline, "")
            address = next((line.split()[1] for line in lines if line.startswith("address ")), None)
            assert address, "Ray did not start"
            yield address
        finally:
            process.stdin.close()
            process.wait(60)


if __name__ == "__main__":
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1)
    sys.stdout.write(f"address {cluster.address}\n")
    sys.stdout.flush()
    sys.stdin.read()
    cluster.shutdown()
