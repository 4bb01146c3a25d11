"""Runs of the program on hostile ground, and the verdict on how each ended."""

import os
import random
import resource
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from conftest import PROGRAM, ROOT

PROCESSOR_SECONDS = 10  # more is a hang
WALL_SECONDS = 60  # what waits takes no processor time; a crowded machine takes its own time
MEMORY = 4 << 30  # bytes of data; the attacked models have a few thousand parameters
REFUSALS = (2, 3, 4, 5)  # usage or recipe, bad input, corrupt file, a file that cannot be written


@dataclass
class Ending:
    """How a run ended: its exit code, negative for a signal, None where it hung."""

    code: int | None
    stdout: str
    stderr: str

    @property
    def last_line(self) -> str:
        return self.stderr.rstrip("\n").rpartition("\n")[2]


def limits(memory: int) -> Callable[[], None]:
    def set_limits() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_SECONDS, PROCESSOR_SECONDS + 1))
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    return set_limits


def attack(*args: object, memory: int = MEMORY, folder: Path = ROOT) -> Ending:
    try:
        done = subprocess.run(
            [str(PROGRAM), *map(str, args)],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=WALL_SECONDS,
            preexec_fn=limits(memory),
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        return Ending(None, "", (late.stderr or b"").decode(errors="backslashreplace"))
    out, said = (text.decode(errors="backslashreplace") for text in (done.stdout, done.stderr))
    return Ending(done.returncode, out, said)


def killed(command: Sequence[str], draw: random.Random, most: float) -> bool:
    """Runs a command until a timer of its own kills it, of which its program knows nothing, after
    `most` seconds or less; False where it had ended before."""
    # Processor time for the arithmetic, the clock's for what waits on the disk.
    timer = draw.choice((signal.ITIMER_PROF, signal.ITIMER_REAL))
    seconds = draw.uniform(0.1, most)

    def set_timer() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.setitimer(timer, seconds)

    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        preexec_fn=set_timer,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGPROF, -signal.SIGALRM), done.stderr.decode()
    return done.returncode != 0


def complaint_about(ending: Ending, names: Sequence[str]) -> str:
    """What is wrong with a run that may be refused; empty: nothing. names: one must be told."""
    if ending.code is None:
        return "hangs"
    if ending.code < 0:
        return f"killed by signal {-ending.code}: {ending.last_line}"
    if ending.code == 0:
        return ""
    if ending.code not in REFUSALS:
        return f"exit code {ending.code}: {ending.last_line}"
    if not ending.last_line.startswith("performer: "):
        return f"no message but {ending.last_line!r}"
    if names and not any(name in ending.stderr for name in names):
        return f"names no file: {ending.last_line}"
    return ""


def report(complaints: Sequence[str]) -> str:
    """For an assertion: how many, and the first of them, each with what to run again."""
    shown = "\n".join(complaints[:20])
    return f"{len(complaints)} findings\n{shown}"
