"""Ten training steps of tests/golden, number by number, from a file of proteins to the weights.

PERFORMER_WRITE_GOLDEN=1 pytest tests/cli/test_golden.py   writes the numbers anew
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from training_runs import checkpoint, digests, metrics, train

FOLDER = ROOT / "tests/golden"
RECIPE = FOLDER / "recipe.toml"
STEPS = FOLDER / "steps.json"
# Not the accuracies: of two tokens that are all but equal, rounding may choose the other one.
NUMBERS = ("loss", "rate", "gradient_norm", "valid_loss")
# 18 times what other instructions gave: 1.1e-7 at most, of our kernels off, portable and AVX2, of
# torch's and MKL's for SSE and AVX2, and of two threads. A tenth more weight decay gives 4.7e-5.
TOLERANCE = 2e-6
EXACT = ("step", "tokens", "targets")


def numbers_of(run: Path) -> list[dict[str, Any]]:
    kept = (*EXACT, *NUMBERS)
    lines = [{key: line[key] for key in kept if key in line} for line in metrics(run)]
    return [line for line in lines if len(line) > 1]


def differences(run: Path) -> list[str]:
    """What is not as the file says; for numbers, beyond the tolerance."""
    golden, seen = json.loads(STEPS.read_text()), numbers_of(run)
    found = []
    for want, got in zip(golden, seen, strict=True):
        assert want.keys() == got.keys()
        for key, value in want.items():
            exact = key in EXACT
            if got[key] != (value if exact else pytest.approx(value, rel=TOLERANCE)):
                found.append(f"step {want['step']}: {key} {got[key]}, should be {value}")
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("golden") / "run"
    train(RECIPE, out)
    if "PERFORMER_WRITE_GOLDEN" in os.environ:
        lines = ",\n".join(json.dumps(line) for line in numbers_of(out))
        STEPS.write_text(f"[\n{lines}\n]\n")
    return out


def test_ten_steps_have_their_losses_and_gradient_norms(run: Path) -> None:
    assert not differences(run)


NEEDS_AVX2 = pytest.mark.skipif(
    " avx2 " not in Path("/proc/cpuinfo").read_text(), reason="a processor without AVX2"
)


@pytest.mark.parametrize("kernels", ["off", "portable", pytest.param("avx2", marks=NEEDS_AVX2)])
def test_other_instruction_sets_have_them_too(
    kernels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFORMER_CPU_KERNELS", kernels)
    train(RECIPE, tmp_path / "run")
    assert not differences(tmp_path / "run")


@pytest.mark.parametrize(
    "setting",
    ["optimizer.weight_decay=0.11", "optimizer.beta2=0.981", "model.dropout=0.101"],
)
def test_a_small_change_is_noticed(setting: str, tmp_path: Path) -> None:
    train(RECIPE, tmp_path / "run", setting)
    assert differences(tmp_path / "run")


def test_a_run_that_is_saved_and_resumed_ends_in_the_same_bytes(run: Path, tmp_path: Path) -> None:
    train(RECIPE, tmp_path / "run", "train.steps=5")
    said = train(RECIPE, tmp_path / "run")
    assert "resuming at step 5" in said
    assert metrics(tmp_path / "run") == metrics(run)
    assert digests(checkpoint(tmp_path / "run")) == digests(checkpoint(run))
