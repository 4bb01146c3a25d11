"""Causal attention against float64: every map and type, over lengths, norms and options."""

import pytest
import torch
from gpu_bounds import check, on_paths
from gpu_errors import rms, rms_error
from gpu_oracle import references, run_operator
from op_cases import EXPONENTIAL_MAPS, Case, read_cases


@on_paths(read_cases("causal_lengths"))
def test_any_length(case, path):
    check(case, path)


@on_paths(read_cases("causal_norms"))
def test_any_norm(case, path):
    check(case, path)


@on_paths(read_cases("causal_options"))
def test_any_option(case, path):
    check(case, path)


@pytest.mark.parametrize("magnitude", [1, 3, 10, 100])
@pytest.mark.parametrize("feature_map", EXPONENTIAL_MAPS)
@pytest.mark.parametrize("dim", [32, 64, 128])
def test_bfloat16_errs_by_half_a_percent_at_most(feature_map, dim, magnitude, path):
    loglinear = feature_map == "loglinear"
    case = Case(
        feature_map,
        True,
        torch.bfloat16,
        batch=1,
        heads=8,
        key_heads=8,
        length=1000,
        dim=dim,
        features=64 if feature_map == "hyperbolic" else 128,
        key_bias=loglinear,
        biases=loglinear,
        key_projection=loglinear,
        magnitude=magnitude,
    )
    inputs, exact = references(case)
    got = run_operator(inputs)
    assert rms_error(got.out, exact.out) <= 5e-3 * rms(exact.out)
