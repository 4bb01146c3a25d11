"""favor_attention as Python sees it: options arrive, callables compose, dtypes and shapes hold."""

import math

import pytest
import torch
from op_cases import ALL_MAPS, GENERALISED_MAPS, num_map_features
from small_inputs import inputs, options_of

import performer


def direct(q, k, v, W, feature_map, *, causal, renormalize):
    """The definition: features, all pairs, ratio."""
    scale = 1.0 if feature_map in GENERALISED_MAPS else 1 / math.sqrt(q.shape[-1])
    groups = q.shape[1] // k.shape[1]
    heads = []
    for h in range(q.shape[1]):
        g = h // groups
        phi_q = performer.features(math.sqrt(scale) * q[:, h], W[g], feature_map)
        phi_k = performer.features(math.sqrt(scale) * k[:, g], W[g], feature_map)
        A = phi_q @ phi_k.mT
        A = A.tril() if causal else A
        A = A / A.sum(-1, keepdim=True) if renormalize else A
        heads.append(A @ v[:, g])
    return torch.stack(heads, 1)


@pytest.mark.parametrize("renormalize", [True, False], ids=["ratio", "numerator"])
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("feature_map", ALL_MAPS)
def test_equals_the_definition(feature_map, causal, renormalize):
    q, k, v, W = inputs(feature_map, B=2, H=4, Hkv=2, L=9, D=3, M=5, Dv=4)
    out, state = performer.favor_attention(
        q, k, v, W, feature_map, causal=causal, renormalize=renormalize, return_state=True
    )
    want = direct(q, k, v, W, feature_map, causal=causal, renormalize=renormalize)
    torch.testing.assert_close(out, want, rtol=1e-11, atol=1e-12)
    features = num_map_features(feature_map, 5)
    assert state.kv.shape == (2, 2, features, 4)
    assert state.normalizer.shape == state.log2_scale.shape == (2, 2, features)
    assert state.log2_scale.dtype == torch.int32


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_output_and_state_dtypes(dtype):
    q, k, v, W = inputs("positive", dtype=dtype)
    out, state = performer.favor_attention(q, k, v, W.to(torch.float32), return_state=True)
    assert out.dtype == dtype
    assert state.kv.dtype == torch.promote_types(dtype, torch.float32)


def test_default_scale_is_one_over_root_d_and_one_for_generalised_maps():
    q, k, v, W = inputs("positive", D=4)
    same = performer.favor_attention(q, k, v, W, scale=0.5)
    assert torch.equal(performer.favor_attention(q, k, v, W), same)
    same = performer.favor_attention(q, k, v, W, "relu", scale=1.0)
    assert torch.equal(performer.favor_attention(q, k, v, W, "relu"), same)


def test_oprf_is_positive_with_biases():
    """Both biases of performer.oprf's kind shift log features: a check that they arrive."""
    q, k, v, W = inputs("positive")
    options = options_of("positive")
    bias_q, bias_k = options["bias_q"], options["bias_k"]
    out = performer.favor_attention(q, k, v, W, scale=1.0, bias_q=bias_q, bias_k=bias_k)
    phi_q = performer.features(q, W[0], bias=bias_q[0])
    phi_k = performer.features(k, W[0], bias=bias_k)
    A = phi_q @ phi_k.mT
    torch.testing.assert_close(out, A @ v / A.sum(-1, keepdim=True))


def test_key_bias_of_minus_infinity_is_a_masked_key():
    q, k, v, W = inputs("positive")
    key_mask = torch.tensor([[True, False, True, True]])
    key_bias = torch.where(key_mask, 0.0, -torch.inf).double()[:, None]
    masked = performer.favor_attention(q, k, v, W, causal=True, key_mask=key_mask)
    biased = performer.favor_attention(q, k, v, W, causal=True, key_bias=key_bias)
    torch.testing.assert_close(biased, masked, rtol=1e-14, atol=0)


def test_structured_projection_is_accepted_wherever_w_is():
    q, k, v, _ = inputs("positive", D=4, Hkv=2, dtype=torch.float32)
    P = performer.draw_structured(8, 4, heads=2, kind="hadamard")
    W = P.dense()
    out = performer.favor_attention(q, k, v, P, projection_k=P)
    assert torch.equal(out, performer.favor_attention(q, k, v, W, projection_k=W))
    one = performer.draw_structured(8, 4, kind="hadamard")
    assert torch.equal(performer.features(q, one), performer.features(q, one.dense()))
    step, _ = performer.favor_step(q[:, :, :1], k[:, :, :1], v[:, :, :1], P)
    torch.testing.assert_close(step, v[:, :, :1])


