"""Recipes and checkpoints made to break the reader: one line, the right exit code, no crash."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Result, run_program
from hostile_text import DEEP, json_files, toml_files
from training_runs import reseal


def refused(done: Result, code: int) -> str:
    """The one line of an error."""
    assert done.returncode == code, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and len(lines[0]) < 1000, done.stderr[:2000]
    assert lines[0].startswith("performer: ")
    return lines[0]


def train(recipe: Path, out: Path, *flags: str) -> Result:
    return run_program("train", recipe, "--out", out, *flags)


@pytest.fixture
def checkpoint(recipe: Path, tmp_path: Path) -> Path:
    """A small run's last checkpoint."""
    done = train(recipe, tmp_path / "run", "--set", "train.steps=1")
    assert done.returncode == 0, done.stderr
    return next((tmp_path / "run" / "checkpoints").iterdir())


def change(folder: Path, name: str, edit: Callable[[str], str]) -> Path:
    file = folder / name
    file.write_text(edit(file.read_text()))
    reseal(folder)
    return file


def test_a_resealed_checkpoint_is_read(checkpoint: Path) -> None:
    change(checkpoint, "config.json", lambda text: text + " ")
    done = run_program("eval", checkpoint, "--split", "valid", "--max-batches", "1")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"files":'])
def test_a_deep_manifest_is_one_line(checkpoint: Path, opening: str) -> None:
    manifest = checkpoint / "manifest.json"
    manifest.write_text((opening * DEEP)[: 1 << 20])
    line = refused(run_program("eval", checkpoint), 4)
    assert f"{manifest}: line 1, column " in line
    assert "nested deeper than 32 levels" in line


def test_training_over_a_deep_manifest_is_one_line_and_a_stop(
    recipe: Path, checkpoint: Path
) -> None:
    (checkpoint / "manifest.json").write_text("[" * DEEP)
    done = train(recipe, checkpoint.parents[1])
    assert done.returncode == 4, done.stderr
    assert "nested deeper than 32 levels" in done.stderr
    assert done.stderr.splitlines()[-1].endswith("to start anew, move the folder away")


@pytest.mark.parametrize("name", ["config.json", "trainer.json", "tokenizer.json"])
@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("deep list", "nested deeper than 32 levels"),
        ("deep object", "nested deeper than 32 levels"),
        ("key twice", 'the key "step" occurs twice'),
        ("bytes", "the byte 0xff is not UTF-8"),
        ("cut", "cut short"),
        ("beyond numbers", "a number beyond the finite ones"),
    ],
)
def test_a_hostile_file_of_a_checkpoint_is_named_with_its_place(
    checkpoint: Path, name: str, kind: str, problem: str
) -> None:
    file = checkpoint / name
    file.write_bytes(json_files(file.read_bytes())[kind][0])
    reseal(checkpoint)
    line = refused(run_program("eval", checkpoint), 4)
    assert f"{file}: line " in line
    assert problem in line


def test_numbers_of_the_wrong_kind_are_named(checkpoint: Path) -> None:
    change(checkpoint, "trainer.json", lambda text: text.replace('"draw": 0', '"draw": 1e300'))
    line = refused(run_program("eval", checkpoint), 4)
    assert line.endswith(
        "trainer.json: draw must be a whole number from 0 to 4294967295, got 1e+300"
    )


def test_a_large_file_of_a_checkpoint_is_not_read(checkpoint: Path) -> None:
    change(checkpoint, "config.json", lambda text: text + " " * (5 << 20))
    assert "longer than such a file can be" in refused(run_program("eval", checkpoint), 4)


@pytest.mark.parametrize(
    ("key", "value"), [("layers", 10**9), ("layers", 16384), ("dim", 2**62), ("dim", 1 << 14)]
)
def test_a_checkpoint_that_claims_a_huge_model_takes_no_memory(
    checkpoint: Path, key: str, value: int
) -> None:
    def claim(text: str) -> str:
        config = json.loads(text)
        config["model"][key] = value
        return json.dumps(config)

    change(checkpoint, "config.json", claim)
    line = refused(run_with_little_memory("eval", checkpoint), 4)
    assert str(value) in line or "too few for the" in line


def run_with_little_memory(*args: object) -> Result:
    """With 4 GiB of addresses, of which the program itself takes less than two."""
    return run_program(*args, limit=f"-v {4 << 20}")


HUGE = [
    ("model.layers", 10**9),
    ("model.dim", 2**62),
    ("model.heads", 2**62),
    ("model.ff_dim", 2**62),
    ("model.vocabulary", 2**62),
    ("model.max_length", 2**62),
    ("model.classes", 2**62),
    ("model.attention.features", 2**62),
    ("model.attention.linformer_k", 2**62),
    ("model.attention.lsh_hashes", 2**62),
    ("data.length", 2**62),
    ("data.pad_multiple", 2**62),
    ("train.batch", 2**62),
    ("train.steps", 2**62),
    ("train.step_tokens", 2**62),
    ("train.keep_last", 2**62),
    ("guard.spike_window", 2**62),
]


