import math

import pytest
import torch
from torch.library import opcheck

import performer

DIM = 8


def make_inputs(length: int = 30, std: float = 1.0, dtype: torch.dtype = torch.float64):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(2, 2, length, DIM, generator=generator, dtype=torch.float64) for _ in range(3)
    )
    W = torch.randn(2, 16, DIM, generator=generator, dtype=torch.float64)
    return (q * std).to(dtype), (k * std).to(dtype), v.to(dtype), W.to(dtype)


def test_map_times_values_is_the_attention():
    q, k, v, W = make_inputs()
    for causal in (False, True):
        A = performer.attention_map(q, k, W, causal=causal)
        torch.testing.assert_close(A @ v, performer.favor_attention(q, k, v, W, causal=causal))
        exact = performer.exact_attention_map(q, k, causal=causal)
        torch.testing.assert_close(exact @ v, performer.exact_attention(q, k, v, causal=causal))


def test_rows_sum_to_one_in_every_dtype():
    for dtype in (torch.float32, torch.bfloat16):
        q, k, _, W = make_inputs(dtype=dtype)
        A = performer.attention_map(q, k, W.float())
        assert A.dtype == torch.float32
        assert (A.double().sum(-1) - 1).abs().max() < 1e-6


def test_slices_sequences_and_tensors_choose_the_same_part():
    q, k, _, W = make_inputs()
    whole = performer.attention_map(q, k, W)
    part = whole[:, :, -4:, 1:9:2]
    columns = [1, 3, 5, 7]
    for rows in (slice(-4, None), [26, 27, 28, 29], torch.arange(26, 30)):
        for chosen in (slice(1, 9, 2), columns, torch.tensor(columns)):
            A = performer.attention_map(q, k, W, rows, chosen)
            torch.testing.assert_close(A, part)
    exact = performer.exact_attention_map(q, k, slice(-4, None), columns)
    torch.testing.assert_close(exact, performer.exact_attention_map(q, k)[:, :, -4:, 1:9:2])


def test_a_pooled_map_has_rows_that_sum_to_one():
    q, k, _, W = make_inputs()
    A = performer.attention_map(q, k, W, pool=8, causal=True)
    assert A.shape == (2, 2, 4, 4)
    torch.testing.assert_close(A.sum(-1), torch.ones(2, 2, 4, dtype=A.dtype))
    assert A.triu(1).abs().max() == 0


def test_a_callable_map_equals_the_named_one():
    q, k, _, W = make_inputs()
    named = performer.attention_map(q, k, W, feature_map="relu", causal=True)
    own = performer.attention_map(q, k, W, feature_map=torch.relu, causal=True)
    torch.testing.assert_close(own, named)


def test_quality_has_a_table_and_a_verdict():
    q, k, v, W = make_inputs(length=100, std=0.7)
    many = torch.randn(2, 1000, DIM, generator=torch.Generator().manual_seed(1))
    good = performer.approximation_quality(q, k, v, many.double(), samples=1000)
    assert good.verdict.startswith("all heads are better than plain averaging")
    assert (good.error < good.uniform_error).all()
    lines = str(good).splitlines()
    assert len(lines) == 4 and lines[-1] == good.verdict
    assert lines[0].split()[0] == "head" and lines[2].split()[0] == "1"
    bad = performer.approximation_quality(3 * q, 3 * k, v, W, feature_map="trigonometric")
    assert "worse than plain averaging" in bad.verdict
    near = performer.approximation_quality(0.05 * q, 0.05 * k, v, W, samples=1000)
    assert (near.predicted_error < 0.01).all() and (near.error > near.uniform_error).any()
    assert "within the noise of it" in near.verdict and "more features" not in near.verdict


def test_quality_measures_what_the_operators_give():
    q, k, v, W = make_inputs()
    mask = torch.rand(2, 30, generator=torch.Generator().manual_seed(2)) < 0.7
    for causal in (False, True):
        info = performer.approximation_quality(
            q, k, v, W, causal=causal, key_mask=mask, samples=100
        )
        out = performer.favor_attention(q, k, v, W, causal=causal, key_mask=mask)
        exact = performer.exact_attention(q, k, v, causal=causal, key_mask=mask)
        expected = (out - exact).square().sum((0, 2, 3)) / exact.square().sum((0, 2, 3))
        torch.testing.assert_close(info.error, expected.sqrt())


def test_oprf_is_the_positive_map_with_biases():
    q, k, v, W = make_inputs(std=1.5)
    a = performer.fit_oprf(q, k)
    assert a.shape == (2,) and (a < 0).all()
    W2, b = performer.oprf(W, a, rounding="none")
    out = performer.favor_attention(q, k, v, W2, bias_q=b, bias_k=b)
    for head in range(2):
        x, y = (t[:, head] * DIM**-0.25 for t in (q, k))
        w, a_h = W[head], a[head]
        root = torch.sqrt(1 - 4 * a_h)

        def phi(x, w=w, a_h=a_h, root=root):
            log = a_h * w.square().sum(-1) + root * x @ w.T
            return torch.exp(log - x.square().sum(-1, keepdim=True) / 2)

        A = phi(x) @ phi(y).mT
        torch.testing.assert_close(out[:, head], (A / A.sum(-1, keepdim=True)) @ v[:, head])
    W2, b = performer.oprf(W, -0.25, rounding="none")
    torch.testing.assert_close(W2, W * math.sqrt(2))
    torch.testing.assert_close(b, -0.25 * W.square().sum(-1) + DIM / 4 * math.log(2))
    W2, b = performer.oprf(W, -0.25)
    assert torch.equal(W2, W2.bfloat16().double())
    torch.testing.assert_close(W2, W * math.sqrt(2), rtol=1 / 256, atol=0)
    torch.testing.assert_close(b, -0.125 * W2.square().sum(-1) + DIM / 4 * math.log(2))


