"""Data through pipes: everything arrives, and what would be read twice is refused."""

import json
import os
import subprocess
from pathlib import Path

from conftest import PROGRAM, ROOT, run_program

RECORDS = 4000


def many_records() -> str:
    return "".join(f">p{i}\nMKVLACDEFGHIKLMNPQRST\n" for i in range(RECORDS))


def through_bash(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=120, check=False, cwd=ROOT
    )


def test_stats_counts_every_sequence_of_a_process_substitution(tmp_path: Path) -> None:
    fasta = tmp_path / "big.fasta"
    fasta.write_text(many_records())
    done = through_bash(f"{PROGRAM} data stats --json <(cat {fasta})")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["parts"][0]["lengths"]["count"] == RECORDS
    assert result["read"]["bytes"] == len(many_records())


def test_stats_counts_every_sequence_of_a_named_pipe(tmp_path: Path) -> None:
    fifo, fasta = tmp_path / "fifo", tmp_path / "big.fasta"
    fasta.write_text(many_records())
    os.mkfifo(fifo)
    done = through_bash(f"cat {fasta} > {fifo} & {PROGRAM} data stats --json {fifo}; wait")
    assert json.loads(done.stdout)["parts"][0]["lengths"]["count"] == RECORDS


def test_training_reads_standard_input(recipe: Path, tmp_path: Path) -> None:
    flags = ("--set", "data.train=-", "--set", "train.steps=2", "--set", "train.valid_every=0")
    done = run_program("train", recipe, "--out", tmp_path / "run", *flags, input=many_records())
    assert done.returncode == 0, done.stderr


def test_training_refuses_a_pipe_for_two_splits(recipe: Path, tmp_path: Path) -> None:
    flags = ("--set", "data.train=-", "--set", "data.valid=-")
    done = run_program("train", recipe, "--out", tmp_path / "run", *flags, input=many_records())
    assert done.returncode == 2
    assert "data.valid: - is a pipe and gives its data only once" in done.stderr


def test_a_second_look_at_standard_input_says_what_is_wrong() -> None:
    done = run_program("data", "stats", "-", "-", input=">a\nMKV\n")
    assert done.returncode == 2
    assert "- comes twice" in done.stderr
    done = run_program("data", "stats", "-", "/dev/stdin", input=">a\nMKV\n")
    assert done.returncode == 3
    assert "a pipe can be read only once" in done.stderr
