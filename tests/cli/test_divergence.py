"""Runs of `performer train` that leave the finite numbers, or go back before they do."""

import json
import math
import re
import struct
from pathlib import Path

import pytest
from conftest import run_program
from training_runs import (
    checkpoint,
    digests,
    metrics,
    reseal,
    steps_with_checkpoints,
    stop_when,
    train,
)

# Eight good steps; the ninth is taken with a huge rate, and nothing after it is finite.
POISON = (
    "schedule.kind=linear",
    "schedule.warmup=7",
    "schedule.final_ratio=1e38",
    "train.steps=20",
    "train.valid_every=0",
)


def test_a_run_that_ends_in_skipped_steps_has_diverged_and_keeps_no_poison(
    recipe: Path, tmp_path: Path
) -> None:
    for rate in ("1e10", "1e20", "1e38"):
        out = tmp_path / rate
        settings = (f"optimizer.rate={rate}", "train.steps=20", "train.checkpoint_every=1")
        said = train(recipe, out, *settings, code=7)
        assert said.splitlines()[-1].count("training diverged") == 1, said
        assert steps_with_checkpoints(out) == [], rate
        assert not (out / "latest").exists()
        assert "training diverged" in train(recipe, out, *settings, code=7)


@pytest.mark.parametrize("max_skipped", [5, 25])
def test_the_last_good_checkpoint_stays_whatever_comes_after_it(
    recipe: Path, tmp_path: Path, max_skipped: int
) -> None:
    out = tmp_path / "run"
    settings = (*POISON, "train.keep_last=1", f"guard.max_skipped={max_skipped}")
    said = train(recipe, out, *settings, "train.checkpoint_every=1", code=7)
    assert "step 9: not saved" in said
    assert "the last good checkpoint is of step 8" in said.splitlines()[-1]
    assert steps_with_checkpoints(out)[-1] == 8
    before = digests(checkpoint(out))
    assert "resuming at step 8" in train(recipe, out, *settings, code=7)
    assert digests(checkpoint(out)) == before
    shown = run_program("eval", out, "--split", "valid", "--max-batches", "1")
    assert shown.returncode == 0, shown.stderr


