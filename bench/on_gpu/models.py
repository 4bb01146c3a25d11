"""The table of bench/gpu_models.sh: models.py MODELS.jsonl [GPU.json]

`more` is step - identity step: what attention costs a step. `kernels` is layers x the time of
bench/gpu.py for as many tokens, forward and backward.
"""

import json
import sys
from pathlib import Path
from typing import Any

HEADS, DIM, FEATURES = 8, 64, 256
SECTIONS = {"favor": "FAVOR+", "exact": "softmax, cuDNN"}
LAYERS = {"(8, 6, 2048, 512)": 6, "(8, 36, 1024, 512), causal": 36}


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def kernel_times(path: Path) -> dict[tuple[str, str, int], float]:
    """ps per token-head, forward and backward, by direction, system and length."""
    if not path.is_file():
        return {}
    rows = json.loads(path.read_text())["rows"]
    return {
        (row["section"].split(",")[0], row["system"], row["length"]): row["both"]
        for row in rows
        if row["dim"] == DIM and row["features"] in (0, FEATURES) and row["both"]
        if row["heads"] == HEADS and not row["note"]
    }


def main() -> None:
    results = read(Path(sys.argv[1]))
    kernels = kernel_times(Path(sys.argv[2])) if len(sys.argv) > 2 else {}
    identity = {
        (r["model"], r["figures"]["length"]): r["figures"]["step_ms"]
        for r in results
        if r["system"] == "identity" and "figures" in r
    }
    chosen = sorted({r["backend"] for r in results if r.get("backend")})
    print(f"\nexact: torch's scaled_dot_product_attention, by {', '.join(chosen) or '?'}; bf16")
    print(
        f"{'model (heads, layers, ff, d)':42s} {'L':>8s} {'rows':>4s} {'attention':9s} "
        f"{'ms a step':>9s} {'more':>8s} {'kernels':>8s} {'tokens/s':>10s} {'GiB':>6s}"
    )
    for r in sorted(results, key=lambda r: (r["model"], length_of(r), r["system"])):
        if "figures" not in r:
            print(f"{r['model']:42s} {r['length']:8d} {'':4s} {r['system']:9s} {r['note']}")
            continue
        f = r["figures"]
        key = (r["model"], f["length"])
        more = f["step_ms"] - identity[key] if key in identity else None
        direction = "causal" if r["causal"] else "bidirectional"
        ps = kernels.get((direction, SECTIONS.get(r["system"], ""), f["length"]))
        layers = LAYERS.get(r["model"], 0)
        inside = ps * layers * f["length"] * f["rows"] * HEADS * 1e-9 if ps and layers else None
        print(
            f"{r['model']:42s} {f['length']:8d} {f['rows']:4d} {r['system']:9s} "
            f"{f['step_ms']:9.1f} {number(more)} {number(inside)} "
            f"{f['tokens_per_second']:10,.0f} {f['memory_mib'] / 1024:6.1f}"
        )


def length_of(result: dict[str, Any]) -> int:
    return int(result["figures"]["length"] if "figures" in result else result["length"])


def number(value: float | None) -> str:
    return f"{value:8.1f}" if value is not None else f"{'–':>8s}"


if __name__ == "__main__":
    main()
