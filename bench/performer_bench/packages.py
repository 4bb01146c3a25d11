"""Other packages, as published: performer-pytorch and pytorch-fast-transformers."""

import importlib
import io
import warnings
from contextlib import redirect_stdout
from typing import Any

import torch
from torch import Tensor

from performer_bench.case import DTYPES, Attention, Case, UnavailableError
from performer_bench.plain import EPS, MAPS


def load(module: str, install: str) -> Any:
    """Imports a peer, whose warnings on old interfaces are not ours to show."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(module)
    except ImportError as error:
        raise UnavailableError(f"not installed ({error}): {install}") from error


def performer_pytorch(case: Case, W: Tensor) -> Attention:
    module = load("performer_pytorch", "pip install performer-pytorch")
    with redirect_stdout(io.StringIO()):  # it prints that there is no CUDA code for causal products
        attention = module.FastAttention(
            case.dim,
            case.features,
            causal=case.causal,
            generalized_attention=case.kernel != "positive",
            kernel_fn=MAPS.get(case.kernel),
        )
    attention.projection_matrix = W
    return Attention(attention, W)


def fast_transformers(case: Case, W: Tensor) -> Attention:
    install = (
        "pip install --no-build-isolation pytorch-fast-transformers, on machines with nvcc by "
        "env -u CUDA_HOME and a PATH without it"
    )
    attentions = load("fast_transformers.attention", install)
    maps = load("fast_transformers.feature_maps", install)
    masking = load("fast_transformers.masking", install)
    if case.kernel == "positive":
        # Its M features are exp(w x) and exp(-w x) of M / 2 vectors w.
        half = W[: case.features // 2]
        W, omega = torch.cat([half, -half]), half
        feature_map = maps.Favor.factory(n_dims=case.features, deterministic_eval=True)
    else:
        f, omega = MAPS[case.kernel], W
        feature_map = maps.GeneralizedRandomFeatures.factory(
            n_dims=case.features,
            softmax_temp=case.dim**-0.5,
            kernel_fn=lambda u: f(u) + EPS,
            deterministic_eval=True,
        )
    kind = attentions.CausalLinearAttention if case.causal else attentions.LinearAttention
    attention = kind(case.dim, feature_map).eval()  # eval: no new draw at every call
    attention.feature_map.omega = omega.T.contiguous().to(DTYPES[case.dtype])
    # Only the kind of mask is looked at: one of [L, L] would be 4 GiB at 65,536.
    mask = masking.TriangularCausalMask(1) if case.causal else masking.FullMask(1)
    lengths = masking.LengthMask(torch.full((case.batch,), case.length))

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = attention(q, k, v, mask, lengths, lengths)
        return out

    return Attention(call, W, length_first=True)
