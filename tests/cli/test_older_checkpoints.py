"""What older programs have written is read: tests/fixtures says how each fixture was made."""

import json
import shutil
from pathlib import Path

import pytest
from conftest import ROOT, answer, run_program
from training_runs import checkpoint, metrics, reseal, steps_with_checkpoints, train

FIXTURES = ROOT / "tests/fixtures"
EXACTLY = 2e-6  # as in test_golden.py: what instruction sets differ by


UNROUNDED = ["2c2be99", "642545a"]  # checkpoints of version 1 and 2


@pytest.fixture(params=[*UNROUNDED, "2febf82"])  # and 3
def older(request: pytest.FixtureRequest) -> Path:
    return Path(FIXTURES / request.param)


@pytest.fixture
def run(older: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(older / "run", tmp_path / "run"))


def test_an_older_checkpoint_scores_what_its_program_said(older: Path, run: Path) -> None:
    (then,) = json.loads((older / "eval.json").read_text())["splits"].values()
    (now,) = answer("eval", run, "--split", "valid")["splits"].values()
    for key in ("samples", "targets"):
        assert now[key] == then[key]
    assert now["loss"] == pytest.approx(then["loss"], rel=EXACTLY)


def test_an_older_checkpoint_generates_what_its_program_did(older: Path, run: Path) -> None:
    then = json.loads((older / "generate.json").read_text())["sequences"]
    now = answer("generate", run, "--n", "2", "--length", "20", "--seed", "3")["sequences"]
    assert [s["text"] for s in now] == [s["text"] for s in then]


def test_an_older_run_goes_on_as_by_its_own_program(older: Path, run: Path) -> None:
    said = train(older / "recipe.toml", run, "train.steps=8")
    assert "resuming at step 4" in said
    unrounded = older.name in UNROUNDED
    assert ("model.attention.rounding is none, as in" in said) == unrounded
    then = [json.loads(line) for line in (older / "eight_steps.jsonl").read_text().splitlines()]
    for name in ("loss", "gradient_norm", "valid_loss"):
        want = [line[name] for line in then if name in line]
        assert [line[name] for line in metrics(run) if name in line] == pytest.approx(
            want, rel=EXACTLY
        )
        assert len(want) in (4, 8)
    assert steps_with_checkpoints(run)[-1] == 8
    # From there on it is a run of today, which lacks nothing.
    saved = json.loads((checkpoint(run) / "trainer.json").read_text())
    assert saved["data"]["train"]["samples"] == 12
    manifest = json.loads((checkpoint(run) / "manifest.json").read_text())
    assert manifest["version"] == 4
    rounding = "none" if unrounded else "bf16"
    assert rounding_of(run) == rounding
    config = json.loads((checkpoint(run) / "config.json").read_text())
    assert config["model"]["attention"]["near"] == (0 if unrounded else 4)
    assert config["model"]["kv_heads"] == 0
    assert config["source"] == ""
    # The recipe does not name the key: the run still decides.
    assert "resuming at step 8" in train(older / "recipe.toml", run, "train.steps=9")
    assert rounding_of(run) == rounding


def rounding_of(run: Path) -> str:
    config = json.loads((checkpoint(run) / "config.json").read_text())
    return str(config["model"]["attention"]["rounding"])


@pytest.mark.parametrize("older", [FIXTURES / name for name in UNROUNDED], ids=UNROUNDED)
def test_another_rounding_is_refused_and_a_restart_takes_that_of_today(
    older: Path, run: Path
) -> None:
    again = ("train", older / "recipe.toml", "--out", run)
    done = run_program(*again, "--set", "model.attention.rounding=bf16")
    assert done.returncode == 2, done.stderr
    assert 'model.attention.rounding is "none" there and "bf16" here' in done.stderr
    done = run_program(*again, "--restart")
    assert done.returncode == 0, done.stderr
    assert rounding_of(run) == "bf16"


def test_a_damaged_checkpoint_leaves_the_rounding_to_an_older_one(
    recipe: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    train(recipe, out, "model.attention.rounding=none", "train.steps=2", "train.checkpoint_every=1")
    (checkpoint(out) / "config.json").write_text("{}")
    said = train(recipe, out, "train.steps=2", "train.checkpoint_every=1")
    assert "resuming at step 1" in said
    assert rounding_of(out) == "none"


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("config.json", "guard.max_rollbacks"),
        ("config.json", "model.attention.rounding"),
        ("config.json", "model.attention.near"),
        ("config.json", "model.kv_heads"),
        ("config.json", "source"),
        ("config.json", "model.attention.kernel"),
        ("trainer.json", "regular"),
        ("trainer.json", "data"),
        ("trainer.json", "reporter.lines"),
    ],
)
def test_a_checkpoint_of_today_may_not_lack_what_an_older_one_may(
    recipe: Path, tmp_path: Path, name: str, key: str
) -> None:
    out = tmp_path / "run"
    train(recipe, out, "train.steps=2", "train.valid_every=0")
    file = checkpoint(out) / name
    values = json.loads(file.read_text())
    *sections, last = key.split(".")
    place = values
    for section in sections:
        place = place[section]
    del place[last]
    file.write_text(json.dumps(values))
    reseal(checkpoint(out))
    done = run_program("train", recipe, "--out", out, "--set", "train.valid_every=0")
    assert done.returncode == 4, done.stderr
    assert f"{name}: {key} is missing" in done.stderr
