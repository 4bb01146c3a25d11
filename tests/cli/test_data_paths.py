"""What the data keys of a recipe may name, and where it is looked for."""

from pathlib import Path

import pytest
from conftest import ROOT, run_program
from small_recipes import one_layer

PROTEINS = "".join(f">p{i}\nMKVLACDEFGHIKLMNPQRST\n" for i in range(10))


def write_recipe(folder: Path, train: str) -> Path:
    folder.mkdir(exist_ok=True)
    recipe = folder / "r.toml"
    recipe.write_text(one_layer(f"train = {train}\nlength = 16"))
    return recipe


def test_training_reads_files_folders_and_patterns(tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    for name in ("dir/b.fa", "dir/a.fasta", "x1.faa", "x2.faa"):
        (tmp_path / name).write_text(PROTEINS)
    recipe = write_recipe(tmp_path, '["dir/", "x*.faa"]')
    done = run_program("train", recipe, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert f"data.train: {tmp_path}/x*.faa is read, beside the recipe" in done.stderr
    again = run_program("train", recipe, "--out", tmp_path / "run")
    assert again.returncode == 0, again.stderr


def test_one_name_may_stand_without_a_list(tmp_path: Path) -> None:
    (tmp_path / "a.fasta").write_text(PROTEINS)
    done = run_program("train", write_recipe(tmp_path, '"a.fasta"'), "--dump-config")
    assert f'train = ["{tmp_path}/a.fasta"]' in done.stdout


@pytest.mark.parametrize(
    ("train", "code", "words"),
    [
        ('"x*.fasta"', 3, 'data.train: "x*.fasta" is not there: neither in the working folder nor'),
        ('"a.fasta,b.fasta"', 3, '"a.fasta,b.fasta" is not there: neither in the working folder'),
        ('"a.fasta,b.fasta"', 3, 'several are a list, ["a", "b"]'),
        ('"none.fasta"', 3, "nor beside the recipe, in "),
        ('["data/proteins/valid.fasta.gz", "data/proteins/v*.gz"]', 2, "comes twice"),
        ('["tests/cli"]', 3, "the folder holds no file that ends in .fasta"),
        ("[1]", 2, "must be a string or a list of strings"),
    ],
)
def test_what_cannot_be_found_is_named_in_one_line(
    train: str, code: int, words: str, tmp_path: Path
) -> None:
    done = run_program("train", write_recipe(tmp_path, train), "--out", tmp_path / "run")
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_what_only_evaluation_will_miss_is_warned_of(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, '"data/proteins/valid.fasta.gz"\ntest = "gone.fasta"')
    done = run_program("train", recipe, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert 'warning: data.test: "gone.fasta" is not there: neither in' in done.stderr


def test_the_working_folder_comes_second_and_the_command_line_means_it(tmp_path: Path) -> None:
    name = "data/proteins/valid.fasta.gz"
    assert (ROOT / name).is_file()
    recipe = write_recipe(tmp_path, f'"{name}"')
    assert f'train = ["{name}"]' in run_program("train", recipe, "--dump-config").stdout
    beside = tmp_path / name
    beside.parent.mkdir(parents=True)
    beside.write_text(PROTEINS)
    both = run_program("train", recipe, "--dump-config")
    assert f'train = ["{beside}"]' in both.stdout
    assert f"{name} in the working folder is not" in both.stderr
    given = run_program("train", recipe, "--set", f"data.train={name}", "--dump-config")
    assert f'train = ["{name}"]' in given.stdout
