"""The redraw schedule of FavorAttention, apart because tracing must not look inside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from performer.module import FavorAttention


def advance(layer: FavorAttention) -> None:
    """Counts one forward call in train() and redraws before call n * interval, n = 1, 2, ..."""
    assert layer.redraw_interval is not None and layer.projection is not None
    if torch.compiler.is_compiling():
        # An operator without side effects is a constant point of the graph, whatever the count.
        layer.projection, layer.draw, layer.calls = torch.ops.performer.advance_draw(
            layer.projection,
            layer.draw,
            layer.calls,
            layer.redraw_interval,
            layer.kind,
            layer.norm,
            layer.seed,
            layer.layer,
            layer.rounding,
        )
    elif not _recomputing():
        calls = int(layer.calls.item())
        if calls > 0 and calls % layer.redraw_interval == 0:
            layer.redraw()
        layer.calls = torch.full_like(layer.calls, calls + 1)


def _recomputing() -> bool:
    """Inside a backward pass only activation checkpointing calls a module's forward."""
    return bool(torch._C._current_graph_task_id() != -1)


@torch.library.custom_op("performer::advance_draw", mutates_args=())
def _advance_draw(
    projection: Tensor,
    draw: Tensor,
    calls: Tensor,
    interval: int,
    kind: str,
    norm: str,
    seed: int,
    layer: int,
    rounding: str = "bf16",
) -> tuple[Tensor, Tensor, Tensor]:
    """Projection, draw and calls after one more call; new tensors, as a pure operator must give."""
    _check(projection, draw, calls, interval)
    if _recomputing():
        return projection.clone(), draw.clone(), calls.clone()
    count = int(calls.item())
    if count > 0 and count % interval == 0:
        draw = draw + 1
        heads = None if projection.dim() == 2 else projection.shape[0]
        new: Tensor = torch.ops.performer.draw_projection(
            *projection.shape[-2:], heads, kind, norm, seed, layer, int(draw.item()), rounding
        )
        projection = new.to(projection)
    else:
        projection, draw = projection.clone(), draw.clone()
    return projection, draw, calls + 1


def _check(projection: Tensor, draw: Tensor, calls: Tensor, interval: int) -> None:
    if projection.dim() not in (2, 3):
        raise ValueError(
            "advance_draw: projection must be [features, dim] or [heads, features, dim], "
            f"got {list(projection.shape)}"
        )
    for name, counter in (("draw", draw), ("calls", calls)):
        if counter.dtype != torch.int64 or counter.numel() != 1:
            raise ValueError(
                f"advance_draw: {name} must be one int64 number, "
                f"got {counter.dtype} {list(counter.shape)}"
            )
    if interval < 1:
        raise ValueError(f"advance_draw: interval must be positive, got {interval}")


@_advance_draw.register_fake
def _(
    projection: Tensor,
    draw: Tensor,
    calls: Tensor,
    interval: int,
    kind: str,
    norm: str,
    seed: int,
    layer: int,
    rounding: str = "bf16",
) -> tuple[Tensor, Tensor, Tensor]:
    _check(projection, draw, calls, interval)
    return torch.empty_like(projection), torch.empty_like(draw), torch.empty_like(calls)
