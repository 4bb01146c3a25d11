"""The report of `performer convert --calibrate` and `--fit`: before, and after."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, answer
from test_convert_fit import write_bert, write_text

FIT = ("--features", 16, "--fit-rows", 8, "--fit-length", 24)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an imported model that was calibrated, and one that was fitted."""
    folder = tmp_path_factory.mktemp("reports")
    text = write_text(folder / "fit.txt", 1)
    # What a folder is called is told on the page.
    source = write_bert(folder / "<script>alert(1)<")
    answer("convert", source, folder / "calibrated", "--calibrate", text, *FIT)
    answer("convert", source, folder / "fitted", "--fit", text, *FIT, "--fit-steps", 40)
    return folder


def report(model: Path) -> dict[str, Any]:
    return json.loads((model / "report.json").read_text())


def test_it_tells_of_every_head_and_of_the_growth_before_and_after(fitted: Path) -> None:
    calibrated, after = report(fitted / "calibrated"), report(fitted / "fitted")
    assert (after["features"], after["near"]) == (16, 0)
    heads, exact = after["attention"]["heads"], after["attention"]["exact_heads"]
    assert len(heads) == len(exact) > 0
    assert all(h["own"]["features"] == 16 for h in heads)
    assert all(h["own"] is None for h in exact)
    assert [f["features"] for f in exact[0]["by_features"]] == [16, 64, 128, 256]
    swapped, last = after["attention"]["growth"]
    assert (swapped["name"], last["name"]) == ("swapped, nothing fitted", "fitted")
    assert last["errors"][-1] < swapped["errors"][-1]
    assert calibrated["attention"]["growth"][1]["name"] == "calibrated"
    # Nothing of the fit is in what comes before it.
    assert calibrated["attention"]["growth"][0] == swapped
    assert calibrated["attention"]["exact_heads"] == exact


def test_its_page_shows_names_as_text(fitted: Path) -> None:
    html = (fitted / "fitted" / "report.html").read_text()
    assert html.startswith("<!doctype html>")
    assert "&lt;script&gt;alert(1)" in html
    assert "<script>alert" not in html
    assert html.count("<figure") == 5  # four maps and the growth
    assert "swapped, nothing fitted" in html


def test_it_is_part_of_the_checkpoint(program: Run, fitted: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(fitted / "fitted", model)
    listed = [f["name"] for f in json.loads((model / "manifest.json").read_text())["files"]]
    assert {"report.json", "report.html"} <= set(listed)
    told = answer("inspect", model, "--data", fitted / "fit.txt", "--features", "16")
    assert told["quality"]["growth"][0]["name"] == "the model's own features"
    (model / "report.html").write_text("changed")
    done = program("inspect", model)
    assert done.returncode == 4
    assert "report.html: damaged" in done.stderr


def test_an_export_leaves_it_behind(fitted: Path, tmp_path: Path) -> None:
    answer("convert", "--export", fitted / "fitted", tmp_path / "back")
    assert not list((tmp_path / "back").glob("*report*"))


def test_a_conversion_without_fitting_has_none(fitted: Path, tmp_path: Path) -> None:
    answer("convert", fitted / "<script>alert(1)<", tmp_path / "raw", "--features", 16)
    assert not list((tmp_path / "raw").glob("*report*"))
