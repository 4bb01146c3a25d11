"""The programs of examples/cpp build against an installed library, and run."""

import re
from pathlib import Path

import pytest
import torch
from conftest import ROOT, run


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    prefix = folder / "prefix"
    run("cmake", "--install", ROOT / "build", "--prefix", prefix, cwd=folder)
    paths = f"-DCMAKE_PREFIX_PATH={prefix};{torch.utils.cmake_prefix_path}"
    source = ROOT / "examples" / "cpp"
    run("cmake", "-G", "Ninja", "-S", source, "-B", folder / "out", paths, cwd=folder)
    run("cmake", "--build", folder / "out", cwd=folder)
    return folder / "out"


def test_more_features_err_less(programs: Path, tmp_path: Path) -> None:
    text = run(programs / "attention", cwd=tmp_path)
    errors = [float(error) for error in re.findall(r"^\d+  ([\d.]+)$", text, re.MULTILINE)]
    assert len(errors) == 3 and errors == sorted(errors, reverse=True) and errors[-1] < 0.25
    assert "better than plain averaging" in text
    assert "gradient of q: [1, 4, 2048, 64]" in text


def test_a_state_never_grows(programs: Path, tmp_path: Path) -> None:
    text = run(programs / "streaming", cwd=tmp_path)
    first, second = re.findall(r"(\d+) bytes", text)
    assert first == second