def test_oprf_gradients_reach_the_projection_and_not_a():
    q, k, _, W = make_inputs()
    W.requires_grad_(True)
    a = torch.tensor([-0.1, -0.2], dtype=torch.float64, requires_grad=True)
    W2, b = performer.oprf(W, a)
    (W2.sum() + b.sum()).backward()
    assert W.grad is not None and a.grad is None
    assert not performer.fit_oprf(q.requires_grad_(True), k).requires_grad


def test_maps_and_exact_attention_are_differentiable():
    *qkv, W = make_inputs(length=5)
    q, k, v = (t[:1].requires_grad_(True) for t in qkv)
    mask = torch.tensor([[False, True, True, False, True]])

    def maps(q, k):
        return (
            performer.attention_map(q, k, W, rows=[3, 0], causal=True, key_mask=mask),
            performer.exact_attention_map(q, k, columns=[1, 2], causal=True, key_mask=mask),
        )

    torch.autograd.gradcheck(maps, (q, k))
    torch.autograd.gradcheck(
        lambda *t: performer.exact_attention(*t, causal=True, key_mask=mask), (q, k, v)
    )


def test_operators_pass_opcheck():
    q, k, v, W = make_inputs(length=6)
    ops = torch.ops.performer
    rows = torch.tensor([4, 1])
    none6 = (None,) * 6
    opcheck(ops.exact_attention.default, (q, k, v, True, None, None, None))
    opcheck(ops.exact_attention_map.default, (q, k, True, None, None, None, rows, None, None))
    opcheck(
        ops.attention_map.default,
        (q, k, W, "positive", True, None, None, True, 2, *none6, rows, None, None),
    )
    opcheck(
        ops.approximation_quality.default,
        (q, k, v, W, "positive", True, None, None, 0, *none6, 4, 0),
    )
    for rounding in ("bf16", "none"):
        opcheck(ops.oprf.default, (W, torch.tensor(-0.1), rounding))
    opcheck(ops.fit_oprf.default, (q, k, None, None))


def test_maps_compile_without_graph_breaks():
    q, k, _, W = make_inputs(length=12)
    torch._dynamo.reset()

    def both(q, k):
        W2, b = performer.oprf(W, performer.fit_oprf(q, k))
        A = performer.attention_map(q, k, W2, slice(2, 5), bias_q=b, bias_k=b)
        return A - performer.exact_attention_map(q, k, slice(2, 5))

    compiled = torch.compile(both, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(q, k), both(q, k))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda q, k, v, W: performer.attention_map(q, k, W, [30]), r"rows must be in \[0, 30\)"),
        (lambda q, k, v, W: performer.attention_map(q, k, W, pool=0), "pool must be positive"),
        (lambda q, k, v, W: performer.attention_map(q[0], k, W), "q must be"),
        (lambda q, k, v, W: performer.exact_attention(q, k, v[:, :1]), "v must be"),
        (lambda q, k, v, W: performer.oprf(W, 0.2), "a must be finite and below 1/8"),
        (lambda q, k, v, W: performer.oprf(W, math.nan), "got nan"),
        (lambda q, k, v, W: performer.oprf(W, -0.1, "int8"), "oprf: rounding must be bf16 or none"),
        (
            lambda q, k, v, W: performer.approximation_quality(q, k, v, W, samples=0),
            "samples must be positive, got 0",
        ),
        (
            lambda q, k, v, W: performer.approximation_quality(q, k, v, W, feature_map=torch.relu),
            "feature_map must be the name of a map",
        ),
        (
            lambda q, k, v, W: performer.approximation_quality(q, k, v, W, feature_map="soft"),
            "soft",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises((RuntimeError, ValueError), match=message):
        call(*make_inputs())


def test_there_is_no_verdict_without_anything_to_compare():
    q = torch.randn(1, 2, 8, 16)
    W = performer.draw_projection(32, 16)
    hidden = torch.zeros(1, 8, dtype=torch.bool)
    masked = performer.approximation_quality(q, q, q, W, key_mask=hidden)
    broken = performer.approximation_quality(q * float("nan"), q, q, W)
    assert "nothing to compare" in masked.verdict
    assert "not finite" in broken.verdict


def test_the_quality_meter_sees_the_near_field():
    """A field that covers all tokens is exact, and a part of it is better than none."""
    q, k, v, W = make_inputs(length=64, std=1.5)
    errors = [
        performer.approximation_quality(q, k, v, W, causal=True, near=near, samples=64).error
        for near in (0, 16, 32)
    ]
    assert (errors[1] < errors[0]).all()
    assert errors[2].max() < 1e-12
