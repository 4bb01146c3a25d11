"""The fused operator against float64, by the error of an unfused version of the same formula."""

import pytest
import torch
from gpu_cases import CASES, MAGNITUDES, Case, references, rms, rms_error, run_operator, unit

HOPPER = torch.cuda.get_device_capability() == (9, 0)


def small(case):
    """Few numbers, or rows that few keys decide: there one rounding may be all of the error."""
    few = case.length * case.batch * case.dim < 5000 or min(case.key_length, case.length) < 8
    return few or case.magnitude > 1


def output_bound(case, inputs, exact, unfused):
    size = max(rms(inputs.v), rms(exact.out))
    error = rms_error(unfused.out, exact.out)
    if case.dtype == torch.float32:
        return 2 * error + 2e-6 * size
    return 1.5 * error + unit(case.dtype) * size * (0.5 if small(case) else 0.01)


def gradient_bound(case, inputs, want, plain):
    size = max(rms(inputs.grad), rms(want))
    error = rms_error(plain, want)
    if case.dtype == torch.float32:
        return 3 * error + 2e-6 * size
    return 3 * error + unit(case.dtype) * size * (0.5 if small(case) else 0.02)


def check_kernels(case, path, got):
    forward, backward = got.kernels
    allowed = {case.kernel("portable")}
    if path == "auto" and case.matrix_units:
        allowed.add(case.kernel("hopper"))
    assert forward in allowed
    assert backward in ({"composed"} if case.composed_backward else allowed)


def check(case, path):
    inputs, exact, unfused = references(case)
    assert exact.kernels == ("composed", "composed")
    got = run_operator(inputs)
    check_kernels(case, path, got)
    assert got.out.dtype == case.dtype
    assert torch.isfinite(got.out).all()
    assert rms_error(got.out, exact.out) <= output_bound(case, inputs, exact, unfused)
    if case.magnitude == 1:
        for ours, plain, want in zip(got.state, unfused.state, exact.state, strict=True):
            floor = 2e-6 if case.dtype == torch.float32 else 0.5 * unit(case.dtype)
            assert rms_error(ours, want) <= 2 * rms_error(plain, want) + floor * rms(want)
    for ours, plain, want in zip(got.grads, unfused.grads, exact.grads, strict=True):
        assert torch.isfinite(ours).all()
        assert rms_error(ours, want) <= gradient_bound(case, inputs, want, plain)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case(case, path):
    check(case, path)


@pytest.mark.parametrize("case", MAGNITUDES, ids=str)
def test_any_norm(case, path):
    check(case, path)


@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("features", [64, 128, 256])
def test_bfloat16_errs_by_half_a_percent_at_most(dim, features, path):
    case = Case(dtype=torch.bfloat16, heads=8, key_heads=8, length=2000, dim=dim, features=features)
    inputs, exact, _ = references(case)
    got = run_operator(inputs)
    assert rms_error(got.out, exact.out) <= 5e-3 * rms(exact.out)


@pytest.mark.skipif(not HOPPER, reason="needs compute capability 9.0")
@pytest.mark.parametrize("features", [64, 128, 256])
def test_hopper_serves_the_headline(features, kernels):
    kernels("auto")
    case = Case(dtype=torch.bfloat16, length=1000, dim=64, features=features)
    inputs, _, _ = references(case)
    assert run_operator(inputs).kernels == (case.kernel("hopper"),) * 2