def test_a_signal_among_skipped_steps_waits_until_they_are_judged(
    recipe: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    longer = ("train.steps=100000", "guard.max_skipped=300", "schedule.final_ratio=1e41")
    settings = (*POISON, *longer, "train.checkpoint_every=4")
    code, said = stop_when(recipe, out, *settings, said="the step is skipped")
    assert code == 7, said
    assert "the last good checkpoint is of step 8" in said.splitlines()[-1]


def test_a_skipped_step_alone_costs_no_checkpoint(recipe: Path, tmp_path: Path) -> None:
    # A spike is what lies above 1.02 times the mean: some steps are skipped, none does harm.
    out = tmp_path / "run"
    settings = ("guard.spike=skip", "guard.spike_factor=1.02", "guard.spike_window=1")
    train(recipe, out, *settings, "train.steps=20", "train.checkpoint_every=1")
    skipped = [r["step"] for r in metrics(out) if r.get("event") == "spike"]
    assert skipped
    assert steps_with_checkpoints(out)[-1] == 20


def poison(folder: Path, file: str, value: float = math.inf, count: int = 1) -> str:
    """Puts numbers into a float32 tensor of the file, as an earlier divergence might have."""
    path = folder / file
    data = bytearray(path.read_bytes())
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    name, entry = next(
        (k, v) for k, v in header.items() if k != "__metadata__" and v["dtype"] == "F32"
    )
    begin = 8 + size + entry["data_offsets"][0]
    data[begin : begin + 4 * count] = struct.pack(f"<{count}f", *[value] * count)
    path.write_bytes(data)
    reseal(folder)
    return name


@pytest.mark.parametrize("file", ["model.safetensors", "trainer.safetensors"])
def test_a_checkpoint_that_is_not_finite_is_refused_by_the_name_of_its_tensor(
    recipe: Path, tmp_path: Path, file: str
) -> None:
    out = tmp_path / "run"
    train(recipe, out, "train.valid_every=0")
    good = digests(checkpoint(out))
    newest = checkpoint(out)
    name = poison(newest, file)
    if file == "model.safetensors":
        for command in (("eval", newest, "--split", "valid"), ("generate", newest, "--n", "1")):
            done = run_program(*command)
            assert done.returncode == 4, done.stderr
            assert f'"{name}" is not finite in 1 of its' in done.stderr
            assert done.stderr.count("\n") == 1
    said = train(recipe, out, "train.valid_every=0")
    assert f'"{name}" is not finite' in said
    assert "resuming at step 9" in said
    assert digests(checkpoint(out)) == good


@pytest.mark.parametrize(
    ("value", "precision", "told"),
    [
        (3e38, "fp32", "is nan in fp32; its weights have diverged"),
        (1e5, "fp16", "is nan in fp16; the numbers may be beyond those of the precision"),
    ],
)
def test_a_loss_that_is_not_finite_is_no_result(
    recipe: Path, tmp_path: Path, value: float, precision: str, told: str
) -> None:
    out = tmp_path / "run"
    train(recipe, out, "train.valid_every=0", "train.steps=1")
    newest = checkpoint(out)
    poison(newest, "model.safetensors", value, 16)
    table = tmp_path / "out.tsv"
    few = ("--split", "valid", "--max-batches", "1", "--precision", precision)
    for flags in (few, (*few, "--json"), (*few, "--per-sequence", table)):
        done = run_program("eval", newest, *flags)
        assert done.returncode == 7, (done.stdout, done.stderr)
        assert done.stdout == ""
        assert f"{newest}: its loss on valid {told}" in done.stderr.splitlines()[-1]
    assert not table.exists()
    if precision == "fp16":
        assert run_program("eval", newest, *few[:-1], "fp32").returncode == 0


ROLLBACK = (
    "guard.spike=rollback",
    "guard.spike_window=4",
    "train.steps=40",
    "train.checkpoint_every=8",
    "train.keep_last=1",
    "train.batch=1",
)


def test_rollbacks_do_not_depend_on_when_a_signal_came(recipe: Path, tmp_path: Path) -> None:
    settings = (*ROLLBACK, "guard.spike_factor=1.02", "guard.max_rollbacks=50")
    straight = tmp_path / "straight"
    said = train(recipe, straight, *settings)
    assert "rolled back to step" in said
    for after in (5, 11, 18, 23):
        broken = tmp_path / f"broken-{after}"
        code, _ = stop_when(recipe, broken, *settings, said=f"step {after}/40")
        assert code == 9
        train(recipe, broken, *settings)
        assert digests(checkpoint(broken)) == digests(checkpoint(straight)), after
        assert metrics(broken) == metrics(straight), after


def test_rollbacks_that_do_not_help_end_the_run(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    settings = (*ROLLBACK, "guard.spike_factor=1.000001", "guard.max_rollbacks=3")
    said = train(recipe, out, *settings, "train.steps=100000", code=7)
    last = said.splitlines()[-1]
    given_up = re.search(r"3 rollbacks to step (\d+) did not help", last)
    assert given_up, said
    assert said.count(f"rolled back to step {given_up[1]},") == 3


def test_a_rollback_without_a_checkpoint_is_kept_in_the_metrics(
    recipe: Path, tmp_path: Path
) -> None:
    rare = ("train.checkpoint_every=1000", "train.valid_every=0")
    settings = (*ROLLBACK, "guard.spike_factor=1.000001", *rare)
    said = train(recipe, tmp_path / "long", *settings, "train.steps=30")
    assert "there is no checkpoint to go back to" in said
    rollbacks = [r for r in metrics(tmp_path / "long") if r.get("event") == "rollback"]
    last = rollbacks[0]["from"]
    assert [r["step"] for r in rollbacks] == [r["from"] for r in rollbacks]
    out = tmp_path / "short"  # ends with that step: the line must be of what is saved
    train(recipe, out, *settings, f"train.steps={last}")
    said = train(recipe, out, *settings, f"train.steps={last + 2}")
    assert "are lost" not in said
    assert [r for r in metrics(out) if r.get("event") == "rollback"] == rollbacks[:1]
