"""The include check finds each kind of wrong arrow and nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "check_includes.py"


def check(tmp_path: Path, file: str, include: str) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "performer" / file
    path.parent.mkdir(parents=True)
    path.write_text(f"#pragma once\n\n#include {include}\n")
    return subprocess.run(
        [sys.executable, SCRIPT, tmp_path], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("file", "include"),
    [
        ("kernels/cpu/scan.h", "<ATen/core/Tensor.h>"),
        ("kernels/cpu/scan.h", "<torch/library.h>"),
        ("kernels/params.h", '"performer/core/error.h"'),
        ("core/error.h", '"performer/ops/favor/state.h"'),
        ("ops/feature_map.cpp", '"performer/models/class_head.h"'),
        ("models/block.h", '"performer/data/batch.h"'),
        ("data/batch.h", '"performer/models/block.h"'),
        ("data/batch.h", '"performer/ops/favor/state.h"'),
        ("train/trainer.h", '"performer/cli/train.h"'),
        ("train/trainer.h", '"performer/report/page.h"'),
        ("train/trainer.h", '"performer/pretrained/convert.h"'),
        ("pretrained/convert.h", '"performer/train/trainer.h"'),
        ("ops/feature_map.cpp", '"../models/heads.h"'),
        ("strange/thing.h", "<string>"),
    ],
)
def test_a_wrong_arrow_is_named_with_its_file(tmp_path: Path, file: str, include: str) -> None:
    result = check(tmp_path, file, include)
    assert result.returncode == 1
    assert f"{file}:" in result.stdout


@pytest.mark.parametrize(
    ("file", "include"),
    [
        ("kernels/cpu/scan.h", '"performer/kernels/params.h"'),
        ("kernels/cpu/scan.h", "<cstdint>"),
        ("ops/feature_map.cpp", '"performer/kernels/params.h"'),
        ("ops/feature_map.cpp", "<ATen/ATen.h>"),
        ("models/block.h", '"performer/ops/favor/state.h"'),
        ("train/trainer.h", '"performer/data/batch.h"'),
        ("cli/main.cpp", '"performer/train/trainer.h"'),
        ("performer.h", '"performer/ops/favor/state.h"'),
    ],
)
def test_a_right_arrow_passes(tmp_path: Path, file: str, include: str) -> None:
    assert check(tmp_path, file, include).returncode == 0


def test_this_tree_passes() -> None:
    result = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
