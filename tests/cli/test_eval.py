"""`performer eval`: what is left out, windows, single sequences, checkpoints and ranges."""

import csv
import json
import math
import os
import random
from pathlib import Path
from typing import Any

import pytest
from conftest import answer, run_program
from small_recipes import TINY, one_layer, text_data
from training_runs import trained

LENGTHS = [5, 31, 32, 33, 100, 250]  # residues; rows have 32 tokens


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("eval"), TINY)


@pytest.fixture(scope="module")
def masked_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = ["data.objective=masked", "model.causal=false", "train.steps=2"]
    return trained(tmp_path_factory.mktemp("masked"), TINY, *settings)


@pytest.fixture
def fasta(tmp_path: Path) -> Path:
    generator = random.Random(3)
    path = tmp_path / "some.fasta"
    with path.open("w") as file:
        for length in LENGTHS:
            letters = "".join(generator.choices("ACDEFGHIKLMNPQRSTVWY", k=length))
            file.write(f">s{length} of the test\n{letters}\n")
    return path


def scores(*arguments: object) -> dict[str, Any]:
    (result,) = answer("eval", *arguments)["splits"].values()
    return result


def table_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_what_the_rows_leave_out_is_counted_and_said(run: Path, fasta: Path) -> None:
    result = scores(run, "--data", fasta)
    # A causal row of 32 tokens has 32 targets: of a longer sequence its first 32 residues.
    assert result["residues"] == sum(LENGTHS)
    assert result["residues_left_out"] == sum(max(n - 32, 0) for n in LENGTHS)
    assert (result["sequences"], result["sequences_cut"]) == (6, 3)
    assert result["targets"] == sum(min(n + 1, 32) for n in LENGTHS)  # EOS where it is reached
    said = run_program("eval", run, "--data", fasta).stdout
    left_out = result["residues_left_out"]
    note = f"some.fasta: {left_out} of {sum(LENGTHS)} residues were left out: 3 of 6 sequences"
    assert note in said


def test_longer_rows_leave_nothing_out(run: Path, fasta: Path) -> None:
    result = scores(run, "--data", fasta, "--length", 256)
    assert (result["length"], result["residues_left_out"]) == (256, 0)
    assert result["targets"] == sum(n + 1 for n in LENGTHS)
    assert "left out" not in run_program("eval", run, "--data", fasta, "--length", 256).stdout


@pytest.mark.parametrize("overlap", [0, 1, 16, 31])
def test_windows_score_every_residue_once(run: Path, fasta: Path, overlap: int) -> None:
    result = scores(run, "--data", fasta, "--overlap", overlap)
    assert result["targets"] == sum(n + 1 for n in LENGTHS)
    assert (result["overlap"], result["residues_left_out"]) == (overlap, 0)


def test_windows_that_are_not_scored_are_not_said_to_be(
    run: Path, fasta: Path, tmp_path: Path
) -> None:
    # BOS is read too: 5 and 31 residues fill a window each, 32 and 33 take two, 100 takes six.
    table = tmp_path / "out.tsv"
    few = ("--data", fasta, "--overlap", 16, "--batch", 1, "--max-batches", 7)
    result = scores(run, *few, "--per-sequence", table)
    assert (result["sequences"], result["sequences_of_split"]) == (5, 6)
    assert result["residues"] == sum(LENGTHS[:5])
    assert (result["sequences_cut"], result["residues_left_out"]) == (1, 100 - 32)
    rows = table_of(table)
    assert [int(row["left_out"]) for row in rows] == [0, 0, 0, 0, 68]
    assert [int(row["targets"]) for row in rows] == [6, 32, 33, 34, 32]
    said = run_program("eval", run, *few).stdout
    note = "some.fasta: --max-batches ended in sequence 5 of 6; its last 68 residues were left out"
    assert note in said
    ends = scores(run, *few[:-1], 6)  # at the end of a sequence
    assert (ends["sequences"], ends["residues_left_out"]) == (4, 0)
    assert "ended" not in run_program("eval", run, *few[:-1], 100).stdout


def test_rows_that_are_not_scored_are_not_said_to_be(
    run: Path, fasta: Path, tmp_path: Path
) -> None:
    table = tmp_path / "out.tsv"
    few = ("--data", fasta, "--batch", 2, "--max-batches", 2)
    result = scores(run, *few, "--per-sequence", table)
    assert (result["sequences"], result["sequences_of_split"]) == (4, 6)
    assert (result["sequences_cut"], result["residues_left_out"]) == (1, 1)
    assert [int(row["left_out"]) for row in table_of(table)] == [0, 0, 0, 1]
    said = run_program("eval", run, *few).stdout
    assert "some.fasta: --max-batches ended in sequence 4 of 6\n" in said
    assert "1 of 4 sequences are longer than a row" in said


