"""Which kernels serve a case on a GPU, and what those round."""

from __future__ import annotations

import os

import torch
from op_cases import EXPONENTIAL_MAPS, NAMES

DEVICE = os.environ.get("PERFORMER_TEST_DEVICE", "cuda")  # cpu: the logic of a test, no kernel
HOPPER = DEVICE == "cuda" and torch.cuda.get_device_capability() == (9, 0)
MAPS = (*EXPONENTIAL_MAPS, "relu")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def composed_backward(case):
    """Query heads of one key head have key parameters of their own."""
    return case.features > 0 and case.head_parameters == case.heads != case.key_heads


def matrix_units(case):
    """Where the Hopper path may serve; whether it does is its own choice."""
    return (
        case.dtype != torch.float32
        and case.feature_map in EXPONENTIAL_MAPS
        and case.dim == case.values
        and case.dim in (32, 64, 128)
        and (case.causal or not case.packed)
    )


def headline(case):
    """Where the Hopper path must serve."""
    return matrix_units(case) and 0 < case.map_features <= 256 and case.dim < 128


def headline_backward(case):
    """Where the causal backward pass of the Hopper path must serve: not for grouped heads, and
    W of both sides, in three parts for float16, must fit in shared memory."""
    wide = case.map_features > 128
    parts = case.dtype == torch.float16 and case.key_projection and wide and case.dim > 32
    return headline(case) and case.heads == case.key_heads and not parts


def kernel_name(case, path):
    kind = "causal" if case.causal else "bidirectional"
    return f"cuda/{path}/{NAMES[case.dtype]}/{case.feature_map}/{kind}"


def feature_dtype(case, kernel):
    """What `kernel` may round features to. Those of the Hopper kernels are bfloat16 for any
    tokens: exponentials leave the range of float16."""
    hopper = kernel.startswith("cuda/hopper/")
    return torch.bfloat16 if hopper and case.dtype == torch.float16 else case.dtype
