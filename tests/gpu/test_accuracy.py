"""The fused operator against float64, by the error of an unfused version of the same formula."""

import pytest
import torch
from gpu_bounds import check, on_paths
from gpu_errors import rms, rms_error
from gpu_inputs import make_inputs
from gpu_kernels import HOPPER, kernel_name
from gpu_oracle import references, run_operator
from op_cases import Case, read_cases


@on_paths([*read_cases("fused"), *read_cases("matrix_units")])
def test_case(case, path):
    check(case, path)


@on_paths(read_cases("norms"))
def test_any_norm(case, path):
    check(case, path)


@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("features", [64, 128, 256])
def test_bfloat16_errs_by_half_a_percent_at_most(dim, features, path):
    case = Case(dtype=torch.bfloat16, heads=8, key_heads=8, length=2000, dim=dim, features=features)
    inputs, exact = references(case)
    got = run_operator(inputs)
    assert rms_error(got.out, exact.out) <= 5e-3 * rms(exact.out)


@pytest.mark.skipif(not HOPPER, reason="needs compute capability 9.0")
@pytest.mark.parametrize("features", [64, 128, 256])
def test_hopper_serves_the_headline(features, kernels):
    kernels("auto")
    case = Case(dtype=torch.bfloat16, length=1000, dim=64, features=features)
    inputs = make_inputs(case)
    assert run_operator(inputs).kernels == (kernel_name(case, "hopper"),) * 2
