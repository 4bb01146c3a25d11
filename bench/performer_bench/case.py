"""A problem, and a system made ready for it."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

import performer
from performer_bench.timing import Context

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Case:
    """A problem: q, k, v of [batch, heads, length, dim] and a projection [features, dim]."""

    batch: int
    heads: int
    length: int
    dim: int
    features: int
    causal: bool
    kernel: str
    dtype: str

    @property
    def token_heads(self) -> int:
        return self.batch * self.heads * self.length

    @property
    def direction(self) -> str:
        return "causal" if self.causal else "bidirectional"


Call = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass
class Attention:
    """A system made ready for one case."""

    call: Call  # of q, k, v in the system's own layout
    W: Tensor | None  # the projection it stands for, [M, D] or [H, M, D]; None: exact softmax
    length_first: bool = False  # takes [B, L, H, D], which is then contiguous
    path: Callable[[], str] | None = None  # which implementation the last call ran
    context: Context = nullcontext  # around forward and backward

    def layout(self, x: Tensor) -> Tensor:
        """[B, H, L, D] <-> what the system takes without a copy."""
        return x.transpose(1, 2) if self.length_first else x


class UnavailableError(Exception):
    """The system cannot take part; the text says why, and how to get it."""


@dataclass
class Inputs:
    """q, k, v and the gradient of the output: [B, H, L, D]; W float32."""

    q: Tensor
    k: Tensor
    v: Tensor
    grad: Tensor
    W: Tensor  # [M, D] on the CPU; [H, M, D] on a GPU, of which peers share the first


def draw_inputs(case: Case, device: str = "cpu") -> Inputs:
    generator = torch.Generator(device).manual_seed(case.length)
    shape = (case.batch, case.heads, case.length, case.dim)
    q, k, v, grad = (
        torch.randn(shape, generator=generator, device=device).to(DTYPES[case.dtype])
        for _ in range(4)
    )
    heads = None if device == "cpu" else case.heads
    W = performer.draw_projection(case.features, case.dim, heads=heads).to(device)
    return Inputs(q, k, v, grad, W)


def make_call(attention: Attention, inputs: Inputs, backward: bool) -> Callable[[], Tensor]:
    """A pass that returns the output in the system's layout, to which inputs are copied once."""
    if not backward:
        q, k, v = (attention.layout(x).contiguous() for x in (inputs.q, inputs.k, inputs.v))
        return torch.no_grad()(lambda: attention.call(q, k, v))

    both = make_gradient_call(attention, inputs)
    return lambda: both()[0]


def make_gradient_call(attention: Attention, inputs: Inputs) -> Callable[[], tuple[Tensor, ...]]:
    """Forward and backward: the output and the gradients of q, k, v in the system's layout."""
    q, k, v, grad = (
        attention.layout(x).contiguous() for x in (inputs.q, inputs.k, inputs.v, inputs.grad)
    )
    leaves = tuple(x.detach().requires_grad_() for x in (q, k, v))

    def forward_backward() -> tuple[Tensor, ...]:
        out = attention.call(*leaves)
        gradients = torch.autograd.grad(out, leaves, grad)
        return out.detach(), *gradients

    return forward_backward
