"""The first call tells idle threads to sleep, unless the user has chosen how they wait."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import performer

CODE = """
import os
import signal
from pathlib import Path
import torch
import performer

def sleepers():
    # The thread that began a team bears its name too, and libgomp does not count it.
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return max(names.count("performer-idle") - {teams}, 0)

W = performer.draw_projection(16, 8)
q = torch.randn(1, 2, 64, 8)
print(sleepers(), end=" ")
for threads in {threads}:
    torch.set_num_threads(threads)
    torch.randn(10**6).relu()  # torch has its own threads
    if "ROOM_FOR" in os.environ:
        there = len(os.listdir("/proc/self/task")) - {started}
        os.environ["MOST_THREADS"] = str(there + int(os.environ["ROOM_FOR"]))
    for feature_map in ("positive", "trigonometric", "positive"):
        performer.favor_attention(q, q, q, W, feature_map=feature_map)
    print(sleepers(), end=" ")
print(len(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
"""


@pytest.fixture(scope="module")
def preload(tmp_path_factory):
    """A library that fakes the number of processors and a limit on threads."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    source = Path(__file__).parent / "few_threads.c"
    library = tmp_path_factory.mktemp("preload") / "few_threads.so"
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", library, "-ldl"], check=True)
    return str(library)


def numbers(threads: list[int], teams: int = 1, **variables: str) -> list[int]:
    """The sleepers before and after calls with so many threads, and the signals blocked."""
    code = CODE.format(threads=threads, teams=teams, started=1)
    plain = {k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    package = os.path.dirname(os.path.dirname(performer.__file__))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=plain | {"PYTHONPATH": package} | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


@pytest.mark.parametrize("processors", [2, 3, 4])
def test_the_first_call_starts_as_many_as_there_must_be_threads(preload, processors):
    before, after, blocked = numbers([2], LD_PRELOAD=preload, PROCESSORS=str(processors))
    assert before == 0 and blocked == 0
    assert 2 + after == processors + 1, "libgomp spins while it has no more threads than processors"


def test_fewer_threads_later_get_more_sleepers(preload):
    counts = numbers([4, 2, 3], teams=2, LD_PRELOAD=preload, PROCESSORS="4")
    assert counts == [0, 0, 3, 3, 0]  # the first started 1, in a team of 2


def test_a_large_machine_is_left_alone(preload):
    assert numbers([2], teams=0, LD_PRELOAD=preload, PROCESSORS="128") == [0, 0, 0]


@pytest.mark.parametrize("room", range(5))
def test_a_limit_on_threads_costs_neither_the_process_nor_its_signals(preload, room):
    """Three sleepers and the thread that begins their team need room for four."""
    variables = {"LD_PRELOAD": preload, "PROCESSORS": "4", "ROOM_FOR": str(room)}
    assert numbers([2], **variables) == [0, 3 if room == 4 else 0, 0]


def test_one_thread_waits_for_nobody():
    assert numbers([1], teams=0) == [0, 0, 0]


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT"])
def test_the_users_choice_stays(name):
    value = {"OMP_WAIT_POLICY": "active", "GOMP_SPINCOUNT": "300000"}[name]
    assert numbers([2], teams=0, **{name: value}) == [0, 0, 0]
