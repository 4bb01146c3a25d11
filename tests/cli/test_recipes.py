"""Every recipe of configs/ runs, the paper's on other data; and those say what the paper says
(paper_numbers.tsv)."""

import csv
import fnmatch
import json
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, run_program

CONFIGS = ROOT / "configs"
PAPER = sorted((CONFIGS / "paper").glob("*.toml"))
BENCH = sorted((CONFIGS / "bench").glob("*.toml"))
RUNNABLE = sorted(
    {path for path in CONFIGS.rglob("*.toml") if path.parent.name != "base"} - {*PAPER, *BENCH}
)
COST = [path for path in PAPER if path.name.startswith("cost_")]  # random tokens
TRAINED = sorted({*PAPER} - {*COST})

SMALL = (
    "train.steps=2",
    "train.batch=2",
    "train.log_every=1",
    "train.valid_every=2",
    "train.valid_batches=1",
    "train.sample_every=0",
    "model.layers=1",
    "model.dim=32",
    "model.ff_dim=32",
)
# Rows of a fixed length stay as they are; others are cut.
FIXED_LENGTH = ("pixels", "recall")


def name_of(path: Path) -> str:
    return str(path.relative_to(CONFIGS).with_suffix(""))


def with_settings(settings: tuple[str, ...]) -> list[str]:
    return [flag for setting in settings for flag in ("--set", setting)]


def small(recipe: Path) -> list[str]:
    """Settings that make a step quick and leave the kind of model and data as they are."""
    text = recipe.read_text()
    settings = list(SMALL)
    if recipe.parent.name not in FIXED_LENGTH:
        settings.append("data.length=64")
    if "linformer" in text:
        settings.append("model.attention.linformer_k=16")
    if "features" in text and "features = 0" not in text:
        settings.append("model.attention.features=8")
    if 'kind = "lsh"' in text:
        settings += ["model.attention.lsh_chunk=16", "model.attention.lsh_buckets=4"]
    if "near = " in text:  # so that rows reach beyond it
        settings.append("model.attention.near=8")
    # FASTA files are read whole: a smaller one is quicker.
    if 'task = "protein"' in text:
        settings.append("data.train=data/proteins/valid.fasta.gz")
    if "valid_every = 0" in text:
        settings.append("train.valid_every=0")
    return with_settings(tuple(settings))


def test_there_are_recipes() -> None:
    assert len(RUNNABLE) > 20
    assert len(PAPER) > 20


def make_tokenizer(folder: Path) -> str:
    model = folder / "persuasion.model"
    book = "data/books/persuasion.txt.gz"
    done = run_program("data", "tokenizer", book, "-o", model, "--vocabulary", 400)
    assert done.returncode == 0, done.stderr
    return f"data.tokenizer={model}"


@pytest.mark.parametrize("recipe", RUNNABLE, ids=name_of)
def test_two_steps(recipe: Path, tmp_path: Path) -> None:
    flags = small(recipe)
    if 'tokenizer = "' in recipe.read_text():
        flags += with_settings((make_tokenizer(tmp_path),))
    done = run_program("train", recipe, "--out", tmp_path / "run", *flags)
    assert done.returncode == 0, done.stderr
    assert "step 2/2  loss" in done.stderr
    assert "skip" not in done.stderr


def resolved(recipe: Path) -> dict[str, Any]:
    """All values by their dotted names; --dump-config writes them as JSON does."""
    done = run_program("train", recipe, "--dump-config")
    assert done.returncode == 0, done.stderr
    values, section = {}, ""
    for line in done.stdout.splitlines():
        if line.startswith("["):
            section = line.strip("[]") + "."
        elif line:
            key, _, rest = line.partition(" = ")
            values[section + key], _ = json.JSONDecoder().raw_decode(rest)
    return values


@pytest.mark.parametrize("recipe", BENCH, ids=name_of)
def test_recipes_without_data_are_valid(recipe: Path) -> None:
    assert resolved(recipe)["model.vocabulary"] > 0


def paper_numbers() -> list[dict[str, str]]:
    with (ROOT / "tests/cli/paper_numbers.tsv").open() as table:
        return list(csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.mark.parametrize("recipe", PAPER, ids=lambda path: path.stem)
def test_the_paper_says_so(recipe: Path) -> None:
    config = resolved(recipe)
    rows = [row for row in paper_numbers() if fnmatch.fnmatch(recipe.stem, row["recipes"])]
    assert len(rows) > 5
    for row in rows:
        assert config[row["key"]] == json.loads(row["value"]), row


def test_every_number_of_the_paper_has_a_recipe() -> None:
    for row in paper_numbers():
        assert fnmatch.filter([path.stem for path in PAPER], row["recipes"]), row


PAPER_DATA = {
    "protein": "data/proteins/valid.fasta.gz",
    "text": "data/books/persuasion.txt.gz",
    "pixels": "data/images/fashion-200.idx3-ubyte.gz",
}


@pytest.mark.parametrize("recipe", TRAINED, ids=lambda path: path.stem)
def test_two_steps_of_the_papers(recipe: Path, tmp_path: Path) -> None:
    data = PAPER_DATA[resolved(recipe)["data.task"]]
    flags = small(recipe) + with_settings(
        (
            f"data.train={data}",
            "data.valid=[]",
            "data.test=[]",
            "data.ood=[]",
            "data.tokenizer=bytes",
            "data.length=128",
            "train.step_tokens=0",
            "train.valid_every=0",
        )
    )
    done = run_program("train", recipe, "--out", tmp_path / "run", *flags)
    assert done.returncode == 0, done.stderr
    assert "step 2/2  loss" in done.stderr


@pytest.mark.parametrize("recipe", COST, ids=lambda path: path.stem)
def test_a_step_of_a_cost(recipe: Path) -> None:
    flags = with_settings(("data.length=128", "model.layers=1"))
    done = run_program("bench", "model", recipe, "--steps", "1", *flags)
    assert done.returncode == 0, done.stderr
    assert " tokens/s" in done.stdout


@pytest.mark.parametrize("name", ["protein_8192_relu", "imagenet64_smreg", "pg19_linformer"])
def test_a_dumped_recipe_dumps_the_same(name: str, tmp_path: Path) -> None:
    first = run_program("train", CONFIGS / "paper" / f"{name}.toml", "--dump-config")
    again = tmp_path / "again.toml"
    again.write_text(first.stdout)
    second = run_program("train", again, "--dump-config")
    assert second.returncode == 0, second.stderr
    assert second.stdout == first.stdout


def test_what_no_line_of_a_recipe_says_is_missed_by_its_name(tmp_path: Path) -> None:
    recipe = tmp_path / "empty.toml"
    recipe.write_text("")
    done = run_program("train", recipe, "--out", tmp_path / "run")
    assert done.returncode == 2, done.stderr
    assert done.stderr == (
        f"performer: {recipe}: data.train: no data; name a file, or choose data.task=recall\n"
    )


def test_the_table_of_recipes_is_complete() -> None:
    table = (CONFIGS / "README.md").read_text()
    rows = {line.split("|")[1].strip(" `") for line in table.splitlines() if line.startswith("| `")}
    assert rows == {name_of(path) for path in [*RUNNABLE, *PAPER, *BENCH]}