def test_windows_of_short_sequences_are_the_rows_themselves(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "short.fasta"
    path.write_text(">a\nACDEFGHIKL\n>b\nMNPQRSTVWYACDEFGHIKLMNPQRSTVWY\n")
    plain, windows = (scores(run, "--data", path, *o) for o in ([], ["--overlap", "8"]))
    assert windows["loss"] == plain["loss"]
    assert windows["targets"] == plain["targets"] == 42


def test_a_window_has_the_tokens_before_it_as_context(run: Path, tmp_path: Path) -> None:
    # 48 residues in rows of 32 with 16 of overlap: the second window reads tokens 16 ... 47, so a
    # change of residue 10 cannot reach its targets, one of residue 20 does.
    letters = "ACDEFGHIKLMNPQRSTVWY" * 3
    tables = []
    for changed in (None, 10, 20):
        text = list(letters[:48])
        if changed is not None:
            text[changed - 1] = "W" if text[changed - 1] != "W" else "A"
        path = tmp_path / f"{changed}.fasta"
        path.write_text(">x\n" + "".join(text) + "\n")
        whole = scores(run, "--data", path, "--overlap", 16)
        first = scores(run, "--data", path)
        tables.append(whole["loss"] * whole["targets"] - first["loss"] * first["targets"])
    assert tables[1] == pytest.approx(tables[0], abs=1e-4)
    assert abs(tables[2] - tables[0]) > 3e-4  # a dozen steps of training: a faint effect


def test_masked_models_are_scored_in_windows_too(masked_run: Path, fasta: Path) -> None:
    cut = scores(masked_run, "--data", fasta)
    # Rows hold BOS and 31 residues.
    assert cut["residues_left_out"] == sum(max(n - 31, 0) for n in LENGTHS)
    whole = scores(masked_run, "--data", fasta, "--overlap", 8)
    assert whole["residues_left_out"] == 0
    assert whole["targets"] > cut["targets"]


def test_a_table_of_single_sequences_adds_up(run: Path, fasta: Path, tmp_path: Path) -> None:
    for options in ([], ["--overlap", "16"]):
        path = tmp_path / f"scores{len(options)}.tsv"
        result = scores(run, "--data", fasta, "--per-sequence", path, *options)
        rows = table_of(path)
        assert [row["id"] for row in rows] == [f"s{n}" for n in LENGTHS]
        assert [int(row["residues"]) for row in rows] == LENGTHS
        assert [row["sequence"] for row in rows] == [str(i) for i in range(1, 7)]
        assert {row["split"] for row in rows} == {"some.fasta"}
        targets = [int(row["targets"]) for row in rows]
        assert sum(targets) == result["targets"]
        total = sum(float(row["loss"]) * n for row, n in zip(rows, targets, strict=True))
        assert total / sum(targets) == pytest.approx(result["loss"], rel=1e-5)
        right = sum(float(row["accuracy"]) * n for row, n in zip(rows, targets, strict=True))
        assert right / sum(targets) == pytest.approx(result["accuracy"], abs=1e-4)
        for row in rows:
            assert float(row["perplexity"]) == pytest.approx(math.exp(float(row["loss"])), rel=1e-3)


def test_ids_are_text_alone(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "ids.fasta"
    path.write_bytes(b">../../etc/<b>\\x\nACDEF\n>\nACDEF\n>a|b c\td\nACD\n")
    table = tmp_path / "out.tsv"
    scores(run, "--data", path, "--per-sequence", table)
    ids = [row["id"] for row in table_of(table)]
    assert ids == ["../../etc/<b>\\\\x", "", "a|b"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ids.fasta", "out.tsv"]


def test_a_table_that_is_there_is_not_overwritten_unless_asked(
    run: Path, fasta: Path, tmp_path: Path
) -> None:
    table = tmp_path / "out.tsv"
    table.write_text("mine")
    arguments = ["eval", run, "--data", fasta, "--per-sequence", table]
    done = run_program(*arguments)
    assert done.returncode == 2
    assert "out.tsv: already exists; name another file, or pass --overwrite" in done.stderr
    assert table.read_text() == "mine"
    assert run_program(*arguments, "--overwrite").returncode == 0
    assert len(table_of(table)) == len(LENGTHS)


@pytest.mark.parametrize("name", ["nodir/x.tsv", "x" * 300, "", "folder"])
def test_a_table_that_cannot_be_made_is_told_before_scoring(
    run: Path, fasta: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "folder").mkdir()
    place = f"{tmp_path}/{name}" if name else "/dev/full"
    flags = ("--per-sequence", place, "--overwrite")
    done = run_program("eval", run, "--data", fasta, *flags)
    assert done.returncode == 5, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"performer: {place}: ")


@pytest.mark.parametrize("kind", ["pipe", "link to a pipe", "dangling link"])
def test_a_table_takes_the_place_of_no_pipe_and_asks_about_links(
    run: Path, fasta: Path, tmp_path: Path, kind: str
) -> None:
    table, other = tmp_path / "out.tsv", tmp_path / "other"
    if kind == "pipe":
        os.mkfifo(table)
    else:
        table.symlink_to(other)
    if kind == "link to a pipe":
        os.mkfifo(other)
    command = ("eval", run, "--data", fasta, "--per-sequence", table)
    assert "out.tsv: already exists" in run_program(*command).stderr
    if kind != "dangling link":
        done = run_program(*command, "--overwrite")
        assert done.returncode == 5, done.stderr
        assert table.is_fifo()


def test_results_are_printed_before_a_table_that_fails(
    run: Path, fasta: Path, tmp_path: Path
) -> None:
    many = tmp_path / "many.fasta"
    many.write_text("".join(f">{i}\nACD\n" for i in range(300)))
    flags = ("--json", "--per-sequence", tmp_path / "out.tsv")
    done = run_program("eval", run, "--data", many, *flags, limit="-f 8")
    assert done.returncode == 5, done.stderr
    assert json.loads(done.stdout)["splits"]["many.fasta"]["samples"] == 300
    assert not (tmp_path / "out.tsv").exists()


def test_a_split_that_is_named_twice_is_scored_once(run: Path, fasta: Path, tmp_path: Path) -> None:
    table = tmp_path / "out.tsv"
    splits = ("--split", "valid", "--split", "train", "--split", "valid", "--max-batches", 3)
    told = answer("eval", run, *splits, "--per-sequence", table)
    assert list(told["splits"]) == ["valid", "train"]
    assert [row["split"] for row in table_of(table)] == ["valid"] * 6 + ["train"] * 6


def test_a_file_of_ones_own_is_named_and_is_no_split(run: Path, fasta: Path) -> None:
    assert list(answer("eval", run, "--data", fasta)["splits"]) == ["some.fasta"]
    shown = run_program("eval", run, "--data", fasta).stdout
    assert "some.fasta  model" in shown
    assert list(answer("eval", run, "--data", f"{fasta.parent}/")["splits"]) == [fasta.parent.name]
    done = run_program("eval", run, "--data", fasta, "--split", "ood")
    assert done.returncode == 2, done.stderr
    assert f"--split ood: --data {fasta} is scored in place of the run's splits" in done.stderr


def test_a_split_that_is_not_there_is_told_before_scoring(run: Path) -> None:
    done = run_program("eval", run, "--split", "valid", "--split", "vaild")
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert "--split: must be" in done.stderr
    assert "did you mean valid?" in done.stderr
    for splits in ([], ["--split", "train", "--split", "ood"]):  # none of its own is named
        done = run_program("eval", run, *splits)
        assert done.returncode == 2, done.stderr
        assert done.stdout == ""
        absent = "ood" if splits else "test"
        words = f"this run has no {absent} split; take --split train or valid, or name a file with"
        assert words in done.stderr


@pytest.mark.parametrize(
    ("kind", "positions", "reason"),
    [
        ("linformer", "rotary", "Linformer projections"),
        ("favor", "learned", "learned positions"),
    ],
)
def test_a_length_beyond_the_model_is_refused_for_its_reason(
    tmp_path: Path, kind: str, positions: str, reason: str
) -> None:
    masked = ["data.objective=masked", "model.causal=false", "train.steps=1", "train.valid_every=0"]
    masked += [f"model.attention.kind={kind}", f"model.positions={positions}"]
    masked += ["model.attention.linformer_k=8"]
    run = trained(tmp_path, TINY, *masked)
    done = run_program("eval", run, "--split", "valid", "--length", 64)
    assert done.returncode == 2, done.stderr
    assert f"--length: the model has {reason} for 32 tokens, got 64" in done.stderr


def test_the_uniform_baseline_is_that_of_data_stats(run: Path, fasta: Path) -> None:
    baselines = scores(run, "--data", fasta, "--baselines", "--overlap", 0)["baselines"]
    stats = answer("data", "stats", "data/proteins/valid.fasta.gz", fasta)
    assert baselines["uniform"] == stats["uniform"]
    assert baselines["uniform"]["perplexity"] == 25
    # EOS is one more choice, and a target that the letters lack.
    assert baselines["with_eos"]["uniform"]["perplexity"] == 26
    shown = run_program("eval", run, "--data", fasta, "--baselines").stdout
    assert "25.000   without EOS; 26.000 with EOS" in shown
    assert "frequencies " in shown


def test_baselines_are_of_the_rows_that_were_scored(run: Path, tmp_path: Path) -> None:
    letters = "ACDEFGHI"
    for name, count in (("few", 2), ("many", 8)):
        text = "".join(f">{c}\n{c * 20}\n" for c in letters[:count])
        (tmp_path / f"{name}.fasta").write_text(text)
    few = scores(run, "--data", tmp_path / "few.fasta", "--baselines")
    command = ("--data", tmp_path / "many.fasta", "--baselines", "--batch", 2, "--max-batches", 1)
    begun = scores(run, *command)
    assert begun["targets"] == few["targets"]
    assert begun["baselines"] == few["baselines"]
    assert (begun["samples"], begun["samples_of_split"]) == (2, 8)
    note = "the baselines are those of the 2 rows of 8 that were scored"
    assert note in run_program("eval", run, *command).stdout
    assert note not in run_program("eval", run, *command[:-2]).stdout


def test_the_checkpoint_is_said_and_can_be_chosen(run: Path, fasta: Path) -> None:
    done = run_program("eval", run, "--data", fasta, "--checkpoint", "latest")
    assert done.returncode == 0, done.stderr
    assert "step 12, the latest" in done.stdout
    done = run_program("eval", run, "--data", fasta, "--json")
    assert "the best of validation" in done.stderr
    for name in ("9", "step-000000009"):
        assert answer("eval", run, "--data", fasta, "--checkpoint", name)["step"] == 9


@pytest.mark.parametrize(
    "option", ["--batch", "--max-batches", "--length", "--overlap", "--threads"]
)
@pytest.mark.parametrize(
    "value", ["nan", "inf", "-1", "1e18", "1000000000000000000", "99999999999999999999", "", "1.5"]
)
def test_a_number_out_of_range_is_one_line(run: Path, option: str, value: str) -> None:
    done = run_program("eval", run, f"{option}={value}")
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert option in done.stderr


def test_an_overlap_as_long_as_the_rows_is_refused(run: Path, fasta: Path) -> None:
    done = run_program("eval", run, "--data", fasta, "--overlap", 32)
    assert done.returncode == 2, done.stderr
    assert "--overlap: must be at least 0 and below the rows' length 32, got 32" in done.stderr


def test_the_largest_batch_is_the_whole_split(run: Path, fasta: Path) -> None:
    whole = scores(run, "--data", fasta, "--batch", 1 << 20)
    single = scores(run, "--data", fasta, "--batch", 1)
    assert whole["loss"] == pytest.approx(single["loss"], rel=1e-5)
    assert whole["targets"] == single["targets"]


def test_of_a_text_its_bytes_are_counted_and_no_ends(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("It is a truth universally acknowledged. " * 5)
    run = trained(tmp_path, one_layer(text_data(text)))
    table = tmp_path / "out.tsv"
    whole = ("--data", text, "--overlap", 8, "--batch", 1)
    scores(run, *whole, "--per-sequence", table)
    (row,) = table_of(table)
    assert int(row["residues"]) == 200
    assert int(row["targets"]) == 201  # EOS too


def test_what_a_long_recipe_has_trained_is_evaluated(tmp_path: Path) -> None:
    # A checkpoint holds it as JSON, which is longer than the TOML that it was read from.
    run = trained(tmp_path, "description = '" + '"' * 600_000 + "'\n" + TINY, "train.steps=1")
    assert (run / "checkpoints/step-000000001/config.json").stat().st_size > 1 << 20
    scored = answer("eval", run, "--split", "valid", "--max-batches", "1")
    assert scored["splits"]["valid"]["samples"] == 2
