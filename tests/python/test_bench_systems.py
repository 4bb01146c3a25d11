"""The systems that the benches compare compute the same attention, and what checks that."""

import importlib
import os
import sys
from functools import partial

import pytest
import torch
from bench_cases import DIRECTIONS, run_session, small_case

import performer
from performer_bench import fla, packages, plain, truth
from performer_bench.case import Attention, Case, Inputs, UnavailableError, draw_inputs
from performer_bench.systems import CPU_KERNELS, SYSTEMS, kernels


@pytest.mark.parametrize("name", ["performer_pytorch", "fast_transformers.attention"])
def test_an_absent_peer_says_how_to_install_it(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    prepare = packages.performer_pytorch if "pytorch" in name else packages.fast_transformers
    with pytest.raises(UnavailableError, match="pip install"):
        prepare(small_case(), performer.draw_projection(32, 16))


def test_an_absent_fla_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(fla.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match="pip install fla-core einops"):
        fla.prepare_case("chunk_simple_gla", small_case(causal=True), torch.randn(2, 32, 16))


@pytest.mark.parametrize("causal", DIRECTIONS)
@pytest.mark.parametrize("kernel", ["positive", "relu"])
@pytest.mark.parametrize(
    ("system", "module"),
    [("performer-pytorch", "performer_pytorch"), ("fast-transformers", "fast_transformers")],
)
def test_peers_compute_the_attention_they_are_compared_by(
    monkeypatch, system, module, kernel, causal
):
    pytest.importorskip(module)
    if module == "performer_pytorch":  # it adds to features and sums, which its error shows
        code = importlib.import_module("performer_pytorch.performer_pytorch")
        for name in ("softmax_kernel", "causal_linear_attention_noncuda"):
            monkeypatch.setattr(code, name, partial(getattr(code, name), eps=0.0))
    _, result = run_session(system, case=small_case(kernel=kernel, causal=causal))
    assert result.rows[0].error < 1e-5


def plain_attention(kernel, causal, W):
    """Uncompiled, of q, k, v [B, H, L, D]."""
    if not causal:
        return Attention(lambda q, k, v: plain.bidirectional(q, k, v, W, kernel), W)
    return Attention(
        lambda *qkv: plain.causal(*map(plain.chunked, qkv), W, kernel).flatten(2, 3), W
    )


@pytest.mark.parametrize("causal", DIRECTIONS)
@pytest.mark.parametrize("kernel", plain.KERNELS)
def test_plain_and_ours_agree_with_the_rows_of_the_matrix(kernel, causal):
    q, k, v = torch.randn(3, 1, 2, 40, 8, dtype=torch.float64).unbind(0)
    W = performer.draw_projection(16, 8).double()
    q, k = (x.abs() for x in (q, k)) if kernel in ("gelu", "cos", "tanh") else (q, k)
    exact = truth.exact_rows((q, k, v), W, kernel, causal)
    composed = plain_attention(kernel, causal, W).call(q, k, v)
    eps = None if kernel == "positive" else plain.EPS
    ours = performer.favor_attention(q, k, v, W, kernel, causal=causal, scale=8**-0.5, eps=eps)
    size = float(ours.abs().max())  # signed maps divide by little
    assert truth.relative_error(composed, exact, v) < 1e-10 * size
    assert truth.relative_error(ours, exact, v) < 1e-10 * size


def double_inputs(case):
    q, k, v, grad = torch.randn(4, case.batch, case.heads, case.length, case.dim).double()
    W = performer.draw_projection(case.features, case.dim, heads=case.heads).double()
    return Inputs(q, k, v, grad, W)


@pytest.mark.parametrize("causal", DIRECTIONS)
def test_every_system_of_a_gpu_is_checked_with_its_gradients(causal):
    """The check of the GPU's bench, on the CPU: ours per head, exact, plain, in float64."""
    case = Case(2, 3, 40, 8, 16, causal, "positive", "fp32")
    inputs = double_inputs(case)
    by_name = {system.name: system for system in SYSTEMS}
    ours, exact = (by_name[name].prepare(case, inputs.W) for name in ("performer", "exact"))
    for attention in (ours, exact, plain_attention("positive", causal, inputs.W[0])):
        error, gradient_error = truth.errors(attention, case, inputs)
        assert error < 1e-10 and gradient_error < 1e-10
    wrong = Attention(lambda q, k, v: ours.call(q, k, v) + 0 * q + 0.1 * k.mean(), inputs.W)
    error, gradient_error = truth.errors(wrong, case, inputs)
    assert error > 1e-4 or gradient_error > 1e-4


@pytest.mark.parametrize("causal", DIRECTIONS)
def test_plain_gradients_are_as_good_as_bfloat16_allows(causal):
    """States as a sum minus its own last term would cancel: gradients off by more than a tenth."""
    case = Case(1, 2, 1024, 64, 256, causal, "positive", "bf16")
    inputs = draw_inputs(case)
    attention = plain_attention("positive", causal, inputs.W)
    error, gradient_error = truth.errors(attention, case, inputs)
    assert error < 0.02 and gradient_error < 0.04


def test_a_system_that_computes_something_else_is_not_timed():
    check, case = truth.GradientCheck(), small_case()
    problem = truth.Problem(case)
    right = SYSTEMS[0].prepare(case, problem.inputs.W)
    wrong = Attention(lambda q, k, v: right.call(q, k, v).nan_to_num() * 1.1, right.W)
    lost = Attention(lambda q, k, v: right.call(q, k, v) * float("nan"), right.W)
    out = right.call(problem.inputs.q, problem.inputs.k, problem.inputs.v)
    assert not check.verdict("right", right, problem, out).wrong
    assert check.verdict("wrong", wrong, problem, out).wrong
    assert check.verdict("lost", lost, problem, out).wrong


def causal_linear_attention(q, k, v, scale):
    """As FLA's operators: [B, L, H, ...], without a denominator."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return scale * ((q @ k.mT).tril() @ v).transpose(1, 2), None


def test_what_surrounds_fla_makes_causal_attention_of_its_product():
    case = small_case(causal=True)
    inputs = draw_inputs(case)
    attention = fla.attention(causal_linear_attention, inputs.W, compiled=False)
    error, gradient_error = truth.errors(attention, case, inputs)
    assert error < 1e-5 and gradient_error < 1e-5


def test_a_wrong_output_has_a_large_error():
    q, k, v = torch.randn(3, 1, 1, 40, 8).unbind(0)
    exact = truth.exact_rows((q, k, v), None, "positive", False)
    assert truth.relative_error(v, exact, v) > 0.5


def test_composed_kernels_are_chosen_inside_only(monkeypatch):
    monkeypatch.setenv(CPU_KERNELS, "avx2")
    with kernels(CPU_KERNELS, "off"):
        assert os.environ[CPU_KERNELS] == "off"
    assert os.environ[CPU_KERNELS] == "avx2"
    monkeypatch.delenv(CPU_KERNELS)
    with kernels(CPU_KERNELS, "off"):
        assert os.environ[CPU_KERNELS] == "off"
    assert CPU_KERNELS not in os.environ


def test_the_probe_does_what_it_counts():
    flops, total, isa = torch.ops.performer.fma_probe(100)
    lanes = {"avx512": 16, "avx2": 8, "portable": 4}[isa]
    assert flops == 2 * 12 * lanes * 100 * torch.get_num_threads()
    # Every chain has come to the fixed point of x -> x / 2 + 1.
    assert total == pytest.approx(2 * 12 * lanes * torch.get_num_threads())
    with pytest.raises(RuntimeError, match=r"must be in 1 \.\.\. 1073741824, got 0"):
        torch.ops.performer.fma_probe(0)
