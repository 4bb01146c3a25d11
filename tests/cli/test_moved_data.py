"""A run belongs to what its data hold, wherever they are and from wherever it is started."""

import os
import shutil
import subprocess
from pathlib import Path

from conftest import PROGRAM
from small_recipes import TINY
from training_runs import small_fasta


def tiny_project(folder: Path) -> Path:
    small_fasta(folder, 20)
    text = TINY.replace("data/proteins/valid.fasta.gz", "small.fasta")
    recipe = folder / "tiny.toml"
    recipe.write_text(text.replace("data/proteins/test.fasta.gz", "small.fasta"))
    return recipe


def train_in(folder: Path, *args: str) -> str:
    done = subprocess.run(
        [str(PROGRAM), "train", *args],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_run_goes_on_from_another_folder(tmp_path: Path) -> None:
    (tmp_path / "rec").mkdir()
    tiny_project(tmp_path / "rec")
    train_in(tmp_path, "rec/tiny.toml", "--out", "run")
    said = train_in(tmp_path / "rec", "tiny.toml", "--out", "../run", "--set", "train.steps=14")
    assert "resuming at step 12" in said


def test_a_run_goes_on_with_data_that_moved(tmp_path: Path) -> None:
    tiny_project(tmp_path)
    train_in(tmp_path, "tiny.toml", "--out", "run")
    (tmp_path / "moved").mkdir()
    shutil.move(tmp_path / "small.fasta", tmp_path / "moved" / "small.fasta")
    moved = [f"--set=data.{split}=moved/small.fasta" for split in ("train", "valid")]
    said = train_in(tmp_path, "tiny.toml", "--out", "run", "--set", "train.steps=14", *moved)
    assert "resuming at step 12" in said
