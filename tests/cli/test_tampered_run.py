"""Checkpoints whose hashes fit and whose contents no run has written."""

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from conftest import run_program
from small_recipes import TINY
from training_runs import checkpoint, reseal, steps_with_checkpoints, train


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tampered")
    (folder / "tiny.toml").write_text(TINY)
    train(folder / "tiny.toml", folder / "run")
    return folder


@pytest.fixture
def run(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "copy")) / "run"


def resume(run: Path, *, code: int) -> str:
    return train(run.parent / "tiny.toml", run, "train.steps=14", code=code)


def scale_weights(folder: Path, factor: float) -> None:
    """Multiplies every matrix; all numbers stay finite."""
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    (size,) = struct.unpack("<Q", data[:8])
    for entry in json.loads(data[8 : 8 + size]).values():
        if len(entry.get("shape", [])) == 2:
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            values = struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
            data[begin:end] = struct.pack(f"<{len(values)}f", *(v * factor for v in values))
    path.write_bytes(data)
    reseal(folder)


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        ("step", 0, "step"),
        ("step", 1 << 62, "step"),
        ("position", (1 << 63) - 1, "position"),
        ("extra_draws", 1 << 62, "extra_draws"),
        ("best_step", 13, "best_step"),
        ("regular", 13, "regular"),
        ("data", {}, "data.train"),
        ("data", [], "data"),
        ("data", None, "data"),
    ],
)
def test_progress_that_no_run_writes_is_refused(
    run: Path, key: str, value: Any, place: str
) -> None:
    path = checkpoint(run) / "trainer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    reseal(checkpoint(run))
    before = steps_with_checkpoints(run)
    said = resume(run, code=4)
    assert f"trainer.json: {place} " in said
    assert steps_with_checkpoints(run) == before


def test_progress_of_an_older_version_is_read(run: Path) -> None:
    path = checkpoint(run) / "trainer.json"
    progress = json.loads(path.read_text())
    for key in ("regular", "rollbacks", "data", "changes"):
        del progress[key]
    del progress["reporter"]["lines"]
    path.write_text(json.dumps(progress))
    reseal(checkpoint(run), version=1)
    assert "finished: step 14" in resume(run, code=0)


def test_weights_that_overflow_are_not_gone_on_from(run: Path) -> None:
    scale_weights(checkpoint(run), 1e30)
    said = resume(run, code=0)
    assert "loss or gradient of the rows to come is not finite; an older checkpoint is used" in said
    assert "resuming at step 9 " in said


def test_weights_that_overflow_are_named_where_no_older_ones_are(run: Path) -> None:
    for folder in (run / "checkpoints").iterdir():
        if folder != checkpoint(run):
            shutil.rmtree(folder)
    scale_weights(checkpoint(run), 1e30)
    assert "there is no older checkpoint; begin anew by --restart" in resume(run, code=7)


def test_weights_that_overflow_generate_nothing(run: Path) -> None:
    for name in ("latest", "best"):
        (run / name).unlink()
    scale_weights(run / "checkpoints" / "step-000000012", 1e30)
    done = run_program("generate", run / "checkpoints" / "step-000000012", "--n", "1")
    assert done.returncode == 7
    assert "the model's output is not finite" in done.stderr
    assert done.stdout == ""


def test_lost_metrics_are_told(run: Path) -> None:
    path = run / "metrics.jsonl"
    whole = path.read_bytes()
    for kept in (b"", whole[: whole.index(b"\n") + 1], whole[:-10]):
        path.write_bytes(kept)
        copy = Path(shutil.copytree(run.parent, run.parent.parent / str(len(kept))))
        lines = whole.count(b"\n")
        said = resume(copy / "run", code=0)
        assert f"holds {kept.count(bytes([10]))} of the {lines} lines" in said


@pytest.mark.parametrize("pointer", ["best", "latest"])
def test_a_pointer_that_leads_to_itself_is_named_and_mended(
    pointer: str, recipe: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    train(recipe, out, "train.steps=2", "train.valid_every=1")
    (out / pointer).unlink()
    (out / pointer).symlink_to(pointer)
    said = train(recipe, out, "train.steps=3", "train.valid_every=1")
    assert f"{out / pointer}: missing; " in said
    assert "resuming at step 2" in said
    assert (out / pointer).read_text()
