"""Text models on SentencePiece tokens, from the training of the tokenizer to generated text."""

import gzip
import json
import subprocess
from pathlib import Path

import pytest
from conftest import PROGRAM, ROOT, run_program
from small_recipes import one_layer, text_data


def recipe(book: Path, tokenizer: Path) -> str:
    data = text_data(book) + f'\ntokenizer = "{tokenizer}"'
    return one_layer(data, model='positions = "rotary"', train="steps = 3\nlog_every = 1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text, a tokenizer of 400 pieces for it, and a recipe that uses both."""
    folder = tmp_path_factory.mktemp("text")
    book = gzip.decompress((ROOT / "data/books/persuasion.txt.gz").read_bytes())[:40_000]
    (folder / "book.txt").write_bytes(book)
    (folder / "recipe.toml").write_text(recipe(folder / "book.txt", folder / "book.model"))
    model = ["-o", folder / "book.model", "--vocabulary", 400]
    made = run_program("data", "tokenizer", folder / "book.txt", *model)
    assert made.returncode == 0, made.stderr
    return folder


def test_a_model_on_pieces_trains_and_generates_text(folder: Path, tmp_path: Path) -> None:
    trained = run_program("train", folder / "recipe.toml", "--out", tmp_path / "run")
    assert trained.returncode == 0, trained.stderr
    made = run_program("generate", tmp_path / "run", "--n", 2, "--length", 20, "--json")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)


@pytest.mark.parametrize("damage", ["empty", "cut", "noise"])
def test_a_damaged_tokenizer_is_refused_in_one_line(
    folder: Path, tmp_path: Path, damage: str
) -> None:
    model = (folder / "book.model").read_bytes()
    broken = {"empty": b"", "cut": model[: len(model) // 3], "noise": bytes(range(256)) * 40}
    (tmp_path / "book.model").write_bytes(broken[damage])
    path = tmp_path / "recipe.toml"
    path.write_text(recipe(folder / "book.txt", tmp_path / "book.model"))
    done = run_program("train", path, "--out", tmp_path / "run")
    assert done.returncode == 3, done.stderr
    (line,) = done.stderr.splitlines()
    assert f"{tmp_path}/book.model: is no SentencePiece model (" in line


def test_the_program_has_no_tokenizer_library_of_its_own() -> None:
    done = subprocess.run(["ldd", PROGRAM], capture_output=True, text=True, check=True)
    assert "libperformer.so" in done.stdout
    assert "sentencepiece" not in done.stdout
