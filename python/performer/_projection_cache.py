"""Projections of calls that keep none themselves: drawn once, kept while they are in use."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from performer.projection import draw_projection

CAPACITY = 64  # projections; the one that was not asked for the longest time goes first


_lock = threading.Lock()
_drawn: OrderedDict[tuple[int | str, ...], Tensor] = (
    OrderedDict()
)  # by cached_projection's arguments


def _renew_lock() -> None:
    """The thread that held the lock at a fork does not exist in the child."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


@torch.compiler.assume_constant_result  # compiled code holds the projection as a constant
def cached_projection(
    num_features: int,
    dim: int,
    heads: int,
    kind: str,
    norm: str,
    seed: int,
    layer: int,
    device: str,
    rounding: str = "bf16",
) -> Tensor:
    """W [heads, M, D] float32 on `device`. Nothing may write to it."""
    key = (num_features, dim, heads, kind, norm, rounding, seed, layer, device)
    if device.startswith("cuda") and torch.cuda.is_current_stream_capturing():
        # A graph reads the address again long after the cache may have let the tensor go.
        raise RuntimeError(
            "scaled_dot_product_attention: a CUDA graph outlives this call's projection; "
            "capture performer.FavorSDPA, which keeps its own"
        )
    with _lock:
        if key in _drawn:
            _drawn.move_to_end(key)
            W = _drawn[key]
            if W.is_cuda:  # the memory must not serve others before this stream is done with it
                W.record_stream(torch.cuda.current_stream(W.device))
            return _as_traced(W)
        # Under inference_mode, a tracer's fake tensors or torch.func the first call must leave a
        # real tensor.
        with (
            torch.inference_mode(False),
            torch.no_grad(),
            _disable_current_modes(),
            torch._C._DisableFuncTorch(),
        ):
            W = draw_projection(num_features, dim, heads, kind, norm, seed, layer, 0, rounding)
            W = W.to(device)
        _drawn[key] = W
        if len(_drawn) > CAPACITY:
            _drawn.popitem(last=False)
        return _as_traced(W)


def _as_traced(W: Tensor) -> Tensor:
    """FakeTensorMode takes no real tensor but one that enters as torch.tensor's do, and make_fx
    then holds it as a constant. Modes that take any, as torch.export's, look after it themselves.
    """
    mode = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
    if mode is None or mode.allow_non_fake_inputs:
        return W
    traced: Tensor = torch.ops.aten.lift_fresh(W)
    return traced
