"""`performer generate` by state: the same as reading everything again, in memory that stays."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import PROGRAM, answer
from small_recipes import one_layer, text_data
from training_runs import trained

import performer

WORDS = "It is a truth universally acknowledged, that a single man\nmust be in want of a wife.\n\n"
MARGIN = 1e-4  # between the two best logits, above which both ways must choose the same
EXACT = "model.attention.kind=exact"


def a_run(folder: Path, *settings: str) -> Path:
    text = folder / "text.txt"
    text.write_text(WORDS * 20)
    recipe = one_layer(text_data(text), model='positions = "rotary"', train="steps = 40")
    return trained(folder, recipe, EXACT, *settings)


@pytest.mark.parametrize("fitted", [False, True])
def test_state_and_recomputation_choose_the_same(tmp_path: Path, fitted: bool) -> None:
    run, out = a_run(tmp_path, "optimizer.rate=0.02", "model.layers=2"), tmp_path / "out"
    fit = ("--fit", tmp_path / "text.txt", "--fit-steps", 4, "--fit-rows", 2, "--fit-length", 32)
    answer("convert", run, out, "--features", 16, "--near", 8, *(fit if fitted else ()))
    greedy = ("--temperature", 0, "--no-stop", "--n", 1, "--length", 150)
    (sequence,) = answer("generate", out, "--prompt", "It is ", *greedy)["sequences"]
    text = sequence["text"].encode()
    model = performer.load(out)
    row = torch.tensor([model.tokens.start, *text])
    assert len(text) == 156
    with torch.no_grad():
        logits = model(row[None])[0, 6:-1, :256]
    best = logits.topk(2).values
    sure = best[:, 0] - best[:, 1] > MARGIN
    assert sure.sum() > 100
    assert torch.equal(logits.argmax(-1)[sure], row[7:][sure])


# Run by a small process: children begin with the most memory that their parent ever had.
MEASURE = """
import os, sys
with open(os.devnull, "w") as nothing:
    child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[
        (os.POSIX_SPAWN_DUP2, nothing.fileno(), 1), (os.POSIX_SPAWN_DUP2, nothing.fileno(), 2)])
_, status, used = os.wait4(child, 0)
print(used.ru_maxrss if status == 0 else "failed")
"""


def most_memory(run: Path, length: int, *flags: str) -> int:
    """KiB at most that a process took to generate so many tokens."""
    words = ("generate", run, "--n", 1, "--length", length, "--no-stop", "--threads", 1)
    command = [sys.executable, "-c", MEASURE, *map(str, (PROGRAM, *words, *flags))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.parametrize("positions", ["rotary", "sinusoidal"])
def test_memory_does_not_grow_with_the_text(tmp_path: Path, positions: str) -> None:
    small = ("train.steps=1", "model.dim=512", "model.heads=8", f"model.positions={positions}")
    run = a_run(tmp_path, *small)
    near = ("--set=model.attention.kind=favor", "--set=model.attention.near=16")
    cache = most_memory(run, 2100) - most_memory(run, 100)
    state = most_memory(run, 2100, *near) - most_memory(run, 100, *near)
    assert cache > 6 << 10  # 4 KiB a token, if this sees it at all
    assert state < 2 << 10
