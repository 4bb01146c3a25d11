"""Where and of what a result is: found, never typed in."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

import performer


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def cache_bytes() -> int:
    """Of the third level; 32 MiB where the system does not tell."""
    try:
        text = Path("/sys/devices/system/cpu/cpu0/cache/index3/size").read_text().strip()
        return int(text.removesuffix("K")) * 1024
    except (OSError, ValueError):
        return 1 << 25


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0))


def commit() -> str | None:
    """`git describe` of the tree that holds this file, with "-dirty" for changed files."""
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


def versions() -> dict[str, Any]:
    return {
        "torch": str(torch.__version__),
        "performer": performer.__version__,
        "commit": commit(),
    }


def describe(isa: str) -> dict[str, Any]:
    return {
        "cpu": cpu_model(),
        "cores": cores(),
        "isa": isa,
        "threads": torch.get_num_threads(),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
        **versions(),
    }


def line(machine: dict[str, Any]) -> str:
    """What `describe` of a machine found, for the head of a page."""
    made = (
        f"torch {machine['torch']}, performer {machine['performer']}, "
        f"commit {machine['commit'] or 'unknown'}"
    )
    if "gpu" in machine:
        copies = machine.get("copy_tb_s")
        best = max(copies, key=copies.__getitem__) if copies else None
        copy = f", copy {copies[best]:.2f} TB/s ({best})" if copies and best else ""
        return f"{machine['gpu']}{copy}; {made}"
    policy = machine["omp_wait_policy"]
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['isa']}, {machine['threads']} "
        f"threads{f' (OMP_WAIT_POLICY={policy})' if policy else ''}; {made}"
    )
