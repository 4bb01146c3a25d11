"""Trainings killed at any moment, by themselves or by a user, end as if nothing had been.

PERFORMER_KILLS: how many kills of each kind (default 6).
"""

import os
import random
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from attacked import killed
from conftest import PROGRAM, ROOT
from small_recipes import TINY
from training_runs import digests, flags_of, metrics, train

KILLS = int(os.environ.get("PERFORMER_KILLS", "6"))
# A checkpoint at every step: most of the time is spent inside a save.
PLAIN = ("train.checkpoint_every=1", "train.steps=15", "train.valid_every=5")
# A rate at which losses jump, each jump a spike: the run goes back again and again.
ROLLBACK = (
    "train.checkpoint_every=2",
    "train.steps=25",
    "train.valid_every=0",
    "optimizer.rate=0.05",
    "guard.spike=rollback",
    "guard.spike_window=2",
    "guard.spike_factor=1.02",
)


def everything(out: Path) -> dict[str, dict[str, str]]:
    """The digest of every file of every checkpoint, and the pointers to them."""
    kept = {p.name: digests(p) for p in sorted((out / "checkpoints").iterdir())}
    pointers = {n: (out / n).read_text() for n in ("latest", "best") if (out / n).exists()}
    return {**kept, "pointers": pointers}


def run_killed(recipe: Path, out: Path, settings: tuple[str, ...], draw: random.Random) -> bool:
    """One run that is killed at a random moment; False where it had ended before."""
    command = [str(PROGRAM), "train", str(recipe), "--out", str(out), *flags_of(settings)]
    return killed(command, draw, most=1.5)


def run_stopped(recipe: Path, out: Path, settings: tuple[str, ...], draw: random.Random) -> bool:
    """One run that gets SIGTERM after some lines, SIGKILL after some more; False without a kill."""
    command = [str(PROGRAM), "train", str(recipe), "--out", str(out), *flags_of(settings)]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for _ in range(draw.randrange(6)):
            process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        for _ in range(draw.randrange(3)):
            process.stderr.readline()
        if draw.randrange(3):
            process.kill()
        process.stderr.read()
    # SIGTERM before the program listens ends it like any other signal.
    assert process.returncode in (0, 9, -signal.SIGTERM, -signal.SIGKILL)
    return process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("settings", [PLAIN, ROLLBACK], ids=["plain", "rollback"])
@pytest.mark.parametrize("interrupt", [run_killed, run_stopped], ids=["killed", "stopped"])
def test_an_interrupted_run_ends_as_an_undisturbed_one(
    tmp_path: Path,
    settings: tuple[str, ...],
    interrupt: Callable[[Path, Path, tuple[str, ...], random.Random], bool],
) -> None:
    recipe, straight = tmp_path / "tiny.toml", tmp_path / "straight"
    recipe.write_text(TINY)
    said = train(recipe, straight, *settings)
    assert ("rolled back" in said) == (settings is ROLLBACK)
    draw = random.Random(11)
    kills = runs = 0
    while kills < KILLS:
        broken = tmp_path / f"broken{runs}"
        runs += 1
        # Three on a run: those that come early leave something for the later ones.
        for _ in range(3):
            kills += interrupt(recipe, broken, settings, draw)
        train(recipe, broken, *settings)
        assert everything(straight) == everything(broken), f"after {kills} kills"
        assert metrics(straight) == metrics(broken), f"after {kills} kills"
        assert not list((broken / "checkpoints").glob(".*"))
