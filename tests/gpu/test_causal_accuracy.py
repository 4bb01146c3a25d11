"""Causal attention against float64: every map and type, over lengths, norms and options."""

from dataclasses import replace

import pytest
import torch
from gpu_bounds import check, on_paths
from gpu_cases import (
    DTYPES,
    EXPONENTIAL,
    MAPS,
    Case,
    legal,
    references,
    rms,
    rms_error,
    run_operator,
)

LENGTHS = (1, 63, 64, 65, 127, 1000, 4096)  # chunks are of 64
MAGNITUDES = (3, 10, 100, 1000)


def full(feature_map, dtype, **options):
    """Every term the map has; as many features as all paths serve."""
    loglinear = feature_map == "loglinear"
    case = Case(
        feature_map,
        causal=True,
        dtype=dtype,
        features=128 if feature_map == "hyperbolic" else 256,
        key_bias=loglinear,
        biases=loglinear,
        key_projection=loglinear,
    )
    return legal(replace(case, **options))


BY_LENGTH = [
    full(feature_map, dtype, length=length, heads=2, key_heads=2, head_parameters=2)
    for length in LENGTHS
    for feature_map in MAPS
    for dtype in DTYPES
]
BY_MAGNITUDE = [
    full(
        feature_map,
        dtype,
        batch=16 if magnitude == 100 else 8,  # where keys rarely tie, few rows make the error
        heads=4,
        key_heads=4,
        length=150,
        features=64,
        magnitude=magnitude,
        key_bias=False,
        biases=False,
    )
    for magnitude in MAGNITUDES
    for feature_map in EXPONENTIAL
    for dtype in DTYPES
]
OPTIONS = (
    {"mask": True},
    {"state": True},
    {"mask": True, "state": True, "key_bias": True},
    {"heads": 4, "key_heads": 2, "head_parameters": 2, "mask": True},
    {"heads": 4, "key_heads": 1, "state": True},
    {"heads": 4, "key_heads": 2, "head_parameters": 4},  # backward composed
    {"packed": True, "length": 700},
    {"packed": True, "length": 700, "mask": True, "key_bias": True, "state": True},
    {"packed": True, "length": 333, "heads": 4, "key_heads": 2},
    {"dim": 32, "features": 256},
    {"dim": 128, "features": 128, "mask": True},
    {"features": 200, "length": 321},
    {"features": 65, "state": True},
    {"features": 33, "dim": 32, "mask": True},
)
BY_OPTION = [
    full("positive" if n % 3 else "loglinear", dtype, **{"length": 200, **options})
    for n, options in enumerate(OPTIONS)
    for dtype in DTYPES
]


@on_paths(BY_LENGTH)
def test_any_length(case, path):
    check(case, path)


@on_paths(BY_MAGNITUDE)
def test_any_norm(case, path):
    check(case, path)


@on_paths(BY_OPTION)
def test_any_option(case, path):
    check(case, path)


@pytest.mark.parametrize("magnitude", [1, 3, 10, 100])
@pytest.mark.parametrize("feature_map", EXPONENTIAL)
@pytest.mark.parametrize("dim", [32, 64, 128])
def test_bfloat16_errs_by_half_a_percent_at_most(feature_map, dim, magnitude, path):
    case = full(
        feature_map,
        torch.bfloat16,
        heads=8,
        key_heads=8,
        length=1000,
        dim=dim,
        features=64 if feature_map == "hyperbolic" else 128,
        magnitude=magnitude,
    )
    inputs, exact = references(case)
    got = run_operator(inputs)
    assert rms_error(got.out, exact.out) <= 5e-3 * rms(exact.out)
