"""Interrupted runs of `performer train`: kills, signals, damage, and runs that are of another."""

import gzip
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from conftest import PROGRAM, ROOT, run_program
from small_recipes import labelled_rows
from training_runs import (
    checkpoint,
    digests,
    kill_when,
    metrics,
    read_steps,
    small_fasta,
    steps_with_checkpoints,
    train,
)


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
    kill_when(recipe, broken, *settings, after_steps=10)
    said = train(recipe, broken, *settings)
    assert "resuming at step" in said
    assert digests(checkpoint(straight)) == digests(checkpoint(broken))
    assert metrics(straight) == metrics(broken)


def test_a_signal_saves_first(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [str(PROGRAM), "train", str(recipe), "--out", str(out), "--set", "train.steps=100000"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        read_steps(process.stderr, 1)
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
        refused = run_program("eval", out, "--checkpoint", "latest", "--split", "valid")
        assert refused.returncode == 4, refused.stderr
        assert "; take another one by --checkpoint: there are " in refused.stderr
        said = train(recipe, out)
        assert said.count(f"/{name}") == 1
        assert "resuming at step 9" in said
        assert digests(checkpoint(out)) == reference


def test_a_run_does_not_go_on_as_another(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(recipe, out, "train.steps=3")
    said = train(recipe, out, "model.layers=3", code=2)
    assert "model.layers is 2 there and 3 here" in said
    assert "go on with the run's by --set model.layers=2, or take another --out" in said
    said = train(recipe, out, "model.layers=3", "train.batch=4", "data.seed=7", code=2)
    assert (
        "tiny.toml differs from the recipe of that run: model.layers is 2 there and 3 here; "
        in said
    )
    assert "data.seed is 0 there and 7 here; train.batch is 2 there and 4 here; go on" in said
    assert "--change" not in said  # which could not settle all of it
    train(recipe, out, "train.steps=4")  # a longer run is the same run


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


def test_a_damaged_best_is_named_and_written_anew(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    still = "optimizer.rate=1e-30"  # the validation at the end finds nothing better
    train(recipe, out, still, "train.steps=4")
    good = (out / "best").read_text()
    (out / "best").write_text("x")
    assert "best" in train(recipe, out, still, "train.steps=5")
    assert (out / "best").read_text() == good


def write_table(folder: Path, *rows: str) -> None:
    (folder / "train.tsv").write_text("\n".join(("text\tlabel", *rows)) + "\n")


def test_other_classes_are_named_and_refused(tmp_path: Path) -> None:
    recipe, out = tmp_path / "classes.toml", tmp_path / "run"
    recipe.write_text(labelled_rows(tmp_path))
    write_table(tmp_path, "meow\tcat", "woof\tdog")
    train(recipe, out)
    write_table(tmp_path, "bell\telk", "woof\tdog")
    said = train(recipe, out, "train.steps=6", code=2)
    assert 'the classes are ["cat","dog"] there and ["dog","elk"] here' in said.splitlines()[-1]
    done = run_program("train", recipe, "--out", out, "--new-data", "--set", "train.steps=6")
    assert done.returncode == 2, done.stderr
    assert run_program("train", recipe, "--out", out, "--restart").returncode == 0


def test_another_tokenizer_is_refused(recipe: Path, tmp_path: Path) -> None:
    text, out = tmp_path / "text.txt", tmp_path / "run"
    book = gzip.decompress((ROOT / "data/books/persuasion.txt.gz").read_bytes()).decode()
    text.write_text(book[:40_000])
    for i, sample in enumerate((book[:40_000], book[40_000:80_000])):
        (tmp_path / f"{i}.txt").write_text(sample)
        model = ("--vocabulary", "400", "-o", tmp_path / f"{i}.model")
        done = run_program("data", "tokenizer", tmp_path / f"{i}.txt", *model)
        assert done.returncode == 0, done.stderr
    tokenizer = tmp_path / "tokenizer.model"
    data = ("data.task=text", f"data.train={text}", f"data.valid={text}")
    settings = (*data, f"data.tokenizer={tokenizer}", "train.steps=3")
    tokenizer.write_bytes((tmp_path / "0.model").read_bytes())
    train(recipe, out, *settings)
    tokenizer.write_bytes((tmp_path / "1.model").read_bytes())
    said = train(recipe, out, *settings, "train.steps=5", code=2)
    assert "is of another run: the tokenizer's model has hash " in said


def test_other_training_data_are_refused_unless_meant(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    data = small_fasta(tmp_path, 20)
    settings = (f"data.train={data}", "data.valid=data/proteins/test.fasta.gz")
    train(recipe, out, *settings, "train.steps=3")
    before = data.read_text()
    data.write_text(before.replace("A", "C", 1))
    said = train(recipe, out, *settings, "train.steps=5", code=2)
    assert "the data of data.train are no longer those of the run: 20 samples" in said
    assert "--new-data" in said
    command = ("train", recipe, "--out", out, "--new-data")
    flags = [flag for s in (*settings, "train.steps=5") for flag in ("--set", s)]
    done = run_program(*command, *flags)
    assert done.returncode == 0, done.stderr
    changes = json.loads((checkpoint(out) / "trainer.json").read_text())["changes"]
    assert [(c["step"], c["key"]) for c in changes] == [(3, "data.train")]
    train(recipe, out, *settings, "train.steps=6")  # now they are the run's own
    data.write_text(before)
    train(recipe, out, *settings, "train.steps=7", code=2)


def test_a_rate_and_a_batch_size_change_when_told_so(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(recipe, out, "train.steps=5")
    said = train(recipe, out, "train.steps=8", "optimizer.rate=0.5", code=2)
    assert "optimizer.rate is 0.001 there and 0.5 here" in said
    assert "--change optimizer.rate=0.5" in said
    flags = ("--change", "optimizer.rate=0.5", "--change", "train.batch=3")
    command = ("train", recipe, "--out", out, *flags)
    done = run_program(*command, "--set", "train.steps=8")
    assert done.returncode == 0, done.stderr
    assert "after step 5 optimizer.rate is 0.5, no longer 0.001" in done.stderr
    rates = [r["rate"] for r in metrics(out) if "rate" in r]
    assert rates == [0.001] * 5 + [0.5] * 3
    state = json.loads((checkpoint(out) / "trainer.json").read_text())
    assert state["position"] == 5 * 2 + 3 * 3
    assert state["changes"] == [
        {"step": 5, "key": "train.batch", "before": 2, "after": 3},
        {"step": 5, "key": "optimizer.rate", "before": 0.001, "after": 0.5},
    ]
    assert [r["key"] for r in metrics(out) if r.get("event") == "change"] == [
        "train.batch",
        "optimizer.rate",
    ]
    config = json.loads((checkpoint(out) / "config.json").read_text())
    assert config["optimizer"]["rate"] == 0.5
    said = train(recipe, out, "train.steps=9", code=2)
    assert "train.batch is 3 there and 2 here; optimizer.rate is 0.5 there and 0.001 here" in said
    theirs = "--set train.batch=3 --set optimizer.rate=0.5"
    assert f"go on with the run's by {theirs}, with yours by --change train.batch=2" in said
    done = run_program(*command, "--set", "train.steps=9")  # the same command goes on
    assert done.returncode == 0, done.stderr
    assert "no longer" not in done.stderr
    for key in ("model.layers=3", "data.length=16", "seed=4"):
        refused = run_program("train", recipe, "--out", out, "--change", key)
        assert refused.returncode == 2, refused.stderr
        assert "cannot go on with another one" in refused.stderr


def test_a_change_is_known_by_the_other_names_of_its_key(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(recipe, out, "train.steps=2")
    flags = ("--change", "optimizer.lr=0.5", "--change", "batch_size=4")
    done = run_program("train", recipe, "--out", out, "--set", "train.steps=3", *flags)
    assert done.returncode == 0, done.stderr
    assert "after step 2 optimizer.rate is 0.5, no longer 0.001" in done.stderr
    assert "--change optimizer.lr: optimizer.lr is taken as optimizer.rate" in done.stderr


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("optimizer.foo=4", "--change optimizer.foo: unknown key optimizer.foo"),
        ("optimizer.rate", "--change optimizer.rate: must be key=value"),
        ("optimizer.rate=x", "--change optimizer.rate: optimizer.rate must be a number"),
        ("model.num_layers=3", "--change model.layers: a run cannot go on with another one"),
    ],
)
def test_a_change_that_cannot_be_is_told_as_one(
    recipe: Path, tmp_path: Path, change: str, problem: str
) -> None:
    done = run_program("train", recipe, "--out", tmp_path / "run", "--change", change)
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"performer: {problem}")


def test_a_changed_batch_takes_up_the_rows_where_they_were_left(
    recipe: Path, tmp_path: Path
) -> None:
    # Three rows at once from row 10 on, killed at any step, as without the kill.
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    for out in (straight, broken):
        train(recipe, out, "train.steps=5")
    command = ("train", recipe, "--set", "train.steps=12", "--change", "train.batch=3")
    assert run_program(*command, "--out", straight).returncode == 0
    kill_when(recipe, broken, "train.steps=12", after_steps=8, flags=("--change", "train.batch=3"))
    assert run_program(*command, "--out", broken).returncode == 0
    assert digests(checkpoint(straight)) == digests(checkpoint(broken))
    assert metrics(straight) == metrics(broken)


def test_the_clock_of_a_run_goes_on_when_it_is_resumed(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(recipe, out, "train.steps=6")
    train(recipe, out, "train.steps=12")
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    seconds = [line["seconds"] for line in lines if "rate" in line]
    assert len(seconds) == 12
    assert seconds == sorted(seconds)


def test_a_damaged_metrics_line_is_told_and_costs_no_other(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(recipe, out, "train.steps=6", "train.valid_every=0")
    file = out / "metrics.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    number = next(i for i, line in enumerate(lines) if '"step":3' in line)
    lines[number] = lines[number].replace('"step":3', '"step":8')
    file.write_text("".join(lines))
    said = train(recipe, out, "train.steps=7", "train.valid_every=0")
    assert f"{file}:{number + 1}: damaged" in said
    assert [r["step"] for r in metrics(out) if "loss" in r] == [1, 2, 8, 4, 5, 6, 7]


def test_pipes_among_the_files_of_a_run_are_named_and_not_waited_for(
    recipe: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    train(recipe, out, "train.steps=4")
    (out / "best").unlink()
    os.mkfifo(out / "best")
    assert "best: not a file" in run_program("eval", out, "--split", "valid").stderr
    assert "best: not a file; it is written anew" in train(recipe, out, "train.steps=5")
    (out / "metrics.jsonl").unlink()
    os.mkfifo(out / "metrics.jsonl")
    said = train(recipe, out, "train.steps=6", code=5)
    assert "metrics.jsonl: a pipe" in said
    assert said.count("\n") == 2  # and where it would have gone on from


def test_a_change_of_a_run_that_has_ended_is_none(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(recipe, out, "train.steps=3")
    before = metrics(out)
    flags = ("--set", "train.steps=3", "--change", "optimizer.rate=0.5")
    done = run_program("train", recipe, "--out", out, *flags)
    assert "finished before; nothing to do" in done.stderr
    assert "no longer" not in done.stderr
    assert metrics(out) == before


def test_a_checkpoint_that_a_kill_has_left_too_many_is_removed(
    recipe: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    settings = ("train.steps=6", "train.checkpoint_every=1", "train.keep_last=1")
    train(recipe, out, *settings)
    kept = steps_with_checkpoints(out)
    assert kept[-2:] == [5, 6], "the last one, and the one that was proven"
    # As a kill between the last save and its pruning would.
    shutil.copytree(out / "checkpoints/step-000000005", out / "checkpoints/step-000000001")
    assert "nothing to do" in train(recipe, out, *settings)
    assert steps_with_checkpoints(out) == kept
