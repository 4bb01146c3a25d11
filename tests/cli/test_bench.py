"""`performer bench`: the attention bench is started in the right Python."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PROGRAM, Run


def test_help_of_the_attention_bench_comes_from_its_parser(program: Run) -> None:
    done = program("bench", "attention", "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: performer bench attention")
    assert "examples:" in done.stdout and "--scaling" in done.stdout


def test_a_bad_option_is_one_line_and_exit_code_2(program: Run) -> None:
    done = program("bench", "attention", "--bogus")
    assert done.returncode == 2
    assert done.stderr == (
        "performer: bench attention: unrecognized arguments: --bogus; see --help\n"
    )
    assert done.stdout == ""


def test_a_number_out_of_range_is_one_line(program: Run) -> None:
    done = program("bench", "attention", "--threads=²")
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert "argument --threads: must be a whole number from 1 to 1024" in done.stderr


@pytest.mark.parametrize("option", ["--steps", "--threads"])
@pytest.mark.parametrize("value", ["0", "-1", "nan", "1e18", "1000000000000000000"])
def test_a_model_bench_refuses_such_numbers_too(program: Run, option: str, value: str) -> None:
    done = program("bench", "model", "configs/bench/regular.toml", f"{option}={value}")
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert option in done.stderr


def test_a_python_that_is_not_there_is_one_line(
    program: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFORMER_PYTHON", "/absent/python")
    done = program("bench", "attention", "--help")
    assert done.returncode == 1
    assert done.stderr.startswith("performer: bench attention: cannot start /absent/python")
    assert done.stderr.count("\n") == 1


def test_a_program_without_its_bench_says_where_it_looked(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    shutil.copy(PROGRAM, tmp_path / "bin" / "performer")
    command = [tmp_path / "bin" / "performer", "bench", "attention", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stdout == ""
    place = tmp_path / "share" / "performer" / "bench" / "attention.py"
    assert done.stderr == (
        f"performer: bench attention: {place} is not there; it belongs to the source tree, and "
        "`make install` copies it beside the program\n"
    )


def test_a_python_without_the_package_is_one_line(
    program: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "performer.py").write_text("raise ImportError('performer: no library')\n")
    script = tmp_path / "python"
    python = f'PYTHONPATH={tmp_path} exec {sys.executable} "$@"'
    script.write_text(f"#!/bin/sh\n{python}\n")
    script.chmod(0o755)
    monkeypatch.setenv("PERFORMER_PYTHON", str(script))
    done = program("bench", "attention", "--help")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == "performer: bench attention: performer: no library\n"
