"""Tables of the CPU: one per case, with the machine's limits, and one of threads."""

from collections.abc import Sequence

from performer_bench.case import Case
from performer_bench.pass_cells import pass_cells, path_cell
from performer_bench.results import PASSES, CaseResult, Row, ScalingRow
from performer_bench.table import DASH, Table, number

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


def system_cells(row: Row) -> list[str]:
    passes = [row.passes.get(name) for name in PASSES]
    return [
        row.title,
        *pass_cells(passes, "us", ".3f"),
        *pass_cells(passes, "share", ".1%"),
        *pass_cells(passes, "mib", ",.1f"),
        " / ".join(str(p.rounds) for p in passes if p) or DASH,
        number(row.error, ".1e"),
        path_cell(passes),
    ]


def ceiling_cells(result: CaseResult, title: str, gflops: float) -> list[str]:
    return [
        f"{title}, {gflops:,.0f} GFLOP/s",
        *(number(result.floor_us(name, gflops), ".3f") for name in PASSES),
        *[number(gflops / result.product_rate, ".1%")] * 2,
        *[DASH] * 5,
    ]


def heading(case: Case) -> str:
    return (
        f"{case.direction.capitalize()}, {case.length:,} tokens "
        f"({case.batch} x {case.heads} heads, d = {case.dim}, m = {case.features}, "
        f"{case.kernel}, {case.dtype})"
    )


def case_table(result: CaseResult) -> Table:
    rows = [
        *(system_cells(row) for row in result.rows),
        ceiling_cells(result, "SGEMM's rate", result.rates["sgemm"]),
        ceiling_cells(result, "FMA in registers", result.rates["fma"]),
    ]
    return Table(heading(result.case), COLUMNS, rows, words=(0, len(COLUMNS) - 1))


def scaling_table(case: Case, rows: Sequence[ScalingRow]) -> Table:
    """Times faster than one thread, which is the first row."""
    one = rows[0]
    cells = [
        [
            str(row.threads),
            *(f"{one.seconds[name] / row.seconds[name]:.2f} x" for name in one.seconds),
            f"{row.sgemm_gflops / one.sgemm_gflops:.2f} x",
            f"{row.fma_gflops / one.fma_gflops:.2f} x",
        ]
        for row in rows
    ]
    names = [name.replace("_", " + ") for name in one.seconds]
    title = f"Threads, {case.direction}, {case.length:,} tokens: times one thread's speed"
    return Table(title, ["threads", *names, "SGEMM", "FMA"], cells)


def cpu_tables(cases: Sequence[CaseResult], scaling: Sequence[ScalingRow]) -> list[Table]:
    tables = [case_table(result) for result in cases]
    for case in dict.fromkeys(row.case for row in scaling):
        tables.append(scaling_table(case, [row for row in scaling if row.case == case]))
    return tables
