"""Rows of figures: printed as they come, and once more together."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass
class Row:
    """Times in picoseconds per token-head; errors against float64 on a small case, relative."""

    section: str
    system: str
    length: int
    dim: int
    features: int
    heads: int
    forward: float | None = None
    both: float | None = None  # forward and backward
    error: float | None = None  # of the output
    gradient_error: float | None = None  # largest of dq, dk, dv
    kernel: str = ""  # that performer.last_kernel names
    note: str = ""  # why there is no figure, or what it is not


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


HEADER = (
    f"{'system':36s} {'L':>8s} {'d':>4s} {'m':>4s} {'H':>2s} {'forward':>9s} {'+backward':>9s} "
    f"{'error':>8s} {'of grads':>8s}"
)


def line(row: Row) -> str:
    remarks = "  ".join(text for text in (row.kernel, row.note) if text)
    return (
        f"{row.system:36s} {row.length:8d} {row.dim:4d} {row.features:4d} {row.heads:2d} "
        f"{_number(row.forward, '9,.0f'):>9s} {_number(row.both, '9,.0f'):>9s} "
        f"{_number(row.error, '8.1e'):>8s} {_number(row.gradient_error, '8.1e'):>8s}  {remarks}"
    ).rstrip()


class Table:
    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.facts: list[str] = []  # lines above the table
        self.figures: dict[str, object] = {}  # by name, for the file

    def add(self, row: Row) -> Row:
        self.rows.append(row)
        print(line(row), flush=True)
        return row

    def fact(self, text: str, **figures: object) -> None:
        self.facts.append(text)
        self.figures.update(figures)
        print(text, flush=True)

    def lines(self) -> Iterable[str]:
        yield from self.facts
        yield "Picoseconds per token-head (time / (tokens x heads)), medians of graph replays;"
        yield "errors: relative, against float64, of a small case of the same d and m."
        yield HEADER
        section = ""
        for row in self.rows:
            if row.section != section:
                section = row.section
                yield f"-- {section}"
            yield line(row)

    def write(self, path: Path) -> None:
        rows = [asdict(row) for row in self.rows]
        path.write_text(json.dumps({**self.figures, "facts": self.facts, "rows": rows}, indent=1))
