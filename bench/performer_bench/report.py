"""Results of `performer bench attention` as JSON, and as a page of tables."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from performer_bench import cpu_tables, cuda_tables, host
from performer_bench.packed import PackedRow, packed_table
from performer_bench.results import CaseResult, Row, ScalingRow
from performer_bench.table import Page

SHARE = {"cpu": "sgemm_share", "cuda": "gemm_share"}  # its name in JSON


@dataclass
class Report:
    device: str
    command: str
    method: str
    machine: dict[str, Any]
    rounds: int
    cases: list[CaseResult]
    scaling: list[ScalingRow]
    notes: list[str]
    packed: list[PackedRow] = field(default_factory=list)


def to_json(report: Report) -> dict[str, Any]:
    """JSON has no NaN: an error that is none becomes null."""
    cases = [
        {
            "case": asdict(result.case),
            **{f"{name}_gflops": rate for name, rate in result.rates.items()},
            "rows": [row_json(report.device, row) for row in result.rows],
        }
        for result in report.cases
    ]
    fields: dict[str, Any] = {"command": report.command, "machine": report.machine}
    if report.device == "cpu":
        scaling = [asdict(row) for row in report.scaling]
        fields |= {"rounds": report.rounds, "cases": cases, "scaling": scaling}
    else:
        fields |= {"cases": cases, "packed": [asdict(row) for row in report.packed]}
    return {**fields, "notes": report.notes}


def row_json(device: str, row: Row) -> dict[str, Any]:
    fields = asdict(row)
    if device == "cpu":
        del fields["gradient_error"]
    for name in fields.keys() & {"error", "gradient_error"}:
        if fields[name] is not None and not math.isfinite(fields[name]):
            fields[name] = None
    for timing in fields["passes"].values():
        timing[SHARE[device]] = timing.pop("share")
        if device == "cpu":
            del timing["eager_us"]
    return fields


def to_page(report: Report) -> Page:
    if report.device == "cpu":
        tables = cpu_tables.cpu_tables(report.cases, report.scaling)
    else:
        tables = cuda_tables.cuda_tables(report.cases)
        tables += [packed_table(report.packed)] if report.packed else []
    return Page(
        "Speed of attention",
        f"Written by `{report.command}`, {report.method.format(calls=report.rounds + 1)}",
        host.line(report.machine),
        (cpu_tables if report.device == "cpu" else cuda_tables).LEGEND,
        tables,
        report.notes,
    )
