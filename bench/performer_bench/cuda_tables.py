"""Tables of a GPU: one per direction, of all its cases."""

from collections.abc import Sequence

from performer_bench.case import Case
from performer_bench.pass_cells import pass_cells, path_cell
from performer_bench.results import PASSES, CaseResult, Row
from performer_bench.table import DASH, Table, number

COLUMNS = (
    "system",
    "L",
    "rows",
    "heads",
    "d",
    "m",
    "dtype",
    "forward ps",
    "+ backward ps",
    "eager ps",
    "+ backward ps",
    "forward of GEMM",
    "+ backward of GEMM",
    "error",
    "of gradients",
    "path",
)
LEGEND = (
    "Picoseconds per token-head (one token of one head), medians of CUDA graph replays; eager: of "
    "calls from the host. Share of the rate of a bf16 matrix product on 8·m·d FLOP forward, 24·m·d "
    "forward and backward. Errors against float64, relative to its norm, of a case of at most "
    "4,096 tokens and the same widths: of softmax against exact softmax, of all others against the "
    "exact ratio of their own features; of gradients: the largest of dq, dk and dv."
)


def cuda_cells(case: Case, row: Row) -> list[str]:
    passes = [row.passes.get(name) for name in PASSES]
    sizes = (case.length, case.batch, case.heads, case.dim)
    exact = row.system in ("cudnn", "flash")
    return [
        row.title,
        *map(str, sizes),
        DASH if exact else str(case.features),
        case.dtype,
        *pass_cells(passes, "us", ",.0f", 1e6),
        *pass_cells(passes, "eager_us", ",.0f", 1e6),
        *pass_cells(passes, "share", ".1%"),
        number(row.error, ".1e"),
        number(row.gradient_error, ".1e"),
        path_cell(passes),
    ]


def floor_cells(case: Case, result: CaseResult) -> list[str]:
    floors = (number(1e6 * result.floor_us(name, result.product_rate), ",.0f") for name in PASSES)
    title = f"the product's rate, {result.product_rate / 1e3:,.0f} TFLOP/s"
    sizes = ["", "", "", str(case.dim), str(case.features), "bf16"]
    return [title, *sizes, *floors, DASH, DASH, "100.0%", "100.0%", DASH, DASH, DASH]


def cuda_tables(cases: Sequence[CaseResult]) -> list[Table]:
    """A table per direction; its last row is the limit of the first case."""
    tables = []
    for direction in dict.fromkeys(result.case.direction for result in cases):
        results = [result for result in cases if result.case.direction == direction]
        rows = [cuda_cells(result.case, row) for result in results for row in result.rows]
        rows.append(floor_cells(results[0].case, results[0]))
        words = (0, len(COLUMNS) - 1)
        tables.append(Table(direction.capitalize(), COLUMNS, rows, words))
    return tables
