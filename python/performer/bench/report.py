"""Results as JSON, as text for a terminal and as a page of Markdown."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from performer.bench.case import Case
from performer.bench.results import PASSES, CaseResult, Row, ScalingRow, Timing

DASH = "–"
COLUMNS = (
    "system",
    "forward µs",
    "+ backward µs",
    "forward of SGEMM",
    "+ backward of SGEMM",
    "forward MiB",
    "+ backward MiB",
    "calls",
    "error",
    "path",
)
LEGEND = (
    "µs per token-head (one token of one head), the best of the calls: few of "
    "them are a weak best. Share of SGEMM's rate on "
    "8·m·d FLOP forward, 24·m·d forward and backward. MiB of peak memory beyond the inputs. RMS "
    "error of the output against float64, relative to the RMS of v: of exact attention against "
    "exact softmax, of all others against the exact ratio of their own features."
)


@dataclass
class Report:
    command: str
    machine: dict[str, str | int | None]
    rounds: int
    cases: list[CaseResult]
    scaling: list[ScalingRow]
    notes: list[str]


def to_json(report: Report) -> dict[str, Any]:
    """JSON has no NaN: an error that is none becomes null."""
    fields = asdict(report)
    for row in (row for case in fields["cases"] for row in case["rows"]):
        if row["error"] is not None and not math.isfinite(row["error"]):
            row["error"] = None
    return fields


def number(value: float | None, form: str) -> str:
    return DASH if value is None else format(value, form)


def pass_cells(passes: Sequence[Timing | None], field: str, form: str) -> list[str]:
    return [number(None if p is None else getattr(p, field), form) for p in passes]


def system_cells(row: Row) -> list[str]:
    passes = [row.passes.get(name) for name in PASSES]
    paths = dict.fromkeys(p.kernel for p in passes if p and p.kernel)
    return [
        row.title,
        *pass_cells(passes, "us", ".3f"),
        *pass_cells(passes, "sgemm_share", ".1%"),
        *pass_cells(passes, "mib", ",.1f"),
        " / ".join(str(p.rounds) for p in passes if p) or DASH,
        number(row.error, ".1e"),
        ", ".join(paths) or DASH,
    ]


def ceiling_cells(result: CaseResult, title: str, gflops: float) -> list[str]:
    return [
        f"{title}, {gflops:,.0f} GFLOP/s",
        *(number(result.floor_us(name, gflops), ".3f") for name in PASSES),
        *[number(gflops / result.sgemm_gflops, ".1%")] * 2,
        *[DASH] * 5,
    ]


def case_table(result: CaseResult) -> list[list[str]]:
    return [
        list(COLUMNS),
        *(system_cells(row) for row in result.rows),
        ceiling_cells(result, "SGEMM's rate", result.sgemm_gflops),
        ceiling_cells(result, "FMA in registers", result.fma_gflops),
    ]


def scaling_table(rows: Sequence[ScalingRow]) -> list[list[str]]:
    """Times faster than one thread, which is the first row."""
    one = rows[0]
    head = ["threads", *(name.replace("_", " + ") for name in one.seconds), "SGEMM", "FMA"]
    return [
        head,
        *(
            [
                str(row.threads),
                *(f"{one.seconds[name] / row.seconds[name]:.2f} x" for name in one.seconds),
                f"{row.sgemm_gflops / one.sgemm_gflops:.2f} x",
                f"{row.fma_gflops / one.fma_gflops:.2f} x",
            ]
            for row in rows
        ),
    ]


def heading(case: Case) -> str:
    return (
        f"{case.direction.capitalize()}, {case.length:,} tokens "
        f"({case.batch} x {case.heads} heads, d = {case.dim}, m = {case.features}, "
        f"{case.kernel}, {case.dtype})"
    )


def sections(report: Report) -> list[tuple[str, list[list[str]]]]:
    tables = [(heading(result.case), case_table(result)) for result in report.cases]
    for case in dict.fromkeys(row.case for row in report.scaling):
        rows = [row for row in report.scaling if row.case == case]
        title = f"Threads, {case.direction}, {case.length:,} tokens: times one thread's speed"
        tables.append((title, scaling_table(rows)))
    return tables


def machine_line(machine: dict[str, str | int | None]) -> str:
    policy = machine["omp_wait_policy"]
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['isa']}, {machine['threads']} "
        f"threads{f' (OMP_WAIT_POLICY={policy})' if policy else ''}; torch {machine['torch']}, "
        f"performer {machine['performer']}, commit {machine['commit'] or 'unknown'}"
    )


def align(table: list[list[str]]) -> list[str]:
    widths = [max(len(row[c]) for row in table) for c in range(len(table[0]))]
    return [
        "  ".join(
            cell.ljust(width) if c in (0, len(COLUMNS) - 1) else cell.rjust(width)
            for c, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]


def to_text(report: Report) -> str:
    lines = [machine_line(report.machine), LEGEND]
    for title, table in sections(report):
        lines += ["", title, *align(table)]
    return "\n".join([*lines, "", *report.notes]).rstrip()


def to_markdown(report: Report) -> str:
    lines = [
        "# Speed of attention",
        "",
        f"Written by `{report.command}`, up to {report.rounds + 1} calls each, interleaved.",
        f"{machine_line(report.machine)}.",
        "",
        LEGEND,
    ]
    for title, table in sections(report):
        rows = [f"| {' | '.join(row)} |" for row in table]
        lines += ["", f"## {title}", rows[0], f"|{'---|' * len(table[0])}", *rows[1:]]
    return "\n".join([*lines, "", *(f"- {note}" for note in report.notes)]).rstrip() + "\n"
