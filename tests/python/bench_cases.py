"""What the tests of the benches share."""

import os
import subprocess
import sys
from pathlib import Path

from performer_bench.case import Case
from performer_bench.cpu import Cpu
from performer_bench.session import Plan, Session
from performer_bench.systems import SYSTEMS
from performer_bench.tasks import Task

ROOT = Path(__file__).parents[2]
DIRECTIONS = [False, True]


def small_case(*, causal=False, kernel="positive", dtype="fp32"):
    return Case(2, 2, 48, 16, 32, causal, kernel, dtype)


class Silent:
    def case(self, text):
        pass

    def step(self, text):
        pass

    def result(self, text):
        pass

    def turn(self, number, turns):
        pass


def run_session(*names, case, machine=None, passes=("forward", "forward_backward"), budget=15):
    session = Session(machine or Cpu(), Plan(passes, 2, budget), Silent())
    systems = tuple(system for system in SYSTEMS if system.name in names)
    return session, session.run([Task(case, systems)])[0]


def run_bench(name, *arguments):
    """A bench as its users start it; the finished process."""
    path = f"{ROOT / 'python'}:{os.environ.get('PYTHONPATH', '')}"
    return subprocess.run(
        [sys.executable, ROOT / "bench" / name, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
