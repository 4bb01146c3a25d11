"""Derivatives against central differences in float64."""

import pytest
import torch
from op_cases import ALL_MAPS, EXPONENTIAL_MAPS, GENERALISED_MAPS, SOFTMAX_MAPS
from small_inputs import inputs, options_of

import performer

TOLERANCE = {"eps": 1e-6, "atol": 1e-7, "rtol": 1e-5}


def check(function, *tensors, **settings):
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    assert torch.autograd.gradcheck(function, leaves, **TOLERANCE, **settings)


@pytest.mark.parametrize("renormalize", [True, False], ids=["ratio", "numerator"])
@pytest.mark.parametrize("masked", [False, True], ids=["all_keys", "masked"])
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("feature_map", ALL_MAPS)
def test_gradients_of_q_k_v_and_state(feature_map, causal, masked, renormalize):
    q, k, v, W = inputs(feature_map)
    # With causal, the first row has no key at all.
    key_mask = torch.tensor([[False, True, False, True]]) if masked else None

    def attend(q, k, v):
        out, state = performer.favor_attention(
            q,
            k,
            v,
            W,
            feature_map,
            causal=causal,
            key_mask=key_mask,
            renormalize=renormalize,
            return_state=True,
        )
        return out, state.kv, state.normalizer

    # Every entry of the Jacobian for a few maps, random directions of it for all.
    entries = feature_map in ("positive", "trigonometric", "relu") and renormalize and not masked
    check(attend, q, k, v, fast_mode=not entries)


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("feature_map", ALL_MAPS)
def test_gradients_of_initial_state(feature_map, causal):
    q, k, v, W = inputs(feature_map)
    _, prefix = performer.favor_attention(
        *inputs(feature_map, seed=1)[:3], W, feature_map, return_state=True
    )

    def attend(q, k, v, kv, normalizer):
        start = prefix._replace(kv=kv, normalizer=normalizer)
        out, state = performer.favor_attention(
            q, k, v, W, feature_map, causal=causal, initial_state=start, return_state=True
        )
        return out, state.kv, state.normalizer

    check(attend, q, k, v, prefix.kv, prefix.normalizer, fast_mode=True)


@pytest.mark.parametrize("renormalize", [True, False], ids=["ratio", "numerator"])
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("feature_map", ALL_MAPS)
def test_gradients_of_projections_biases_and_key_bias(feature_map, causal, renormalize):
    q, k, v, W = inputs(feature_map)
    options = options_of(feature_map)
    names = list(options)

    def attend(q, k, v, W, *values):
        out, state = performer.favor_attention(
            q,
            k,
            v,
            W,
            feature_map,
            causal=causal,
            renormalize=renormalize,
            return_state=True,
            **dict(zip(names, values, strict=True)),
        )
        return out, state.kv, state.normalizer

    check(attend, q, k, v, W, *options.values(), fast_mode=True)


@pytest.mark.parametrize("renormalize", [True, False], ids=["ratio", "numerator"])
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("feature_map", SOFTMAX_MAPS)
def test_gradients_with_a_near_field(feature_map, causal, renormalize):
    """Two tokens a block of seven, so that some keys are far; of the state's field too."""
    q, k, v, W = inputs(feature_map, L=7)
    generator = torch.Generator().manual_seed(3)
    names = ["key_bias", *(["query_bias"] if feature_map == "loglinear" else [])]
    biases = [torch.randn(1, 2, 7, generator=generator, dtype=torch.float64) for _ in names]

    def attend(q, k, v, W, *biases):
        out, state = performer.favor_attention(
            q,
            k,
            v,
            W,
            feature_map,
            causal=causal,
            renormalize=renormalize,
            near=2,
            return_state=True,
            **dict(zip(names, biases, strict=True)),
        )
        return out, state.kv, state.normalizer, state.near_keys, state.near_values

    check(attend, q, k, v, W, *biases, fast_mode=True)


