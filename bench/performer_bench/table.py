"""A table, as text for a terminal and as Markdown."""

import argparse
import json
import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

DASH = "–"


def number(value: float | None, form: str) -> str:
    return DASH if value is None else format(value, form)


def wrapped(prose: str, indent: str = "") -> str:
    """In lines as short as scripts/check_markdown.py asks for."""
    return textwrap.fill(
        prose, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


@dataclass
class Table:
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Collection[int] = (0,)  # columns of words, which begin at the left

    def text(self) -> list[str]:
        lines = [self.columns, *self.rows]
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        aligned = (
            [
                cell.ljust(width) if column in self.words else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ]
            for line in lines
        )
        return [self.title, *("  ".join(cells).rstrip() for cells in aligned)]

    def markdown(self) -> list[str]:
        head, *rows = (f"| {' | '.join(line)} |" for line in (self.columns, *self.rows))
        return [f"## {self.title}", head, f"|{'---|' * len(self.columns)}", *rows]


@dataclass
class Page:
    """What a bench prints, and what it writes to a file."""

    title: str
    made: str  # by which command, and how
    machine: str  # one line
    legend: str
    tables: Sequence[Table]
    notes: Sequence[str]

    def text(self) -> str:
        lines = [self.machine, self.legend]
        for table in self.tables:
            lines += ["", *table.text()]
        return "\n".join([*lines, "", *self.notes]).rstrip()

    def markdown(self) -> str:
        origin = [wrapped(f"{self.made}."), wrapped(f"{self.machine}.")]
        lines = [f"# {self.title}", "", *origin, "", wrapped(self.legend)]
        for table in self.tables:
            lines += ["", *table.markdown()]
        notes = (wrapped(f"- {note}", indent="  ") for note in self.notes)
        return "\n".join([*lines, "", *notes]).rstrip() + "\n"


def publish(page: Page, figures: dict[str, Any], options: argparse.Namespace) -> None:
    """As `options.json` and `options.out` ask for."""
    if options.out is not None:
        options.out.write_text(page.markdown(), encoding="utf-8")
    print(json.dumps(figures) if options.json else page.text())
