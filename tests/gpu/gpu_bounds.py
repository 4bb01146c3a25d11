"""How far a fused result may be from float64: bounds by the error of the unfused version."""

import pytest
import torch
from gpu_errors import mean_error, rms, unit
from gpu_inputs import permuted
from gpu_kernels import (
    DEVICE,
    HOPPER,
    composed_backward,
    feature_dtype,
    headline,
    headline_backward,
    kernel_name,
    matrix_units,
)
from gpu_oracle import permuted_back, references, run_operator
from gpu_unfused import unfused


def on_paths(cases):
    """Every case by the portable kernels, and by those auto chooses where they may be others."""
    pairs = [
        (case, path) for case in cases for path in ("portable", "auto")[: 1 + matrix_units(case)]
    ]
    return pytest.mark.parametrize(
        ("case", "path"), pairs, indirect=["path"], ids=[f"{path}-{case}" for case, path in pairs]
    )


def draws(case):
    """How often the same call is rounded anew. At large norms a few rows where keys tie make the
    error, and one draw of their roundings says little about either version."""
    return 4 if case.magnitude > 1 else 1


def small(case):
    """Few numbers, or rows that few keys decide: there one rounding may be all of the error."""
    few = case.length * case.batch * case.dim < 5000 or min(case.key_length, case.length) < 8
    return few or case.magnitude > 1


def output_bound(case, features, inputs, want, error):
    """error: of the unfused version with these features."""
    size = max(rms(inputs.v), rms(want))
    if case.dtype == torch.float32:
        return 2 * error + 2e-6 * size
    return 1.5 * error + unit(features) * size * (0.5 if small(case) else 0.01)


def exponent_error(inputs):
    """A feature's relative error is its exponent's absolute one: the unit roundoff of float32 times
    the size of the terms of w . k. One feature may be all of a state."""
    case, W = inputs.case, inputs.options.get("projection_k", inputs.W)
    if case.feature_map == "relu" or not inputs.k.numel():
        return 0.0
    k = inputs.k.float()
    if case.mask:
        k = k.masked_fill(~inputs.options["key_mask"][:, None, :, None], 0)
    largest = float(W.norm(dim=-1).max() * k.norm(dim=-1).max())
    return 0.5 * unit(torch.float32) * case.dim**-0.25 * largest


def state_bound(case, features, inputs, want, error):
    floor = 0.5 * unit(features)
    if case.dtype == torch.float32:
        floor = max(2e-6, exponent_error(inputs))
    return 2 * error + floor * rms(want)


def gradient_bound(case, features, inputs, want, error):
    size = max(rms(inputs.grad), rms(want))
    if case.dtype == torch.float32:
        # The gradient of a state is passed on to keys times their features.
        floor = max(2e-6, exponent_error(inputs)) if case.state else 2e-6
        return 3 * error + floor * size
    return 3 * error + unit(features) * size * (0.5 if small(case) else 0.02)


def check_kernels(case, path, kernels, backward=True):
    """kernels: of the forward pass and, if there was one, of the backward pass."""
    if DEVICE == "cpu":
        return
    allowed = {kernel_name(case, "portable")}
    if path == "auto" and HOPPER and case.causal and headline(case):
        allowed = {kernel_name(case, "hopper")}
    elif path == "auto" and matrix_units(case):
        allowed.add(kernel_name(case, "hopper"))
    assert kernels[0] in allowed
    if not headline_backward(case):
        allowed.add(kernel_name(case, "portable"))
    if backward:
        assert kernels[1] in ({"composed"} if composed_backward(case) else allowed)


def check(case, path):
    inputs, exact = references(case)
    assert exact.kernels == ("composed", "composed") or DEVICE == "cpu"
    orders = range(draws(case))
    got = [permuted_back(run_operator(permuted(inputs, n)), inputs, n) for n in orders]
    for result in got:
        check_kernels(case, path, result.kernels)
        assert result.out.dtype == case.dtype
        assert all(torch.isfinite(t).all() for t in (result.out, *result.grads))
    forward, backward = (feature_dtype(case, kernel) for kernel in got[0].kernels)

    def compare(what, bound, features, part):
        want = part(exact)
        plain = mean_error([part(unfused(case, features, n)) for n in orders], want)
        error, most = (
            mean_error([part(result) for result in got], want),
            bound(case, features, inputs, want, plain),
        )
        assert error <= most, f"{what}: error {error:.3g} > {most:.3g}, unfused {plain:.3g}"

    compare("out", output_bound, forward, lambda result: result.out)
    if case.magnitude == 1:
        for n, what in enumerate(("kv", "normalizer")):
            compare(what, state_bound, forward, lambda result, n=n: result.state[n])
    for n, what in enumerate(("q", "k", "v", "kv", "normalizer")[: len(exact.grads)]):
        compare(f"grad {what}", gradient_bound, backward, lambda result, n=n: result.grads[n])
