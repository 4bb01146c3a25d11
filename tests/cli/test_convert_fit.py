"""`performer convert --fit`: features that imitate the exact attention of a model."""

import json
import os
import random
import signal
import subprocess
from pathlib import Path

import numpy
import pytest
import torch
from conftest import PROGRAM, Run, answer
from foreign_models import build

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def write_bert(folder: Path) -> Path:
    """A model whose attention is far from a plain mean, and a tokenizer of letters."""
    torch.manual_seed(1)
    model = build("bert_base")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("query.weight", "key.weight")):
                weight.mul_(1.5)
    model.save_pretrained(folder)
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *("##" + c for c in LETTERS)]
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def write_text(path: Path, seed: int, lines: int = 40) -> Path:
    letters = random.Random(seed)
    words = ["".join(letters.choices(LETTERS, k=1 + letters.randrange(6))) for _ in range(30)]
    path.write_text("".join(" ".join(letters.choices(words, k=8)) + "\n" for _ in range(lines)))
    return path


def vectors(checkpoint: Path, text: Path) -> numpy.ndarray:
    out = checkpoint.parent / f"{checkpoint.name}.npz"
    answer("embed", checkpoint, text, "-o", out, "--pool", "none")
    with numpy.load(out) as file:
        return file["embeddings"]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bert(tmp_path_factory.mktemp("bert"))


def test_every_stage_comes_nearer_to_the_exact_model(tmp_path: Path, source: Path) -> None:
    text, other = write_text(tmp_path / "fit.txt", 1), write_text(tmp_path / "held_out.txt", 2)
    small = ("--features", 16, "--fit-rows", 8, "--fit-length", 24)
    answer("convert", source, tmp_path / "exact", "--attention", "exact")
    answer("convert", source, tmp_path / "raw", "--features", 16)
    answer("convert", source, tmp_path / "calibrated", "--calibrate", text, *small)
    done = answer("convert", source, tmp_path / "fitted", "--fit", text, *small, "--fit-steps", 80)
    assert done["features"] == 16
    exact = vectors(tmp_path / "exact", other)
    error = {
        name: numpy.linalg.norm(vectors(tmp_path / name, other) - exact) / numpy.linalg.norm(exact)
        for name in ("raw", "calibrated", "fitted")
    }
    assert error["fitted"] < 0.7 * error["raw"], error
    assert error["fitted"] < error["calibrated"], error


def test_fitting_again_gives_the_same_bytes(tmp_path: Path, source: Path) -> None:
    text = write_text(tmp_path / "fit.txt", 1)
    for name in ("a", "b"):
        answer("convert", source, tmp_path / name, "--fit", text, "--fit-steps", 4, "--fit-rows", 2)
    a, b = (tmp_path / name / "model.safetensors" for name in ("a", "b"))
    assert a.read_bytes() == b.read_bytes()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--fit-steps", "10"], "--fit-steps: has no effect without --calibrate or --fit"),
        (["--calibrate", "{text}", "--fit", "{text}"], "--fit calibrates first"),
        (["--attention", "exact", "--fit", "{text}"], "has no effect with --attention exact"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    tmp_path: Path, source: Path, program: Run, options: list[str], words: str
) -> None:
    text = write_text(tmp_path / "fit.txt", 1)
    given = [option.replace("{text}", str(text)) for option in options]
    done = program("convert", source, tmp_path / "out", *given)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_text_needs_a_tokenizer(tmp_path: Path, program: Run) -> None:
    folder = write_bert(tmp_path / "bert")
    (folder / "vocab.txt").unlink()
    text = write_text(tmp_path / "fit.txt", 1)
    done = program("convert", folder, tmp_path / "out", "--calibrate", text)
    assert done.returncode == 2, done.stderr
    assert "has no tokenizer" in done.stderr


def test_files_are_fasta_by_their_ending_alone(tmp_path: Path, source: Path) -> None:
    answer("convert", source, tmp_path / "exact", "--attention", "exact")
    folder = tmp_path / "a.family"
    folder.mkdir()
    (folder / "lines.txt").write_text("a cat\n> and a mat\n")
    (folder / "records.fasta").write_text(">one\nMK\n>two\nAC\nDE\n>three\nA\n")
    for name, count in (("lines.txt", 2), ("records.fasta", 3)):
        done = answer("embed", tmp_path / "exact", folder / name, "-o", tmp_path / f"{count}.npz")
        assert done["sequences"] == count


def command(source: Path, out: Path, text: Path) -> list[object]:
    small = ("--fit-rows", 2, "--fit-length", 12, "--fit-steps", 24, "--fit-save", 0)
    return ["convert", source, out, "--fit", text, "--fit-weights", *small]


def stop(source: Path, out: Path, text: Path, moment: str, number: int = signal.SIGTERM) -> None:
    """Begins a fit and ends it as soon as it says `moment`; the program is further by then."""
    words = [str(PROGRAM), *map(str, command(source, out, text))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        assert any(moment in line for line in process.stderr), moment
        process.send_signal(number)
        assert process.wait() == (9 if number == signal.SIGTERM else -number)
    assert not out.exists()


def test_a_stopped_fit_goes_on_to_the_same_bytes(
    tmp_path: Path, source: Path, program: Run
) -> None:
    text = write_text(tmp_path / "fit.txt", 1)
    out, whole = tmp_path / "out", tmp_path / "whole"
    assert program(*command(source, whole, text)).returncode == 0
    stop(source, out, text, "attention: step 3/", signal.SIGKILL)
    stop(source, out, text, "model: step 2/")
    stop(source, out, text, "weights: step 4/", signal.SIGKILL)
    done = program(*command(source, out, text))
    assert done.returncode == 0, done.stderr
    assert "out.partial: goes on after step" in done.stderr
    for file in ("model.safetensors", "config.json"):
        assert (out / file).read_bytes() == (whole / file).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fit.txt", "out", "whole"]


def test_what_is_left_of_a_fit_goes_on_as_it_was_or_not_at_all(
    tmp_path: Path, source: Path, program: Run
) -> None:
    text, other = write_text(tmp_path / "fit.txt", 1), write_text(tmp_path / "other.txt", 2)
    out, partial = tmp_path / "out", tmp_path / "out.partial"
    stop(source, out, text, "attention: step 3/")
    before = partial.read_bytes()
    same = command(source, out, text)
    for given, code, words in (
        (command(source, out, other), 2, "an unfinished fit of another text;"),
        ([*same, "--features", 32], 2, "an unfinished fit of another model;"),
        ([*same[:-3], 48, "--fit-save", 0], 2, "attention steps 9, now 18, model steps 15, now 30"),
    ):
        done = program(*given)
        assert done.returncode == code, done.stderr
        assert words in done.stderr
        assert "--restart begins anew" in done.stderr
    done = program(*same, limit="-f 8")  # a full disk
    assert done.returncode == 5, done.stderr
    assert partial.read_bytes() == before
    partial.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    done = program(*same)
    assert done.returncode == 4, done.stderr
    done = program(*command(source, out, other), "--restart")
    assert done.returncode == 0, done.stderr
    assert "goes on" not in done.stderr
    assert not partial.exists()
