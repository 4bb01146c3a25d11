"""`performer inspect`: what a model is, how its heads do, and the page of it."""

import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from conftest import PROGRAM, ROOT, Run, answer

MODEL = ROOT / "tests/fixtures/642545a/run"  # two layers of two heads, 8 features
NEAR = ROOT / "tests/fixtures/2febf82/run"
FASTA = ">a\nMKVLAAGIVGLLLAQWERTYPSDFGHKLCVNM\n><script>alert(1)</script>\nMKKLLPTAAAGLL\n"


@pytest.fixture
def proteins(tmp_path: Path) -> Path:
    path = tmp_path / "in.fasta"
    path.write_text(FASTA)
    return path


class Elements(HTMLParser):
    """How often each element opens, and the text between them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_run_is_measured_on_its_own_validation_data(program: Run) -> None:
    done = program("inspect", MODEL)
    assert done.returncode == 0, done.stderr
    assert "step 4, the best of validation" in done.stdout
    assert "favor, positive, 8 orthogonal features" in done.stdout
    assert "8 rows of at most 32 tokens of the run's own validation data" in done.stdout
    assert "the model's own features" in done.stdout
    assert len([line for line in done.stdout.splitlines() if line[:11].split() == ["1", "0"]]) == 1


def test_numbers_for_programs(proteins: Path) -> None:
    told = answer("inspect", MODEL, "--data", proteins, "--features", "8,32")
    assert sum(told["parameters_by_part"].values()) == told["parameters"] == 4944
    assert told["weight_bytes"] == 4 * 4944
    assert told["state_bytes"]["1024"] == told["state_bytes"]["65536"] > 0
    assert all("causal" in kernel for kernel in told["kernels"])
    assert len(told["kernels"]) == told["layers"] == 2
    quality = told["quality"]
    assert quality["rows"] == f"2 rows of at most 512 tokens of {proteins}"
    assert [(h["layer"], h["head"]) for h in quality["heads"]] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for head in quality["heads"]:
        assert [f["features"] for f in head["by_features"]] == [8, 32]
        assert head["own"]["features"] == 8
        assert head["beats_average"] == (head["own"]["error"] < head["uniform_error"])
    (growth,) = quality["growth"]
    assert len(growth["errors"]) == 3
    assert all(0 < error < 2 for error in growth["errors"])


def test_of_an_exact_model_it_says_what_features_would_cost(proteins: Path) -> None:
    exact = ("--set", "model.attention.kind=exact")
    told = answer("inspect", MODEL, *exact, "--data", proteins, "--features", "16,64")
    assert told["kernels"] == ["torch", "torch"]
    quality = told["quality"]
    assert all(head["own"] is None for head in quality["heads"])
    assert [g["name"] for g in quality["growth"]] == ["16 random features", "64 random features"]
    assert told["state_bytes"]["65536"] == 64 * told["state_bytes"]["1024"]


def test_a_near_field_is_part_of_what_is_measured() -> None:
    told = answer("inspect", NEAR, "--features", "8")
    assert all(kernel.endswith("/near") for kernel in told["kernels"])
    assert all(0 <= head["own"]["error"] < 5 for head in told["quality"]["heads"])


def test_without_data_of_its_own_the_rest_is_shown(tmp_path: Path) -> None:
    done = subprocess.run(
        [PROGRAM, "inspect", MODEL, "--json"],
        cwd=tmp_path,  # where its FASTA file is not
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert '"quality":null' in done.stdout
    assert done.stderr.count("\n") == 1
    assert "heads: not measured" in done.stderr
    assert "--data FILE" in done.stderr


def test_a_page_shows_names_as_text_and_loads_nothing(tmp_path: Path) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    run, data, page = tmp_path / hostile, tmp_path / f"{hostile}.fasta", tmp_path / "page.html"
    shutil.copytree(MODEL, run)
    data.write_text(FASTA)
    answer("inspect", run, "--data", data, "-o", page)
    html = page.read_text()
    found = Elements(html)
    assert "img" not in found.tags
    assert f"Model: {run}" in found.text
    assert str(data) in found.text
    assert found.tags.count("figure") == 4  # three maps, the growth
    assert found.tags.count("script") == 4  # of the page, and the numbers of each map
    for part in ("http://", "https://"):
        assert html.count(part) == html.count(f'"{part}www.w3.org/2000/svg"')


def test_what_is_wrong_is_one_line(program: Run, tmp_path: Path, proteins: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("mine")
    for words, code, said in [
        ((MODEL, "-o", page), 2, f"{page}: already exists"),
        ((MODEL, "--features", "0"), 2, "--features"),
        ((MODEL, "--data", tmp_path / "none"), 3, "none: cannot be opened"),
        ((tmp_path / "none",), 3, "none"),
        ((MODEL, "--data", proteins, "-o", tmp_path / "no" / "page"), 5, "page"),
    ]:
        done = program("inspect", *words)
        assert done.returncode == code, (words, done.stderr)
        assert done.stderr.count("\n") == 1, done.stderr
        assert said in done.stderr
    assert page.read_text() == "mine"
    assert program("inspect", MODEL, "-o", page, "--overwrite").returncode == 0
    assert page.read_text().startswith("<!doctype html>")
