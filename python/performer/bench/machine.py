"""Where and of what a result is: found, never typed in."""

import os
import platform
import subprocess
from pathlib import Path

import torch

import performer
from performer.bench.ceilings import instruction_set


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0))


def commit() -> str | None:
    """`git describe` of the tree that holds this package, with "-dirty" for changed files."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    folder = Path(__file__).parent
    try:
        tracked = subprocess.run(
            ["git", "ls-files", "--error-unmatch", __file__], cwd=folder, capture_output=True
        )
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if tracked.returncode == done.returncode == 0 else None


def describe() -> dict[str, str | int | None]:
    return {
        "cpu": cpu_model(),
        "cores": cores(),
        "isa": instruction_set(),
        "threads": torch.get_num_threads(),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
        "torch": str(torch.__version__),
        "performer": performer.__version__,
        "commit": commit(),
    }
