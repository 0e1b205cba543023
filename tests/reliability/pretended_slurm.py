"""Stand-ins for SLURM's programs that start each task at once, in the directory of the command."""

from pathlib import Path

SBATCH = """#!/bin/sh
[ "$1" = --test-only ] && exit 0
cp "$1" "$0.$$"
last=$(sed -n 's/^#SBATCH --array=.*0-\\([0-9]*\\)%.*/\\1/p' "$1")
export SLURM_NTASKS=1 SLURM_JOB_NUM_NODES=1 SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0
for task in $(seq 0 "${last:-0}"); do
    number="$$"
    if [ -n "$last" ]; then
        number="$$_$task"
        export SLURM_ARRAY_JOB_ID="$$" SLURM_ARRAY_TASK_ID="$task"
    fi
    touch "$(dirname "$0")/running/$number"
    (SLURM_JOB_ID="$$" bash "$0.$$"; rm "$(dirname "$0")/running/$number") > /dev/null 2>&1 &
done
echo "Submitted batch job $$"
"""
# After the options that submitit gives it comes the command.
SRUN = """#!/bin/sh
shift 5
exec "$@"
"""
SQUEUE = """#!/bin/sh
for number in $(ls "$(dirname "$0")/running"); do echo "$number RUNNING"; done
"""


def pretend_slurm(directory: Path) -> None:
    """Put the programs into a directory, which goes first on the PATH."""
    (directory / "running").mkdir(parents=True)
    for name, text in {"sbatch": SBATCH, "srun": SRUN, "squeue": SQUEUE, "scancel": "#!/bin/sh\n"}.items():
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)
