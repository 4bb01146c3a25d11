"""Modules whose projection stays float32 in models of lower precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor, nn

if TYPE_CHECKING:
    from typing_extensions import Self


class KeepsProjection(nn.Module):
    """.half() and .bfloat16() leave the buffer `projection` as it is."""

    projection: Tensor | None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = self.projection
        apply: Callable[..., nn.Module] = super()._apply
        apply(fn, recurse)
        after = self.projection
        if before is not None and after is not None and after.dtype.itemsize < 4:
            self.projection = before.to(after.device)
        return self