def test_gradients_of_an_initial_near_field():
    q, k, v, W = inputs("positive")
    options = {"causal": True, "near": 2, "return_state": True}
    _, prefix = performer.favor_attention(*inputs("positive", L=7, seed=1)[:3], W, **options)
    names = ("kv", "normalizer", "near_keys", "near_values")

    def attend(q, k, v, *parts):
        start = prefix._replace(**dict(zip(names, parts, strict=True)))
        out, state = performer.favor_attention(q, k, v, W, initial_state=start, **options)
        return out, state.kv, state.normalizer, state.near_keys, state.near_values

    check(attend, q, k, v, *(getattr(prefix, name) for name in names), fast_mode=True)


@pytest.mark.parametrize("feature_map", GENERALISED_MAPS)
def test_gradients_without_projection(feature_map):
    q, k, v, _ = inputs(feature_map)

    def attend(q, k, v):
        return performer.favor_attention(q, k, v, None, feature_map, causal=True)

    check(attend, q, k, v, fast_mode=True)


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("feature_map", ["positive", "relu", "trigonometric"])
def test_gradients_of_packed_sequences(feature_map, causal):
    q, k, v, W = inputs(feature_map, L=6)
    bounds = torch.tensor([0, 2, 2, 6])

    def attend(q, k, v, W):
        out, state = performer.favor_attention(
            q,
            k,
            v,
            W,
            feature_map,
            causal=causal,
            cu_seqlens_q=bounds,
            cu_seqlens_k=bounds,
            return_state=True,
        )
        return out, state.kv, state.normalizer

    check(attend, q, k, v, W, fast_mode=True)


@pytest.mark.parametrize("masked", [False, True], ids=["all_keys", "masked"])
@pytest.mark.parametrize("feature_map", ["positive", "hyperbolic", "trigonometric", "relu", "elu1"])
def test_gradients_across_chunks(feature_map, masked):
    """Longer than two chunks of any likely size, so that states are carried and recomputed."""
    q, k, v, W = inputs(feature_map, L=150)
    key_mask = torch.rand(1, 150) < 0.7 if masked else None

    def attend(q, k, v, W):
        return performer.favor_attention(q, k, v, W, feature_map, causal=True, key_mask=key_mask)

    check(attend, q, k, v, W, fast_mode=True)


@pytest.mark.parametrize("feature_map", ALL_MAPS)
def test_gradients_of_features(feature_map):
    q, _, _, W = inputs(feature_map)
    tensors = [q, W[0]]
    if feature_map in EXPONENTIAL_MAPS:
        tensors.append(options_of(feature_map)["bias_k"])
    check(lambda x, W, bias=None: performer.features(x, W, feature_map, bias), *tensors)


def test_gradients_of_merge_states():
    states = []
    for seed in (0, 1):
        q, k, v, W = inputs("positive", seed=seed)
        states.append(performer.favor_attention(q, 5 * k, v, W, return_state=True)[1])
    first, second = states
    assert not torch.equal(first.log2_scale, second.log2_scale)

    def merge(kv, normalizer, later_kv, later_normalizer):
        merged = performer.merge_states(
            first._replace(kv=kv, normalizer=normalizer, fingerprint=None),
            second._replace(kv=later_kv, normalizer=later_normalizer, fingerprint=None),
        )
        return merged.kv, merged.normalizer

    check(merge, first.kv, first.normalizer, second.kv, second.normalizer)


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_gradients_of_a_callable_map(causal):
    q, k, v, W = inputs("square")

    def softplus(u):
        return torch.nn.functional.softplus(u)

    def attend(q, k, v, W):
        return performer.favor_attention(q, k, v, W, softplus, causal=causal)

    check(attend, q, k, v, W, fast_mode=True)


def test_row_without_keys_has_finite_gradients_even_beside_nan():
    q, k, v, W = (tensor.requires_grad_() for tensor in inputs("positive"))
    key_mask = torch.zeros(1, 4, dtype=torch.bool)
    poisoned = torch.full_like(k, float("nan"))
    out = performer.favor_attention(q, k + poisoned, v, W, key_mask=key_mask)
    assert torch.equal(out, torch.zeros_like(out))
    out.sum().backward()
    for tensor in (q, k, v, W):
        assert torch.equal(tensor.grad, torch.zeros_like(tensor))