@pytest.mark.parametrize(("key", "value"), HUGE)
@pytest.mark.parametrize("flags", [[], ["--dry-run"], ["--dump-config"]])
def test_a_huge_size_is_one_line_with_value_and_limit(
    recipe: Path, tmp_path: Path, key: str, value: int, flags: list[str]
) -> None:
    done = run_with_little_memory(
        "train", recipe, "--out", tmp_path / "run", "--set", f"{key}={value}", *flags
    )
    line = refused(done, 2)
    assert f"{key} must be at most " in line and line.endswith(f"got {value}")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            ["model.layers=16384", "model.dim=1048576", "model.ff_dim=1048576", "model.heads=1024"],
            "parameters, at most",
        ),
        (["model.dim=1048576", "model.ff_dim=32"], "dim must be at most 16384, got 524288"),
        (["train.batch=1048576", "data.length=2147483648"], "tokens at once, at most"),
    ],
)
def test_sizes_that_are_possible_alone_are_checked_together(
    recipe: Path, tmp_path: Path, settings: list[str], problem: str
) -> None:
    flags = [flag for setting in settings for flag in ("--set", setting)]
    for more in ([], ["--dry-run"]):
        done = run_with_little_memory("train", recipe, "--out", tmp_path / "run", *flags, *more)
        assert problem in refused(done, 2)


def test_a_model_larger_than_the_machine_is_refused_before_memory_is_taken(
    recipe: Path, tmp_path: Path
) -> None:
    flags = ["--set", "model.layers=16384", "--set", "model.ff_dim=8192"]
    done = run_with_little_memory(
        "train", recipe, "--out", tmp_path / "run", *flags, "--set", "model.dim=1024"
    )
    line = refused(done, 6)
    assert "GiB, this machine has" in line and "model.layers (16384)" in line


TOML = {
    # An empty name is a value like any other until the data are looked for.
    **{kind: text for kind, (text, bad) in toml_files(b"").items() if bad and kind != "empty name"},
    "deep list of tables": b"[[" + b"a." * DEEP + b"a]]\nb = 1\n",
    "open text": b"a = '''" + b"x" * 900_000,
    "long": b"#" * (2 << 20),
}


@pytest.mark.parametrize("kind", TOML)
def test_a_hostile_recipe_is_one_line(tmp_path: Path, kind: str) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_bytes(TOML[kind])
    line = refused(train(recipe, tmp_path / "run", "--dry-run"), 2)
    assert line.startswith(f"performer: {recipe}:")


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "missing"])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "recipe.toml"
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    elif kind == "device":
        place = Path("/dev/zero")
    line = refused(train(place, tmp_path / "run"), 2)
    assert line.startswith(f"performer: {place}: ") and "name a recipe" in line


def test_the_names_of_other_programs_are_taken_with_a_note(recipe: Path, tmp_path: Path) -> None:
    done = train(recipe, tmp_path / "run", "--set", "optimizer.lr=0.5", "--dump-config")
    assert done.returncode == 0, done.stderr
    assert "optimizer.lr is taken as optimizer.rate" in done.stderr
    assert "rate = 0.5 " in done.stdout


def test_softmax_as_a_kernel_points_to_positive(recipe: Path, tmp_path: Path) -> None:
    line = refused(train(recipe, tmp_path / "run", "--set", "model.attention.kernel=softmax"), 2)
    assert line.endswith('got "softmax"; did you mean positive?')


@pytest.mark.parametrize("handles", [">&- 2>&-", "<&- >&- 2>&-", "2>&-", "<&-", "<&- 2>&-"])
def test_closed_handles_let_nothing_land_in_files_of_the_run(
    recipe: Path, tmp_path: Path, handles: str
) -> None:
    out = tmp_path / "run"
    done = run_program("train", recipe, "--out", out, handles=handles)
    assert done.returncode == 0
    assert (out / ".lock").read_bytes() == b""
    for line in (out / "metrics.jsonl").read_text().splitlines():
        assert "step" in json.loads(line)
    events = list(out.glob("events.out.tfevents.*"))
    assert all(b"step" not in file.read_bytes()[:8] for file in events)
    assert run_program("eval", out, "--split", "valid", "--max-batches", "1").returncode == 0


def test_results_for_a_closed_output_are_an_error(recipe: Path) -> None:
    done = run_program("train", recipe, "--dump-config", handles=">&-")
    assert done.returncode == 5
    assert done.stderr == "performer: standard output: cannot be written\n"
