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


@pytest.mark.parametrize("option", ["--batch", "--lengths", "--dim", "--threads", "--rounds"])
@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "1e18", "1000000000000000000", "²"])
def test_a_number_out_of_range_is_one_line(program: Run, option: str, value: str) -> None:
    done = program("bench", "attention", f"{option}={value}")
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert option in done.stderr


def test_sizes_whose_product_no_machine_holds_are_one_line(program: Run) -> None:
    done = program("bench", "attention", "--batch", "1048576", "--lengths", "1048576")
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert "more than" in done.stderr


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
