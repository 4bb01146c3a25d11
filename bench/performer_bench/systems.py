"""What is measured: one entry per system, ours first."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import performer
from performer_bench import fla, packages, plain
from performer_bench.case import Attention, Case

CPU_KERNELS = "PERFORMER_CPU_KERNELS"  # read by the operator at every call
CUDA_KERNELS = "PERFORMER_CUDA_KERNELS"


@dataclass(frozen=True)
class System:
    name: str
    title: str
    prepare: Callable[[Case, Tensor], Attention]
    growth: int = 1  # time grows with this power of the length
    compiled: bool = False  # the first call at every length compiles
    devices: tuple[str, ...] = ("cpu", "cuda")
    bidirectional: bool = True  # whether it can be, beside causal
    ours: bool = False


@contextmanager
def kernels(variable: str, choice: str) -> Iterator[None]:
    """Calls inside take the kernels of that name; "off": the operator composes its result of ATen
    operations."""
    before = os.environ.get(variable)
    os.environ[variable] = choice
    try:
        yield
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before


def kernels_of(device: str) -> str:
    return CPU_KERNELS if device == "cpu" else CUDA_KERNELS


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
    off = partial(kernels, kernels_of(W.device.type), "off")
    return replace(_favor(case, W), context=off)


def shared(W: Tensor) -> Tensor:
    """One projection for all heads: [M, D]."""
    return W if W.dim() == 2 else W[0]


def _compiled(case: Case, W: Tensor) -> Attention:
    W = shared(W)
    if W.device.type == "cpu":
        torch._dynamo.reset()  # every length is compiled for itself; a GPU's are kept, see ahead.py
    function = plain.causal if case.causal else plain.bidirectional
    compiled = torch.compile(
        partial(function, W=W, kernel=case.kernel), fullgraph=True, dynamic=False
    )
    if not case.causal:
        return Attention(compiled, W)
    return Attention(lambda *qkv: compiled(*map(plain.chunked, qkv)).flatten(2, 3), W)


def _exact(case: Case, W: Tensor) -> Attention:
    return Attention(partial(scaled_dot_product_attention, is_causal=case.causal), None)


def _softmax(backend: SDPBackend, case: Case, W: Tensor) -> Attention:
    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(q, k, v, is_causal=case.causal)

    return Attention(call, None)


CPU, CUDA = ("cpu",), ("cuda",)
CUDNN, FLASH = SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION
SYSTEMS = (
    System("performer", "performer", _favor, ours=True),
    System("composed", "performer, composed", _composed),
    System("compile", "plain PyTorch, torch.compile", _compiled, compiled=True),
    System("exact", "exact attention (SDPA)", _exact, growth=2, devices=CPU),
    System("cudnn", "softmax, cuDNN", partial(_softmax, CUDNN), growth=2, devices=CUDA),
    System("flash", "softmax, flash", partial(_softmax, FLASH), growth=2, devices=CUDA),
    System("performer-pytorch", "performer-pytorch", packages.performer_pytorch, devices=CPU),
    System(
        "fast-transformers", "pytorch-fast-transformers", packages.fast_transformers, devices=CPU
    ),
    *(
        System(
            f"fla-{name}",
            f"torch.compile + FLA {name}",
            partial(fla.prepare_case, kind),
            compiled=True,
            devices=CUDA,
            bidirectional=False,
        )
        for name, kind in fla.KINDS.items()
    ),
)


def systems_of(device: str) -> list[System]:
    return [system for system in SYSTEMS if device in system.devices]
