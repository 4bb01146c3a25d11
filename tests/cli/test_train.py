"""`performer train`: learning, files, resume, guards and exit codes of the real program."""

import hashlib
import json
import os
import random
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import PROGRAM, ROOT, answer, run_program

TIME_KEYS = {"time", "seconds", "tokens_per_second"}


def train(recipe: Path, out: Path, *settings: str, code: int = 0) -> str:
    flags = [flag for setting in settings for flag in ("--set", setting)]
    done = run_program("train", recipe, "--out", out, *flags)
    assert done.returncode == code, done.stderr
    return done.stderr


def metrics(out: Path) -> list[dict[str, Any]]:
    lines = (out / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return [{k: v for k, v in r.items() if k not in TIME_KEYS} for r in records]


def checkpoint(out: Path) -> Path:
    return out / "checkpoints" / (out / "latest").read_text().split()[0]


def digests(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


def kill_when(recipe: Path, out: Path, *settings: str, after_lines: int) -> None:
    """Runs the training and kills it without warning once it has written so many lines."""
    flags = [flag for setting in settings for flag in ("--set", setting)]
    command = [str(PROGRAM), "train", str(recipe), "--out", str(out), *flags]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, cwd=ROOT, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stderr is not None
        for _ in range(after_lines):
            process.stderr.readline()
        process.kill()


def test_a_resumed_run_equals_an_uninterrupted_one_byte_for_byte(
    recipe: Path, tmp_path: Path
) -> None:
    # 48 rows a run of an epoch of 16: epochs, redraws (every 5 steps) and validations are crossed.
    settings = [
        "data.train=" + str(small_fasta(tmp_path, 5)),
        "data.valid=data/proteins/test.fasta.gz",
    ]
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    train(recipe, straight, *settings)
    kill_when(recipe, broken, *settings, after_lines=10)
    said = train(recipe, broken, *settings)
    assert "resuming at step" in said
    assert digests(checkpoint(straight)) == digests(checkpoint(broken))
    assert metrics(straight) == metrics(broken)


def small_fasta(folder: Path, count: int) -> Path:
    generator = random.Random(7)
    path = folder / "small.fasta"
    with path.open("w") as file:
        for i in range(count):
            sequence = "".join(generator.choices("ACDEFGHIKLMNPQRSTVWY", k=40))
            file.write(f">s{i}\n{sequence}\n")
    return path


def test_a_run_killed_again_and_again_ends_as_if_nothing_had_been(
    recipe: Path, tmp_path: Path
) -> None:
    # A checkpoint at every step: most of the time is spent inside a save.
    kills = int(os.environ.get("PERFORMER_KILLS", "8"))
    settings = ["train.checkpoint_every=1", "train.steps=15", "train.valid_every=0"]
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    train(recipe, straight, *settings)
    generator = random.Random(11)
    for _ in range(kills):
        kill_when(recipe, broken, *settings, after_lines=generator.randrange(3))
    train(recipe, broken, *settings)
    assert digests(checkpoint(straight)) == digests(checkpoint(broken))
    assert metrics(straight) == metrics(broken)
    assert not list((broken / "checkpoints").glob(".tmp*"))


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


def test_a_signal_saves_first(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [str(PROGRAM), "train", str(recipe), "--out", str(out), "--set", "train.steps=100000"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read()
    assert process.returncode == 9
    assert "saved" in said
    saved = json.loads((checkpoint(out) / "trainer.json").read_text())["step"]
    assert metrics(out)[-1]["step"] == saved


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(
    recipe: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    train(recipe, out)
    reference = digests(checkpoint(out))
    newest = checkpoint(out)
    for name in ("model.safetensors", "trainer.json", "manifest.json", "config.json"):
        data = bytearray((newest / name).read_bytes())
        data[len(data) // 2] ^= 4
        (newest / name).write_bytes(data)
        refused = run_program("eval", newest, "--split", "valid")
        assert refused.returncode == 4, refused.stderr
        assert name in refused.stderr
        said = train(recipe, out)
        assert name in said
        assert "resuming at step 9" in said
        assert digests(checkpoint(out)) == reference


def test_bad_recipes_are_refused_with_a_reason(recipe: Path, tmp_path: Path) -> None:
    cases = {
        "model.layer=3": "did you mean model.layers?",
        "model.layers=many": "model.layers must be a whole number",
        "model.heads=3": "model.heads",
        "model.attention.kind=soft": "must be one of favor, exact",
        "train.steps=0": "train.steps: must be at least 1",
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


def test_a_run_does_not_go_on_as_another(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(recipe, out, "train.steps=3")
    said = train(recipe, out, "model.layers=3", code=2)
    assert "model.layers is 2 there and 3 here" in said
    train(recipe, out, "train.steps=4")  # a longer run is the same run


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
    assert "empirical" in shown.stdout
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
    assert (whole["graph"], whole["eager_reason"]) == (False, "graphs are for CUDA")
    assert whole["seconds_at_each_1000"] == []


def test_a_checkpoint_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    done = run_program("eval", tmp_path / "nothing")
    assert done.returncode == 3, done.stderr


def test_a_restart_that_cannot_begin_leaves_the_run_alone(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(recipe, out, "train.steps=3")
    before = digests(checkpoint(out))
    done = run_program("train", recipe, "--out", out, "--restart", "--set", "data.valid=none.fasta")
    assert done.returncode == 3, done.stderr
    assert digests(checkpoint(out)) == before
    fresh = run_program("train", recipe, "--out", out, "--restart", "--set", "train.steps=2")
    assert fresh.returncode == 0, fresh.stderr
    assert [r["step"] for r in metrics(out) if "loss" in r] == [1, 2]


def test_a_validation_that_is_not_finite_does_not_end_the_run(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    settings = ["optimizer.rate=1e38", "train.valid_every=1"]
    train(recipe, out, *settings, "train.steps=3")
    assert "resuming at step 3" in train(recipe, out, *settings, "train.steps=5")


def test_a_damaged_best_is_named_and_written_anew(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(recipe, out, "train.steps=4")
    good = (out / "best").read_text()
    (out / "best").write_text("x")
    assert "best" in train(recipe, out, "train.steps=5")
    assert (out / "best").read_text() == good


def test_too_much_memory_and_lost_output_have_their_exit_codes(
    recipe: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    huge = run_program("train", recipe, "--out", out, "--set", "model.ff_dim=100000000000")
    assert huge.returncode == 6, huge.stderr
    train(recipe, out, "train.steps=4")
    with Path("/dev/full").open("w") as full:
        command = [str(PROGRAM), "eval", str(out), "--split", "valid", "--max-batches", "1"]
        lost = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, check=False)
    assert lost.returncode == 5