class TestCallable:
    @pytest.mark.parametrize("heads", ["shared", "kv", "all"])
    @pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
    def test_equals_the_named_map(self, causal, heads):
        q, k, v, W = inputs("relu", B=2, H=4, Hkv=2, L=7)
        W = {"shared": W[0], "kv": W, "all": inputs("relu", H=4, Hkv=4, seed=3)[3]}[heads]
        options = {
            "causal": causal,
            "scale": 0.7,
            "eps": 0.01,
            "key_mask": torch.tensor([[True] * 7, [False] * 2 + [True] * 5]),
            "return_state": True,
        }
        out, state = performer.favor_attention(q, k, v, W, torch.relu, **options)
        want, want_state = performer.favor_attention(q, k, v, W, "relu", **options)
        torch.testing.assert_close(out, want, rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(state.kv, want_state.kv)
        torch.testing.assert_close(state.normalizer, want_state.normalizer)

    def test_without_projection(self):
        q, k, v, _ = inputs("relu")
        out = performer.favor_attention(q, k, v, feature_map=torch.relu)
        torch.testing.assert_close(out, performer.favor_attention(q, k, v, feature_map="relu"))

    def test_features(self):
        x, _, _, W = inputs("relu")
        phi = performer.features(x, W[0], torch.relu, eps=0.5)
        torch.testing.assert_close(phi, performer.features(x, W[0], "relu", eps=0.5))

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    @pytest.mark.parametrize("projected", [True, False])
    def test_features_round_once(self, dtype, projected):
        W = performer.draw_projection(32, 16) if projected else None
        x = torch.randn(50, 16).to(dtype)
        want = performer.features(x, W, "exp")
        got = performer.features(x, W, torch.exp)
        assert got.dtype == dtype
        torch.testing.assert_close(got, want, rtol=torch.finfo(dtype).eps, atol=0)
        with torch.autocast("cpu", dtype):
            assert torch.equal(performer.features(x, W, torch.exp), got)

    def test_gives_shapes_on_the_meta_device(self):
        q, k, v, W = (t.to("meta") for t in inputs("relu"))
        out = performer.favor_attention(q, k, v, W, torch.relu)
        assert out.is_meta and out.shape == q.shape
        assert performer.features(q, W[0], torch.relu).shape == (1, 2, 4, 3)

    def test_is_reported_as_composed(self, monkeypatch):
        q, k, v, W = inputs("relu")
        performer.favor_attention(q, k, v, W, "relu")
        assert performer.last_kernel()
        # Whatever kernel the operator reports, features made in Python are not its work.
        monkeypatch.setattr(torch.ops.performer, "last_kernel", lambda: "cpu/kernel")
        performer.favor_attention(q, k, v, W, torch.relu)
        assert performer.last_kernel() == "composed"
        performer.favor_attention(q, k, v, W, "relu")
        assert performer.last_kernel() == "cpu/kernel"

    def test_low_precision_features_are_not_rounded(self):
        q, k, v, W = inputs("square", L=32, dtype=torch.bfloat16)
        W = W.float()
        out = performer.favor_attention(q, k, v, W, torch.square)
        exact = performer.favor_attention(*(t.double() for t in (q, k, v, W)), torch.square)
        assert out.dtype == torch.bfloat16
        assert torch.equal(out, exact.bfloat16())

    def test_masked_nan_reaches_no_gradient(self):
        q, k, v, W = inputs("square")
        W = W.requires_grad_()
        k[:, :, 1] = torch.nan
        v[:, :, 1] = torch.nan
        key_mask = torch.tensor([[True, False, True, True]])
        performer.favor_attention(q, k, v, W, torch.square, key_mask=key_mask).sum().backward()
        assert torch.isfinite(W.grad).all()

    def test_state_refuses_another_projection_scale_or_function(self):
        q, k, v, W = inputs("relu")
        _, state = performer.favor_attention(q, k, v, W, torch.relu, return_state=True)
        performer.favor_attention(q, k, v, W, torch.relu, initial_state=state)
        others = [(2 * W, torch.relu, None), (W, torch.relu, 0.5), (W, torch.sigmoid, None)]
        for other, function, scale in others:
            with pytest.raises(RuntimeError, match="state"):
                performer.favor_attention(
                    q, k, v, other, function, scale=scale, initial_state=state
                )
        with pytest.raises(RuntimeError, match="state"):
            performer.favor_attention(q, k, v, W, "relu", initial_state=state)

    def test_must_be_elementwise(self):
        q, k, v, W = inputs("relu")
        with pytest.raises(ValueError, match=r"elementwise, got shape \[1, 2, 4, 6\]"):
            performer.favor_attention(q, k, v, W, lambda u: torch.cat([u, -u], -1))


def test_rows_beyond_the_range_of_the_scales_are_nan_not_zero():
    W = performer.draw_projection(64, 64)
    q, k, v = (torch.randn(1, 1, 8, 64, dtype=torch.float64) for _ in range(3))
    for causal in (False, True):
        inside = performer.favor_attention(q, 2000 * k, v, W, scale=1.0, causal=causal)
        beyond = performer.favor_attention(q, 9000 * k, v, W, scale=1.0, causal=causal)
        assert inside.isfinite().all() and inside.abs().amax() > 0.1
        assert beyond.isnan().all()


def test_features_round_once():
    W = performer.draw_projection(32, 16)
    x = (2 * torch.randn(10, 16)).bfloat16()
    exact = performer.features(x.double(), W)
    assert ((performer.features(x, W).double() - exact) / exact).abs().max() < 2**-8


def test_expanded_queries_keep_the_batch_outermost():
    q = torch.randn(1, 2, 20, 16).expand(3, 2, 20, 16)
    out = performer.favor_attention(q, q, q, performer.draw_projection(32, 16))
    assert out.is_contiguous()


def test_maps_keep_float32_under_autocast():
    q = torch.randn(1, 2, 12, 16)
    with torch.autocast("cpu", torch.bfloat16):
        assert performer.exact_attention_map(q, q).dtype == torch.float32
        estimate = performer.attention_map(q, q, performer.draw_projection(32, 16))
    assert estimate.dtype == torch.float32
