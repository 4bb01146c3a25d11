"""The first call tells idle threads to sleep, unless the user has chosen how they wait."""

import os
import subprocess
import sys

import pytest

import performer

CODE = """
import os
from pathlib import Path
import torch
import performer

def sleepers():
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return names.count("performer-idle")

torch.set_num_threads({threads})
W = performer.draw_projection(16, 8)
q = torch.randn(1, 2, 64, 8)
print(sleepers() > 0, end=" ")
for feature_map in ("positive", "trigonometric", "positive"):
    performer.favor_attention(q, q, q, W, feature_map=feature_map)
chosen = [name for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT") if name in os.environ]
print(sleepers() > 0, *chosen)
"""


def words(threads: int, **chosen: str) -> list[str]:
    """Whether there are sleepers before and after calls, and the variables seen."""
    plain = {k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    package = os.path.dirname(os.path.dirname(performer.__file__))
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(threads=threads)],
        env=plain | {"PYTHONPATH": package} | chosen,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_the_import_starts_nothing_and_the_first_call_does():
    assert words(2) == ["False", "True"]


def test_one_thread_waits_for_nobody():
    assert words(1) == ["False", "False"]


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT"])
def test_the_users_choice_stays(name):
    value = {"OMP_WAIT_POLICY": "active", "GOMP_SPINCOUNT": "300000"}[name]
    assert words(2, **{name: value}) == ["False", "False", name]
