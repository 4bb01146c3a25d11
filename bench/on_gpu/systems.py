"""What is measured: functions of q, k, v [B, H, L, D], ours and others'."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import performer
from on_gpu.composed import causal as composed_causal
from performer.bench import plain

COMPOSED = "plain PyTorch, torch.compile"
Forward = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass
class System:
    name: str
    forward: Forward
    causal: bool
    W: Tensor | None = None  # [M, D] or [H, M, D]; None: exact softmax
    length_first: bool = False  # takes q, k, v that are contiguous as [B, L, H, D]
    ours: bool = False

    @property
    def features(self) -> int:
        return 0 if self.W is None else self.W.shape[-2]


def favor(dim: int, features: int, heads: int, causal: bool, name: str = "FAVOR+") -> System:
    W = performer.draw_projection(features, dim, heads=heads).cuda()

    def forward(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return performer.favor_attention(q, k, v, W, causal=causal)

    return System(name, forward, causal, W, ours=True)


def softmax(backend: SDPBackend, causal: bool) -> System:
    def forward(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    names = {SDPBackend.CUDNN_ATTENTION: "cuDNN", SDPBackend.FLASH_ATTENTION: "flash"}
    return System(f"softmax, {names[backend]}", forward, causal)


def composed(dim: int, features: int, causal: bool) -> System:
    """The formula in plain PyTorch under torch.compile, compiled for each length."""
    W = performer.draw_projection(features, dim).cuda()
    if not causal:
        whole = torch.compile(
            lambda q, k, v: plain.bidirectional(q, k, v, W, "positive"),
            fullgraph=True,
            dynamic=False,
        )
        return System(COMPOSED, whole, causal, W)
    chunks = torch.compile(
        lambda q, k, v: composed_causal(q, k, v, W), fullgraph=True, dynamic=False
    )

    def forward(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return chunks(*map(plain.chunked, (q, k, v))).flatten(2, 3)

    return System(COMPOSED, forward, causal, W)


def has_fla() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("fla", "einops"))
