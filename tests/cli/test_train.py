"""`performer train`: learning, files, refusals and exit codes of the real program."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from conftest import PROGRAM, ROOT, answer, run_program
from small_recipes import labelled_rows
from training_runs import checkpoint, digests, metrics, train


def test_training_lowers_the_loss_and_the_files_are_there(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(recipe, out, "train.steps=40", "optimizer.rate=0.01", "train.valid_every=20")
    losses = [r["loss"] for r in metrics(out) if "loss" in r]
    assert len(losses) == 40
    assert sum(losses[-5:]) < sum(losses[:5]) - 0.5
    names = {p.name for p in checkpoint(out).iterdir()}
    assert names == {
        "config.json",
        "manifest.json",
        "model.safetensors",
        "tokenizer.json",
        "trainer.json",
        "trainer.safetensors",
    }
    assert (out / "loss.svg").read_text().startswith("<svg")
    assert list(out.glob("events.out.tfevents.*"))
    said = train(recipe, out, "train.steps=40", "optimizer.rate=0.01", "train.valid_every=20")
    assert "finished before" in said


def test_bad_recipes_are_refused_with_a_reason(recipe: Path, tmp_path: Path) -> None:
    cases = {
        "model.layer=3": "did you mean model.layers?",
        "model.layers=many": "model.layers must be a whole number",
        "model.heads=3": "model.heads",
        "model.attention.kind=soft": "must be one of favor, exact",
        "train.steps=0": "train.steps must be at least 1, got 0",
        "model.causal=false": "model.causal: must be true",
    }
    for setting, words in cases.items():
        done = run_program("train", recipe, "--out", tmp_path / "run", "--set", setting)
        assert done.returncode == 2, (setting, done.stderr)
        assert words in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
    assert run_program("train", tmp_path / "none.toml").returncode == 2
    assert run_program("train").returncode == 2
    missing = run_program("train", recipe, "--set", "data.train=none.fasta")
    assert missing.returncode == 3, missing.stderr
    assert "none.fasta" in missing.stderr


def test_a_folder_that_cannot_be_written_ends_with_no_space(recipe: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = run_program("train", recipe, "--out", blocked / "run")
    assert done.returncode == 5, done.stderr
    assert str(blocked) in done.stderr


def test_a_full_disk_leaves_the_run_and_the_old_checkpoint_alive(
    recipe: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    train(recipe, out, "train.steps=3", "train.valid_every=0")
    before = digests(checkpoint(out))
    flags = "--set train.steps=5 --set train.checkpoint_every=4 --set train.valid_every=0"
    # No file may grow beyond 8 KiB: every later save fails as on a full disk.
    command = f"ulimit -f 8; exec {PROGRAM} train {recipe} --out {out} {flags}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "step 4: not saved" in done.stderr, done.stderr
    assert "step 5/5" in done.stderr
    assert done.returncode == 5
    assert digests(checkpoint(out)) == before
    train(recipe, out, "train.steps=5", "train.valid_every=0")


def test_eval_and_generate_answer_in_json(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(recipe, out)
    result = answer("eval", out, "--split", "valid", "--max-batches", "2")["splits"]["valid"]
    valid = [r for r in metrics(out) if "valid_loss" in r]
    best = min(valid, key=lambda r: r["valid_loss"])
    assert result["loss"] == pytest.approx(best["valid_loss"], rel=1e-6)
    shown = run_program("eval", out, "--split", "valid", "--max-batches", "2", "--baselines")
    assert shown.returncode == 0, shown.stderr
    assert f"{result['perplexity']:.3f}" in shown.stdout
    assert "frequencies" in shown.stdout
    length = ("--length", "40", "--seed", "3")
    whole = answer("generate", out, "--n", "2", *length)
    first = [s["text"] for s in whole["sequences"]]
    assert first == [s["text"] for s in answer("generate", out, "--n", "2", *length)["sequences"]]
    assert set(first[0]) <= set("ACDEFGHIKLMNPQRSTVWYXBUZO")
    more = answer("generate", out, "--n", "4", *length)["sequences"]
    assert first == [s["text"] for s in more[:2]]
    other = answer("generate", out, "--n", "2", "--length", "40", "--seed", "4")["sequences"]
    assert first != [s["text"] for s in other]
    assert whole["tokens"] == sum(s["tokens"] for s in whole["sequences"]) > 0
    assert whole["tokens_per_second"] == pytest.approx(whole["tokens"] / whole["seconds"])
    assert whole["kernel"]
    assert (whole["graph"], whole["eager_reason"]) == (False, "CUDA graphs need a GPU")
    assert whole["seconds_at_each_1000"] == []


def test_a_checkpoint_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    done = run_program("eval", tmp_path / "nothing")
    assert done.returncode == 3, done.stderr


def test_too_much_memory_and_lost_output_have_their_exit_codes(
    recipe: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    sizes = ["--set", "model.ff_dim=1048576", "--set", "model.layers=16384"]
    huge = run_program("train", recipe, "--out", out, *sizes)
    assert huge.returncode == 6, huge.stderr
    train(recipe, out, "train.steps=4")
    with Path("/dev/full").open("w") as full:
        command = [str(PROGRAM), "eval", str(out), "--split", "valid", "--max-batches", "1"]
        lost = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, check=False)
    assert lost.returncode == 5


def test_a_run_ends_with_a_validation_and_says_null_where_there_was_none(
    recipe: Path, tmp_path: Path
) -> None:
    short = ("--set", "train.steps=3", "--set", "train.valid_every=200")
    told = answer("train", recipe, "--out", tmp_path / "run", *short)
    valid = [r for r in metrics(tmp_path / "run") if "valid_loss" in r]
    assert [r["step"] for r in valid] == [3]
    assert (told["best_step"], told["best_valid_loss"]) == (3, valid[0]["valid_loss"])
    none = ("--set", "train.steps=3", "--set", "train.valid_every=0")
    told = answer("train", recipe, "--out", tmp_path / "none", *none)
    assert (told["best_step"], told["best_valid_loss"]) == (None, None)


def test_tensorboard_has_gradient_norm_and_perplexity(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(recipe, out, "train.steps=4")
    events = b"".join(p.read_bytes() for p in out.glob("events.out.tfevents.*"))
    for tag in ("train/gradient_norm", "train/perplexity", "valid/perplexity", "train/loss"):
        assert tag.encode() in events


def test_what_cannot_be_written_is_refused_before_the_first_step(
    recipe: Path, tmp_path: Path
) -> None:
    latin = os.fsencode(tmp_path / "caf") + b"\xe9.fasta"
    Path(os.fsdecode(latin)).write_text(">a\nACDEFGHIKLMNPQRSTVWY\n")
    out = tmp_path / "run"
    flags = ("--set", b"data.train=" + latin)
    done = subprocess.run(
        [PROGRAM, "train", recipe, "--out", out, *flags], cwd=ROOT, capture_output=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert b"UTF-8" in done.stderr
    assert done.stderr.count(b"\n") == 1
    assert not out.exists()
    # The folder itself may have any name.
    folder = os.fsencode(tmp_path / "run") + b"\xe9"
    done = subprocess.run(
        [PROGRAM, "train", recipe, "--out", folder, "--json", "--set", "train.steps=2"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["step"] == 2


def test_labels_that_are_not_utf8_cost_no_training(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_bytes(b"text\tlabel\nmeow\tcaf\xe9\nwoof\tdog\n")
    recipe, out = tmp_path / "classes.toml", tmp_path / "run"
    recipe.write_text(labelled_rows(tmp_path))
    said = train(recipe, out, code=3)
    assert "UTF-8" in said
    assert said.count("\n") == 1
    assert not out.exists()
