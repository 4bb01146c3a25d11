"""`performer bench attention` of an installed program."""

import json
from pathlib import Path

import pytest
from conftest import ROOT, run


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    run("cmake", "--install", ROOT / "build", "--prefix", tmp_path / "prefix", cwd=tmp_path)
    return tmp_path / "prefix"


def test_the_installed_program_has_its_bench_and_says_when_it_is_gone(
    prefix: Path, tmp_path: Path
) -> None:
    program = prefix / "bin" / "performer"
    bench = prefix / "share" / "performer" / "bench"
    sizes = ["--lengths", "16", "--heads", "1", "--rounds", "1", "--systems", "performer"]
    text = run(program, "bench", "attention", *sizes, "--causal", "--json", cwd=tmp_path)
    (case,) = json.loads(text.splitlines()[-1])["cases"]
    assert case["rows"][0]["passes"]["forward"]["us"] > 0
    assert {path.suffix for path in bench.rglob("*") if path.is_file()} <= {".py", ".pyc"}
    (bench / "attention.py").unlink()
    text = run(program, "bench", "attention", cwd=tmp_path, fails=True)
    (line,) = text.splitlines()
    assert f"{bench}/attention.py is not there" in line
