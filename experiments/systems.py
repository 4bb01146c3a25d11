"""Trains every kind of attention for 500 steps on proteins and prints a table of how it went.

python experiments/systems.py [--steps 500] [--only favor/relu ...] [--out runs/systems]

One thread, one run after the other; a run that is there is not done again. Losses are means of the
last 20 steps. A skipped step had a loss or gradient that was not finite.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "build" / "performer"

SOFTMAX = ("positive", "loglinear", "hyperbolic", "trigonometric")
SIGNED = ("cos", "tanh", "identity", "sgn", "gelu")  # weights of both signs
GENERALISED = ("relu", "exp", "sigmoid", "abs", "square", "elu1", *SIGNED)

RECIPE = """
[data]
task = "protein"
train = "data/proteins/train.fasta.gz"
length = 128
[model]
layers = 2
dim = 64
heads = 4
ff_dim = 128
positions = "rotary"
dropout = 0.0
[model.attention]
features = 32
linformer_k = 32
lsh_chunk = 16
[train]
batch = 2
log_every = 20
valid_every = 0
checkpoint_every = 0
[optimizer]
rate = 1e-3
"""
MASKED = ("data.objective=masked", "model.causal=false")


def systems() -> Iterator[tuple[str, list[str]]]:
    """Names and settings. Masked rows have another loss than causal ones."""
    for kind in ("exact", "mean", "identity", "lsh"):
        yield kind, [f"model.attention.kind={kind}"]
    for kernel in (*SOFTMAX, *GENERALISED):
        yield f"favor/{kernel}", [f"model.attention.kernel={kernel}"]
    yield (
        "favor/positive, sqrt_d",
        ["model.attention.kernel=positive", "model.attention.projection_norm=sqrt_d"],
    )
    yield (
        "favor/positive, redrawn",
        ["model.attention.kernel=positive", "model.attention.redraw_interval=50"],
    )
    yield (
        "favor/relu, no projection",
        ["model.attention.kernel=relu", "model.attention.features=0"],
    )
    yield "linear", ["model.attention.kind=linear"]
    off = "model.attention.renormalize=false"
    for kernel in (*SOFTMAX, *GENERALISED):
        yield f"favor/{kernel}, not renormalised", [f"model.attention.kernel={kernel}", off]
    yield "linear, not renormalised", ["model.attention.kind=linear", off]
    yield "exact, masked", ["model.attention.kind=exact", *MASKED]
    for projection in ("learned", "random"):
        settings = [
            "model.attention.kind=linformer",
            f"model.attention.linformer_projection={projection}",
            "model.attention.redraw_interval=50",
        ]
        yield f"linformer/{projection}, masked", [*settings, *MASKED]


def train(recipe: Path, out: Path, settings: list[str]) -> int:
    flags = [flag for setting in settings for flag in ("--set", setting)]
    done = subprocess.run(
        [str(PROGRAM), "train", str(recipe), "--out", str(out), "--device", "cpu", *flags],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 7):
        sys.exit(f"{out.name}: exit code {done.returncode}: {done.stderr}")
    return done.returncode


def summary(out: Path, code: int) -> str:
    lines = (out / "metrics.jsonl").read_text().splitlines()
    records: list[dict[str, Any]] = [json.loads(line) for line in lines]
    steps = [r for r in records if "event" not in r and r.get("loss") is not None]
    skipped = sum(r.get("skipped") is True for r in records)
    last = steps[-1]
    end = f"diverged at step {last['step']}" if code == 7 else ""
    return (
        f"{steps[0]['loss']:.3f} | {last['loss']:.3f} | {100 * last['accuracy']:.1f} | "
        f"{skipped} | {end}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--only", nargs="*", help="names that begin so")
    parser.add_argument("--out", type=Path, default=Path("runs/systems"))
    options = parser.parse_args()
    folder = ROOT / options.out
    folder.mkdir(parents=True, exist_ok=True)
    recipe = folder / "systems.toml"
    recipe.write_text(RECIPE)
    print(f"{platform.processor() or platform.machine()}, 1 thread, {options.steps} steps\n")
    print("| system | first loss | last loss | accuracy % | skipped | end |")
    print("|---|---|---|---|---|---|", flush=True)
    for name, settings in systems():
        if options.only and not name.startswith(tuple(options.only)):
            continue
        out = folder / name.replace("/", "_").replace(", ", "_").replace(" ", "_")
        code = train(recipe, out, [*settings, f"train.steps={options.steps}"])
        print(f"| {name} | {summary(out, code)} |", flush=True)


if __name__ == "__main__":
    main()
