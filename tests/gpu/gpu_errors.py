"""How far two tensors are apart."""

import math

import torch


def rms(t):
    return float(t.double().square().mean().sqrt()) if t.numel() else 0.0


def rms_error(got, want):
    return rms(got.double() - want.double())


def mean_error(got, want):
    """Over all draws: results `got`, one of each."""
    return math.sqrt(sum(rms_error(t, want) ** 2 for t in got) / len(got))


def unit(dtype):
    return torch.finfo(dtype).eps
