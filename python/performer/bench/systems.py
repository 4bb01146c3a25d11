"""What is measured: one entry per system, ours first."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import performer
from performer.bench import peers, plain
from performer.bench.case import Attention, Case

CPU_KERNELS = "PERFORMER_CPU_KERNELS"  # read by the operator at every call


@dataclass(frozen=True)
class System:
    name: str
    title: str
    prepare: Callable[[Case, Tensor], Attention]
    growth: int = 1  # time grows with this power of the length
    compiled: bool = False  # the first call at every length compiles


@contextmanager
def composed_kernels() -> Iterator[None]:
    """Fused kernels off: the operator composes its result of ATen operations."""
    before = os.environ.get(CPU_KERNELS)
    os.environ[CPU_KERNELS] = "off"
    try:
        yield
    finally:
        if before is None:
            del os.environ[CPU_KERNELS]
        else:
            os.environ[CPU_KERNELS] = before


def _favor(case: Case, W: Tensor) -> Attention:
    call = partial(
        performer.favor_attention,
        W=W,
        feature_map=case.kernel,
        causal=case.causal,
        scale=case.dim**-0.5,
        eps=None if case.kernel == "positive" else plain.EPS,
    )
    return Attention(call, W, path=performer.last_kernel)


def _composed(case: Case, W: Tensor) -> Attention:
    return replace(_favor(case, W), context=composed_kernels)


def _compiled(case: Case, W: Tensor) -> Attention:
    torch._dynamo.reset()  # every length is compiled for itself
    function = plain.causal if case.causal else plain.bidirectional
    compiled = torch.compile(
        partial(function, W=W, kernel=case.kernel), fullgraph=True, dynamic=False
    )
    if not case.causal:
        return Attention(compiled, W)
    return Attention(lambda *qkv: compiled(*map(plain.chunked, qkv)).flatten(2, 3), W)


def _exact(case: Case, W: Tensor) -> Attention:
    return Attention(partial(scaled_dot_product_attention, is_causal=case.causal), None)


SYSTEMS = (
    System("performer", "performer", _favor),
    System("composed", "performer, composed", _composed),
    System("compile", "plain PyTorch, torch.compile", _compiled, compiled=True),
    System("exact", "exact attention (SDPA)", _exact, growth=2),
    System("performer-pytorch", "performer-pytorch", peers.performer_pytorch),
    System("fast-transformers", "pytorch-fast-transformers", peers.fast_transformers),
)
