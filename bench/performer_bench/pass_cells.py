"""Cells of a table that show the passes of a row."""

from collections.abc import Sequence

from performer_bench.results import Timing
from performer_bench.table import DASH, number


def pass_cells(passes: Sequence[Timing | None], name: str, form: str, unit: float = 1) -> list[str]:
    values = (None if p is None else getattr(p, name) for p in passes)
    return [number(None if value is None else value * unit, form) for value in values]


def path_cell(passes: Sequence[Timing | None]) -> str:
    return ", ".join(dict.fromkeys(p.kernel for p in passes if p and p.kernel)) or DASH
