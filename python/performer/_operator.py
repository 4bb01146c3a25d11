"""The way to the registered operator: its arguments by name, those not given absent."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from performer.state import FavorState

_operator = torch.ops.performer.favor_attention
# The list of arguments is the schema's alone (ops/favor/fields.h).
_ABSENT: dict[str, None] = {
    argument.name: None
    for argument in _operator.default._schema.arguments
    if isinstance(argument.type, torch.OptionalType)
}
_STATE = tuple(f"state_{name}" for name in FavorState._fields)


class Result(NamedTuple):
    """What the operator returns; the rows' denominators are for its backward pass."""

    out: Tensor
    row_sum: Tensor
    row_log2_scale: Tensor
    kv: Tensor
    normalizer: Tensor
    log2_scale: Tensor
    near_keys: Tensor
    near_values: Tensor
    near_bias: Tensor
    near_position: Tensor
    fingerprint: Tensor

    def state(self, near: int = 0) -> FavorState:
        state = FavorState(self.kv, self.normalizer, self.log2_scale, self.fingerprint)
        if near == 0:
            return state
        return state._replace(
            near_keys=self.near_keys,
            near_values=self.near_values,
            near_bias=self.near_bias,
            near_position=self.near_position,
        )


def call_favor_attention(
    qkv: tuple[Tensor, Tensor, Tensor],
    state: FavorState | None = None,
    *,
    near: int = 0,
    **options: Any,
) -> Result:
    """`options`: what else the schema names."""
    given = {} if state is None else dict(zip(_STATE, state, strict=True))
    arguments = {**_ABSENT, **options, **given, "near": near}
    return Result(*_operator(*qkv, **arguments, for_backward=torch.is_grad_enabled()))
