"""`performer train --init`: a run that begins with the weights of another."""

import json
from pathlib import Path

import pytest
from conftest import Run


def metrics(run: Path) -> list[dict[str, float]]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines if '"loss"' in line]


@pytest.fixture
def exact(tmp_path: Path, recipe: Path, program: Run) -> Path:
    done = program(
        "train", recipe, "--out", tmp_path / "exact", "--set", "model.attention.kind=exact"
    )
    assert done.returncode == 0, done.stderr
    return tmp_path / "exact"


def test_a_run_begins_where_the_other_ended(
    tmp_path: Path, recipe: Path, program: Run, exact: Path
) -> None:
    out = tmp_path / "tuned"
    arguments = ("train", recipe, "--out", out, "--set", "model.attention.kind=exact")
    done = program(*arguments, "--init", exact, "--set", "train.log_every=1")
    assert done.returncode == 0, done.stderr
    assert "tensors" in done.stderr
    first = metrics(out)[0]["loss"]
    fresh = tmp_path / "fresh"
    assert (
        program(*arguments[:3], fresh, *arguments[4:], "--set", "train.log_every=1").returncode == 0
    )
    assert first < metrics(fresh)[0]["loss"]


def test_another_attention_takes_the_weights(
    tmp_path: Path, recipe: Path, program: Run, exact: Path
) -> None:
    out = tmp_path / "favor"
    arguments = ("train", recipe, "--init", exact, "--out", out)
    done = program(*arguments, "--set", "model.attention.kind=favor")
    assert done.returncode == 0, done.stderr
    again = program(*arguments, "--set", "model.attention.kind=favor")
    assert again.returncode == 0, again.stderr
    assert "nothing to do" in again.stderr


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("model.dim=32", "model.dim is"),
        ("model.heads=4", "model.heads is"),
        ("model.norm=rms", 'model.norm is "layer" there and "rms" here'),
    ],
)
def test_another_model_is_refused_by_name(
    tmp_path: Path, recipe: Path, program: Run, exact: Path, assignment: str, words: str
) -> None:
    done = program("train", recipe, "--out", tmp_path / "b", "--init", exact, "--set", assignment)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "--init" in done.stderr


def test_a_run_goes_on_with_its_own_beginning_alone(
    tmp_path: Path, recipe: Path, program: Run, exact: Path
) -> None:
    out = tmp_path / "own"
    assert program("train", recipe, "--out", out).returncode == 0
    done = program("train", recipe, "--out", out, "--init", exact)
    assert done.returncode == 2
    assert "began with weights of its own" in done.stderr
