"""What the program says to words it does not know, and the help of every command."""

import pytest
from conftest import Run

COMMANDS = ["train", "eval", "embed", "score", "attention", "generate", "inspect", "data", "bench"]
PLANNED = ["reproduce"]


def complaint(program: Run, *words: str) -> str:
    """The one line that refuses `words`, with exit code 2 and no other output."""
    done = program(*words)
    assert done.returncode == 2, (words, done.stdout, done.stderr)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("words", "unknown", "near"),
    [
        (["trian"], "'trian'", "did you mean train?"),
        (["evaluate"], "'evaluate'", "performer --help"),
        (["genrate", "runs/x", "--n", "3"], "'genrate'", "did you mean generate?"),
        (["data", "biuld", "in.fasta"], "'biuld'", "did you mean build?"),
        (["bench", "modle"], "'modle'", "did you mean model?"),
        (["frobnicate"], "'frobnicate'", "performer --help"),
    ],
)
def test_an_unknown_command_is_named_with_the_nearest_one(
    program: Run, words: list[str], unknown: str, near: str
) -> None:
    said = complaint(program, *words)
    assert f"unknown command {unknown}" in said
    assert near in said


@pytest.mark.parametrize("name", PLANNED)
def test_a_command_that_is_not_there_yet_says_so(program: Run, name: str) -> None:
    for words in ([name], [name, "--help"], [name, "runs/first", "--json"]):
        said = complaint(program, *words)
        assert said.startswith(f"performer: {name}: this command is not there yet")
        assert "train, eval, embed, score, attention, generate" in said


def test_no_command_lists_those_that_there_are(program: Run) -> None:
    assert (
        "a command is needed: train, eval, embed, score, attention, generate, inspect, convert, "
        "data, bench" in complaint(program)
    )
    assert "data: a command is needed: build, stats" in complaint(program, "data")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "r.toml", "--ot", "x"], "train: unknown option --ot; did you mean --out?"),
        (["eval", "r", "--splt=test"], "eval: unknown option --splt; did you mean --split?"),
        (["data", "stats", "a", "--jsn"], "data stats: unknown option --jsn; did you mean --json?"),
        (["generate", "r", "more"], "generate: unexpected argument 'more'"),
        (["train"], "train: recipe is required; see performer train --help"),
        (["-x"], "unknown option -x; "),
        (["--json", "train", "r.toml"], "unknown option --json; options of a command come after"),
        (["--versio"], "unknown option --versio; did you mean --version?"),
        (["data", "--foo"], "data: unknown option --foo; options of a command come after its name"),
        (["train", "--bogus"], "train: unknown option --bogus; see performer train --help"),
        (["train", "--otu=x"], "train: unknown option --otu; did you mean --out?"),
        (["train", "--"], "train: recipe is required; see performer train --help"),
    ],
)
def test_an_unknown_option_is_named_with_the_nearest_one(
    program: Run, words: list[str], said: str
) -> None:
    assert said in complaint(program, *words)


@pytest.mark.parametrize(
    "command",
    [[], *([name] for name in COMMANDS)]
    + [["data", name] for name in ("build", "stats", "split", "tokenizer")]
    + [["bench", name] for name in ("attention", "model")],
)
def test_every_help_has_an_example_and_goes_to_standard_output(
    program: Run, command: list[str]
) -> None:
    done = program(*command, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert " ".join(["performer", *command]) in done.stdout
    assert "xample" in done.stdout
    assert ("Exit codes:" in done.stdout) == (not command)  # the program's own last words


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["train", "--help"]])
@pytest.mark.parametrize("handles", [">&-", ">/dev/full"])
def test_help_that_cannot_be_written_is_an_error(
    program: Run, words: list[str], handles: str
) -> None:
    done = program(*words, handles=handles)
    assert done.returncode == 5
    assert done.stderr == "performer: standard output: cannot be written\n"
