#!/usr/bin/env python3
"""Trains three small models on real proteins and shows what they learned.

Everything is done by the commands of build/performer, which are printed as they run.
"""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = "build/performer"
RUNS = Path("runs/demo")
SYSTEMS = {
    "exact": "exact Transformer",
    "relu": "Performer-ReLU",
    "softmax": "Performer-softmax",
}
BASELINES = {"uniform": "uniform", "empirical": "residue frequencies"}
SPLITS = {"test": "held-out", "ood": "other families"}


def show(arguments: list[str]) -> None:
    print(f"\n$ {shlex.join([PROGRAM, *arguments])}", flush=True)


def performer(*arguments: str) -> None:
    """Runs a command in view; a failure ends the demo with its exit code."""
    show(list(arguments))
    result = subprocess.run([PROGRAM, *arguments], cwd=ROOT, check=False)
    if result.returncode != 0:
        sys.exit(result.returncode)


def ask(*arguments: str) -> dict[str, Any]:
    """The JSON that a command answers."""
    show([*arguments, "--json"])
    result = subprocess.run(
        [PROGRAM, *arguments, "--json"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    if result.returncode != 0:
        sys.exit(result.returncode)
    return json.loads(result.stdout)


def train(name: str) -> None:
    out = RUNS / name
    if (ROOT / out / "latest").exists():
        print(f"\n{SYSTEMS[name]}: trained before, {out} is used (remove it to train anew)")
        return
    performer("train", f"configs/demo/{name}.toml", "--out", str(out), "--restart")


def speed(name: str) -> float:
    """Tokens a second of training: the median of the metric lines."""
    lines = (ROOT / RUNS / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    values = sorted(r["tokens_per_second"] for r in records if "tokens_per_second" in r)
    return values[len(values) // 2]


def table() -> None:
    rows: list[tuple[str, dict[str, Any], str]] = []
    for name, label in SYSTEMS.items():
        splits = [flag for split in SPLITS for flag in ("--split", split)]
        flags = [] if rows else ["--baselines"]  # of the data alone: once is enough
        result = ask("eval", str(RUNS / name), *splits, *flags)["splits"]
        for baseline, title in BASELINES.items() if flags else ():
            rows.append((title, {s: result[s]["baselines"][baseline] for s in SPLITS}, ""))
        rows.append((label, result, f"{speed(name):,.0f}"))
    print()
    heads = "".join(f"{title:>26}" for title in SPLITS.values())
    print(f"{'':<22}{heads}{'training':>14}")
    print(f"{'':<22}" + f"{'accuracy':>14}{'perplexity':>12}" * 2 + f"{'tokens/s':>14}")
    for label, result, tokens in rows:
        cells = "".join(
            f"{100 * result[s]['accuracy']:>12.2f} %{result[s]['perplexity']:>12.2f}"
            for s in SPLITS
        )
        print(f"{label:<22}{cells}{tokens:>14}")


def main() -> int:
    print(
        "Three small protein models, trained on real sequences: about three minutes on two cores."
    )
    for name in SYSTEMS:
        train(name)
    table()
    performer("generate", str(RUNS / "softmax"), "--n", "3", "--length", "120", "--seed", "1")
    print(f"\nLoss curves: {RUNS}/*/loss.svg.  Checkpoints: {RUNS}/*/checkpoints.")
    print("Next: performer train configs/protein/softmax.toml; README.md has the rest.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
