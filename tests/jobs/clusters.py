"""Clusters on this machine for the tests: Ray's and SLURM's."""

import getpass
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


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


CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_min_interval=0
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
{partitions}
"""
PARTITIONS = "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP"
# Jobs of the other partition take the place of the first's, after a time of grace.
PREEMPTING = """PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=low Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=10
PartitionName=high Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF"""


@contextmanager
def slurm_cluster(place: Path, partitions: str = PARTITIONS) -> Iterator[None]:
    """While the cluster exists, SLURM's commands find it through environment variables."""
    if missing := [name for name in ("slurmctld", "slurmd", "sbatch", "srun") if find(name) is None]:
        pytest.skip(f"needs {missing[0]}, from the packages of make system-deps")
    for name in ("state", "spool"):
        (place / name).mkdir()
    ports = [free_port(), free_port()]
    text = CONFIGURATION.format(
        host=socket.gethostname(), user=getpass.getuser(), place=place, ports=ports, partitions=partitions
    )
    (place / "slurm.conf").write_text(text)
    os.environ["SLURM_CONF"] = str(place / "slurm.conf")
    daemons = [
        subprocess.Popen([str(find(name)), "-D", *more]) for name, more in (("slurmctld", ["-i"]), ("slurmd", []))
    ]
    ended = threading.Event()
    hurrying = threading.Thread(target=hurry, args=(ended,), daemon=True)
    try:
        wait_for_node(place)
        hurrying.start()
        yield
    finally:
        ended.set()
        subprocess.run(["scancel", f"--user={getpass.getuser()}"], check=False, capture_output=True)
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(30)
        del os.environ["SLURM_CONF"]


def find(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for_node(place: Path) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = subprocess.run(["sinfo", "--noheader", "--format=%T"], capture_output=True, text=True, check=False)
        if found.stdout.strip() == "idle":
            return
        time.sleep(0.2)
    logs = [path.read_text()[-1000:] for path in place.glob("*.log")]
    raise AssertionError("\n".join(["SLURM did not start", *logs]))


def hurry(ended: threading.Event) -> None:
    """Start requeued tasks at once; SLURM would let them wait for two minutes."""
    while not ended.wait(0.5):
        command = ["squeue", "--noheader", "--array", "--states=PENDING", "--format=%i %r"]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        for line in found.stdout.splitlines():
            if line.endswith("BeginTime"):
                update = ["scontrol", "update", f"JobId={line.split()[0]}", "StartTime=now"]
                subprocess.run(update, capture_output=True, check=False)
