"""Tensors without a case, and what the tests of them compare by."""

import pytest
import torch
from gpu_kernels import DTYPES
from op_cases import NAMES

BOTH = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
TYPES = pytest.mark.parametrize("dtype", DTYPES, ids=NAMES.get)


def draw(length=300, dtype=torch.float32, heads=4, dim=64, features=128):
    """q, k, v as leaves and W, on the GPU."""
    shape = (2, heads, length, dim)
    tokens = (torch.randn(shape, device="cuda").to(dtype).requires_grad_() for _ in range(3))
    return *tokens, torch.randn(heads, features, dim, device="cuda")


def gradients(out, leaves, grad=None):
    return torch.autograd.grad(out, leaves, torch.ones_like(out) if grad is None else grad)


def same_bits(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def close(actual, expected):
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}[expected.dtype]
    actual, expected = actual.detach().double(), expected.detach().double()
    assert float((actual - expected).norm()) <= tolerance * float(expected.norm())
