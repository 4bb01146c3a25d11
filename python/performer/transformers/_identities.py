"""Identities that leave exp(x.y) as it is and lower the variance of its random features, folded
into the parameters of fitted ones. Nothing is trained here."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from performer.analysis import fit_oprf, oprf
from performer.projection import draw_projection
from performer.transformers._fitted import FeatureParameters

_FLOOR = 1e-3  # of the mean variance, which a direction without any is taken to have


class Samples(NamedTuple):
    """Queries and keys of one layer as the features see them, sqrt(scale) included."""

    x: Tensor  # [H, N, D]
    y: Tensor  # [Hkv, N, D]

    def grouped(self) -> Tensor:
        """The queries of each key head: [Hkv, N H / Hkv, D]."""
        return self.x.reshape(self.y.shape[0], -1, self.x.shape[-1])


class Identities(NamedTuple):
    """exp(x.y) = exp(A (x - a) . A^-1 (y - b)) exp(a.y) exp(x.b) exp(-a.b), for each key head."""

    a: Tensor  # [Hkv, D]
    b: Tensor  # [Hkv, D]
    A: Tensor  # [Hkv, D, D], symmetric


def centre_and_balance(samples: Samples) -> Identities:
    """a and b are the means. A = P^1/2 with P = Mx^-1/2 (Mx^1/2 My Mx^1/2)^1/2 Mx^-1/2, for which
    A x and A^-1 y have one and the same covariance, and the least |A x|^2 + |A^-1 y|^2."""
    x, y = samples.grouped().double(), samples.y.double()
    a, b = x.mean(1), y.mean(1)
    Mx, My = _covariance(x - a[:, None]), _covariance(y - b[:, None])
    root = _power(Mx, 0.5)
    inverse = _power(Mx, -0.5)
    P = inverse @ _power(root @ My @ root, 0.5) @ inverse
    return Identities(a, b, _power(P, 0.5))


def no_identities(samples: Samples) -> Identities:
    """Of plain random features."""
    zeros = samples.y.new_zeros(samples.y.shape[0], samples.y.shape[2], dtype=torch.float64)
    return Identities(zeros, zeros, torch.eye(zeros.shape[1]).double().expand(len(zeros), -1, -1))


def best_scaling(samples: Samples, identities: Identities) -> Tensor:
    """OPRF's a for each key head, of what the identities make of the samples."""
    x = (samples.grouped().double() - identities.a[:, None]) @ identities.A
    y = (samples.y.double() - identities.b[:, None]) @ torch.linalg.inv(identities.A)
    return fit_oprf(x[None], y[None], scale=1.0)


def fold(
    identities: Identities, scaling: Tensor, features: int, seed: int, layer: int
) -> FeatureParameters:
    """Parameters, float32, of features that estimate exp(x.y) itself, for the key heads.

    A product with A (x - a), its square and the factors that the identities leave are all linear
    or quadratic in x, so they go into weights, biases and forms.
    """
    a, b, A = identities
    heads, dim = a.shape
    W = draw_projection(features, dim, heads, seed=seed, layer=layer, rounding="none").double()
    W, bias = oprf(W, scaling, "none")
    inverse = torch.linalg.inv(A)
    query_bias = bias - (a * b).sum(-1, keepdim=True)
    query_weight, query_bias = _shifted(W, query_bias, A, a, b)
    key_weight, key_bias = _shifted(W, bias, inverse, b, a)
    folded = (query_weight, query_bias, key_weight, key_bias, inverse, A)
    return FeatureParameters(*(value.float() for value in folded))


def for_heads(parameters: FeatureParameters, heads: int, near: int) -> FeatureParameters:
    """The query's parameters once for each query head; without near, the query needs no form."""
    groups = heads // parameters.query_weight.shape[0]

    def repeat(value: Tensor) -> Tensor:
        return value.repeat_interleave(groups, 0)

    form = parameters.query_form
    return parameters._replace(
        query_weight=repeat(parameters.query_weight),
        query_bias=repeat(parameters.query_bias),
        query_form=repeat(form) if near and form is not None else None,
    )


def _shifted(
    W: Tensor, bias: Tensor, A: Tensor, a: Tensor, factor: Tensor
) -> tuple[Tensor, Tensor]:
    """Weight and bias of W A (x - a) + bias + factor.x - |A (x - a)|^2 / 2 + |A x|^2 / 2."""
    WA = W @ A  # [heads, M, D]
    Aa = (A @ a.unsqueeze(-1)).squeeze(-1)
    linear = factor + (A.mT @ Aa.unsqueeze(-1)).squeeze(-1)
    constant = -(WA @ a.unsqueeze(-1)).squeeze(-1) - 0.5 * Aa.square().sum(-1, keepdim=True)
    return WA + linear.unsqueeze(-2), bias + constant


def _covariance(x: Tensor) -> Tensor:
    """[heads, N, D] -> [heads, D, D], with a floor in every direction."""
    C = x.mT @ x / x.shape[1]
    mean = C.diagonal(dim1=-2, dim2=-1).mean(-1).clamp_min(1e-12)
    eye = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    return C + _FLOOR * mean[:, None, None] * eye


def _power(M: Tensor, power: float) -> Tensor:
    values, vectors = torch.linalg.eigh(0.5 * (M + M.mT))
    return (vectors * values.clamp_min(1e-30).pow(power).unsqueeze(-2)) @ vectors.mT
