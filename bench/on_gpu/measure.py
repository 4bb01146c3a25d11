"""One row of the table: a system, checked on a small case, then timed."""

import torch
from torch import Tensor

import performer
from on_gpu import truth
from on_gpu.systems import System
from on_gpu.table import Row, Table
from on_gpu.timing import milliseconds

TOKENS, HEADS = 65_536, 8


def draw(
    batch: int, heads: int, length: int, dim: int, dtype: torch.dtype, length_first: bool = False
) -> list[Tensor]:
    """q, k, v and a gradient for the output: [B, H, L, D]."""
    sizes = (batch, length, heads, dim) if length_first else (batch, heads, length, dim)
    tensors = [torch.randn(sizes, device="cuda", dtype=dtype) for _ in range(4)]
    return [t.transpose(1, 2) for t in tensors] if length_first else tensors


def times(system: System, tensors: list[Tensor], graph: bool = True) -> tuple[float, float]:
    """Picoseconds per token-head: forward, and forward with backward."""
    *qkv, grad = tensors
    count = grad.shape[0] * grad.shape[1] * grad.shape[2]
    with torch.no_grad():
        alone = milliseconds(lambda: system.forward(*qkv), graph)
    leaves = [t.detach().requires_grad_() for t in qkv]
    both = milliseconds(lambda: torch.autograd.grad(system.forward(*leaves), leaves, grad), graph)
    return alone * 1e9 / count, both * 1e9 / count


def warm(system: System, length: int, dim: int = 64) -> None:
    """Compiles what will be timed at [TOKENS / length, HEADS, length, dim]."""
    tensors = draw(TOKENS // length, HEADS, length, dim, torch.bfloat16, system.length_first)
    with torch.no_grad():
        system.forward(*tensors[:3])
    truth.results(system.forward, tensors)


def why(error: Exception) -> str:
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return "out of memory"
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"failed: {lines[0][:100]}"


class Bench:
    """Measures into one section of a table."""

    def __init__(self, table: Table, section: str) -> None:
        self.table, self.section = table, section
        self._checked: dict[tuple[str, int, int, int, torch.dtype], tuple[float, float]] = {}

    def check(
        self, system: System, tensors: list[Tensor], heads: int, dim: int, dtype: torch.dtype
    ) -> tuple[float, float]:
        """At the timed shape, unless it is long: nothing is compiled for the check alone."""
        key = (system.name, dim, system.features, heads, dtype)
        if key not in self._checked:
            if tensors[0].shape[2] > 4 * truth.CHECKED:
                tensors = draw(1, heads, truth.CHECKED, dim, dtype, system.length_first)
            self._checked[key] = truth.errors(system, tensors)
        return self._checked[key]

    def row(
        self,
        system: System,
        length: int,
        dim: int = 64,
        heads: int = HEADS,
        tokens: int = TOKENS,
        dtype: torch.dtype = torch.bfloat16,
        graph: bool = True,
    ) -> Row:
        """A system that is wrong by more than its dtype is named, and not timed."""
        row = Row(self.section, system.name, length, dim, system.features, heads)
        if not graph:
            row.note = "from the host, no graph"
        try:
            tensors = draw(max(1, tokens // length), heads, length, dim, dtype, system.length_first)
            row.error, row.gradient_error = self.check(system, tensors, heads, dim, dtype)
            if row.error > truth.MOST or row.gradient_error > truth.MOST_GRADIENT:
                row.note = "WRONG: not timed"
            else:
                row.forward, row.both = times(system, tensors, graph)
                row.kernel = performer.last_kernel() if system.ours else ""
        except Exception as error:  # a peer may fail in any way
            row.note = why(error)
            torch.cuda.synchronize()
        return self.table.add(row)

    def absent(self, name: str, length: int, dim: int, features: int, heads: int, note: str) -> Row:
        return self.table.add(Row(self.section, name, length, dim, features, heads, note=note))
