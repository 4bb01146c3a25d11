"""What `performer train` says when it begins, while it goes on, and in the loss curve."""

import json
import re
from pathlib import Path

import pytest
from conftest import run_program
from small_recipes import one_layer, pixel_data


@pytest.fixture
def said(recipe: Path, tmp_path: Path) -> str:
    """Standard error of a run on a file of three records with a gap, a stop and a J in them."""
    fasta = tmp_path / "three.fasta"
    fasta.write_text(">a\nACDEFGHIKL-MNPQRSTVWY\n>b\nAAAAJCCCC\n>c\nACD*EFG\n>empty\n")
    done = run_program(
        "train", recipe, "--out", tmp_path / "run", "--threads", "1",
        "--set", f"data.train={fasta}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_run_begins_by_saying_what_it_is(said: str) -> None:
    lines = {line.split()[0]: line for line in said.splitlines()[:6]}
    assert list(lines) == ["data", "valid", "model", "device", "memory", "baseline"]
    assert "three.fasta: 3 sequences, 36 residues" in lines["data"]
    for notes in ("1 gap dropped", "1 stop inside read as X", "1 J read as X"):
        assert notes in lines["data"]
    assert "1 record without residues skipped" in lines["data"]
    assert "test.fasta.gz: 919 sequences, 331,743 residues" in lines["valid"]
    assert "2 layers of width 16, 2 heads, favor positive, 8 orthogonal features" in lines["model"]
    assert re.search(r"model +[\d,]+ parameters", lines["model"])
    assert "cpu, 1 thread, fp32; attention by cpu/" in lines["device"]
    assert re.search(r"[\d.]+ MiB of weights and optimizer", lines["memory"])
    pattern = r"25.00 uniform, [\d.]+ by frequencies without EOS; 26.00 and [\d.]+ with it, as in"
    assert re.search(pattern, lines["baseline"])


def test_rows_that_may_be_long_cost_nothing_before_they_are(recipe: Path, tmp_path: Path) -> None:
    fasta = tmp_path / "short.fasta"
    fasta.write_text(">a\nACDEFGHIKLMNPQRSTVWY\n>b\nAAAAACCCC\n")
    flags = ("--set", "data.length=20000000", "--set", "train.steps=1", "--set", "data.valid=")
    more = ("--set", "train.valid_every=0", "--threads", "1", "--set", f"data.train={fasta}")
    more = (*more, "--set", "data.pad_multiple=8")
    few = "-d 1500000"  # KiB; a call with all 20 million positions takes twice as much
    done = run_program("train", recipe, "--out", tmp_path / "run", *flags, *more, limit=few)
    assert done.returncode == 0, done.stderr
    assert "attention by cpu/" in done.stderr


def test_progress_and_curve_show_the_perplexity_beside_that_of_frequencies(
    said: str, tmp_path: Path
) -> None:
    steps = re.findall(
        r"^step \d+/12  loss (\S+)  perplexity (\S+) \(frequencies (\S+)\)", said, re.M
    )
    assert len(steps) == 12
    for loss, perplexity, _ in steps:
        assert float(perplexity) == pytest.approx(2.718281828 ** float(loss), rel=1e-3)
    records = [
        json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    ]
    baselines = [r for r in records if r.get("event") == "baselines"]
    assert len(baselines) == 1
    assert f"{baselines[0]['frequency_perplexity']:.2f}" == steps[0][2]
    assert baselines[0]["uniform_perplexity"] == 26
    curve = (tmp_path / "run/loss.svg").read_text()
    assert "frequencies" in curve
    assert ">perplexity<" in curve


def test_the_frequencies_are_those_of_the_training_targets(recipe: Path, tmp_path: Path) -> None:
    # Half A, half C, and EOS once in eleven targets: perplexity of (5, 5, 1) / 11.
    fasta = tmp_path / "ac.fasta"
    fasta.write_text(">a\nACACACACAC\n")
    out = tmp_path / "run"
    done = run_program("train", recipe, "--out", out, "--set", f"data.train={fasta}")
    assert done.returncode == 0, done.stderr
    shares = [5 / 11, 5 / 11, 1 / 11]
    expected = 1.0
    for share in shares:
        expected *= share**-share
    assert f"(frequencies {expected:.2f})" in done.stderr
    assert "2.00 by frequencies" in done.stderr


def test_exact_attention_and_other_data_are_named_too(tmp_path: Path) -> None:
    flags = ["train.steps=1", "data.recall_samples=100", "train.valid_batches=1"]
    settings = [flag for setting in flags for flag in ("--set", setting)]
    done = run_program("train", "configs/recall/exact.toml", "--out", tmp_path / "run", *settings)
    assert done.returncode == 0, done.stderr
    assert "made from data.seed: 100 samples" in done.stderr
    assert "attention by torch's own operators" in done.stderr


@pytest.mark.parametrize("value", ["-1", "nan", "1e18", "1000000000000000000", ""])
@pytest.mark.parametrize("option", ["--threads", "--overfit"])
def test_a_number_out_of_range_is_one_line(recipe: Path, option: str, value: str) -> None:
    done = run_program("train", recipe, f"{option}={value}")
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert option in done.stderr


def test_rows_shorter_than_their_images_are_warned_of(tmp_path: Path) -> None:
    recipe = tmp_path / "pixels.toml"
    data = pixel_data("data/images/fashion-200.idx3-ubyte.gz", 784)
    recipe.write_text(one_layer(data, train="steps = 1\nbatch = 1"))
    said = {}
    for length in (100, 784):
        out = tmp_path / f"run{length}"
        done = run_program("train", recipe, "--out", out, "--set", f"data.length={length}")
        assert done.returncode == 0, done.stderr
        said[length] = done.stderr
    assert "684 of its 784 values are left out; take data.length = 784, unless crops" in said[100]
    assert "left out" not in said[784]
    evaluated = run_program("eval", tmp_path / "run100", "--split", "train", "--max-batches", 1)
    assert "train: 684 of 784 values were left out: 1 of 1 images are longer" in evaluated.stdout
