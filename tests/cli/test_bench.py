"""`performer bench`: the attention bench is started in the right Python."""

import pytest
from conftest import Run


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


def test_a_python_that_is_not_there_is_one_line(
    program: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFORMER_PYTHON", "/absent/python")
    done = program("bench", "attention", "--help")
    assert done.returncode == 1
    assert done.stderr.startswith("performer: bench attention: cannot start /absent/python")
    assert done.stderr.count("\n") == 1
