"""Inputs that the Python tests share."""

import torch
from op_cases import EXPONENTIAL_MAPS, SIGNED_MAPS, num_map_features

KINK = 0.02  # of relu and abs, the jump of sgn: u = W x stays this far from 0


def inputs(feature_map, *, B=1, H=2, Hkv=1, L=4, D=2, M=3, Dv=2, dtype=torch.float64, seed=0):
    """q [B, H, L, D], k [B, Hkv, L, D], v [B, Hkv, L, Dv], W [Hkv, M, D].

    Signed maps get W x > 0, so that no denominator is near 0; the others any sign, off the kinks.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    while True:
        q, k, v, W = (
            normal(B, H, L, D),
            normal(B, Hkv, L, D),
            normal(B, Hkv, L, Dv),
            normal(Hkv, M, D),
        )
        q, k = 0.5 * q, 0.5 * k
        if feature_map in SIGNED_MAPS:
            q, k, W = 0.1 + q.abs(), 0.1 + k.abs(), 0.1 + 0.5 * W.abs()
        rows = torch.cat([q.reshape(-1, D), k.reshape(-1, D)])
        u = rows @ W.reshape(-1, D).T
        # With many numbers some are always near 0: then a central difference rarely meets the kink.
        if u.abs().min() > KINK or u.numel() > 100:
            return tuple(t.to(dtype) for t in (q, k, v, W))


def options_of(feature_map):
    """Every optional tensor that `feature_map` takes besides W, for the default sizes above."""
    generator = torch.Generator().manual_seed(1)
    features = num_map_features(feature_map, 3)
    options = {}
    if feature_map in EXPONENTIAL_MAPS:
        options["projection_k"] = inputs(feature_map, seed=2)[3]
        options["bias_q"] = torch.randn(1, features, generator=generator, dtype=torch.float64)
        options["bias_k"] = torch.randn(features, generator=generator, dtype=torch.float64)
        options["key_bias"] = torch.randn(1, 2, 4, generator=generator, dtype=torch.float64)
    return options
