"""`performer convert` of a run that the program has trained."""

import json
from pathlib import Path

import pytest
from conftest import Run, answer
from small_recipes import one_layer, text_data
from training_runs import checkpoint, digests, trained

EXACT = "model.attention.kind=exact"
WORDS = "It is a truth universally acknowledged, that a single man\nmust be in want of a wife.\n\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    (folder / "text.txt").write_text(WORDS * 20)
    recipe = one_layer(
        text_data(folder / "text.txt"),
        model='positions = "rotary"',
        train="steps = 30\nbatch = 4",
    )
    return trained(folder, recipe, EXACT, "optimizer.rate=0.02")


def loss(model: Path, *flags: str) -> float:
    text = model.parent / "held_out.txt"
    text.write_text(WORDS[20:] * 3)
    (result,) = answer("eval", model, "--data", text, *flags)["splits"].values()
    return float(result["loss"])


def test_the_exact_model_is_the_same(tmp_path: Path, run: Path) -> None:
    done = answer("convert", run, tmp_path / "out", "--attention", "exact", "--check")
    assert done["attention"] == "exact" and done["checked"]
    assert loss(tmp_path / "out") == loss(run)


def test_the_swap_is_that_of_eval(tmp_path: Path, run: Path) -> None:
    done = answer("convert", run, tmp_path / "out", "--features", 8, "--near", 4, "--check")
    assert (done["features"], done["near"]) == (8, 4)
    settings = ("kind=favor", "features=8", "near=4")
    assert loss(tmp_path / "out") == loss(run, *(f"--set=model.attention.{s}" for s in settings))
    assert loss(tmp_path / "out") != loss(run)


def test_features_are_fitted_to_a_run(tmp_path: Path, run: Path) -> None:
    text = run.parent / "text.txt"
    small = ("--features", 8, "--near", 4, "--fit-rows", 4, "--fit-length", 32)
    answer("convert", run, tmp_path / "fitted", "--fit", text, "--fit-steps", 8, *small)
    attention = json.loads((tmp_path / "fitted" / "config.json").read_text())["model"]["attention"]
    assert (attention["kernel"], attention["projection"]) == ("loglinear", "fitted")
    assert abs(loss(tmp_path / "fitted") - loss(run)) < 0.2  # how near: test_convert_fit.py


def test_line_ends_are_tokens_of_the_text_to_fit_on(
    tmp_path: Path, run: Path, program: Run
) -> None:
    text = tmp_path / "lines.txt"
    text.write_text("a\n\nb\n" * 50)
    done = program("convert", run, tmp_path / "out", "--calibrate", text, "--fit-length", 16)
    assert done.returncode == 0, done.stderr
    assert "250 tokens" in done.stderr  # 5 bytes, 50 times


def test_it_remembers_where_it_came_from(tmp_path: Path, run: Path) -> None:
    done = answer("convert", checkpoint(run), tmp_path / "out")
    assert done["near"] == 64  # the default of causal models
    assert done["source"].startswith("step-000000030 sha256:")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["source"] == done["source"]
    assert digests(tmp_path / "out")["tokenizer.json"] == digests(checkpoint(run))["tokenizer.json"]


def test_another_attention_is_no_teacher(tmp_path: Path, run: Path, program: Run) -> None:
    answer("convert", run, tmp_path / "favor")
    done = program("convert", tmp_path / "favor", tmp_path / "out")
    assert done.returncode == 2, done.stderr
    assert "layer 0 has favor attention" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_damaged_run_is_refused(tmp_path: Path, run: Path, program: Run) -> None:
    answer("convert", run, tmp_path / "exact", "--attention", "exact")
    weights = tmp_path / "exact" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    done = program("convert", tmp_path / "exact", tmp_path / "out")
    assert done.returncode == 4, done.stderr
    assert "model.safetensors: damaged" in done.stderr
    assert not (tmp_path / "out").exists()
