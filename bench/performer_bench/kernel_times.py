"""The part of a model's step that its attention takes, by the figures of attention.py."""

import json
from pathlib import Path

from performer_bench.models import Run


def kernel_times(path: Path) -> dict[tuple[object, ...], float]:
    """Of a file that `attention.py --json` printed: µs per token-head, forward and backward, by
    system, features (0: exact), direction, length, heads and width of a head."""
    times: dict[tuple[object, ...], float] = {}
    for result in json.loads(path.read_text(encoding="utf-8"))["cases"]:
        case = result["case"]
        for row in result["rows"]:
            timing = row["passes"].get("forward_backward")
            ours = row["system"] == "performer"
            if timing is None or not (ours or row["system"] in ("exact", "cudnn")):
                continue
            system = ("softmax", case["features"]) if ours else ("exact", 0)
            sizes = (case["causal"], case["length"], case["heads"], case["dim"])
            times[(*system, *sizes)] = timing["us"]
    return times


def kernel_ms(times: dict[tuple[object, ...], float], run: Run) -> float | None:
    """Layers x the attention's own time for the tokens of a step, forward and backward."""
    model = run.model
    system = (run.system, 0 if run.system == "exact" else 256)
    key = (*system, model.causal, run.length, model.heads, model.dim // model.heads)
    if key not in times:
        return None
    return times[key] * model.layers * run.length * run.rows * model.heads / 1e3
