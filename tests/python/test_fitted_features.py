"""Fitted features: identities folded into parameters, and what the fits minimise."""

from types import SimpleNamespace

import pytest
import torch

import performer
from performer.transformers import _fit as fits
from performer.transformers import _objectives as objectives
from performer.transformers._fitted import FeatureParameters, FittedFeatures
from performer.transformers._identities import (
    Samples,
    best_scaling,
    centre_and_balance,
    fold,
    for_heads,
    no_identities,
)
from performer.transformers._patch import Place
from performer.transformers._work import Layer, Model, Recorder

HEADS, KEY_HEADS, DIM = 4, 2, 6


def samples(count=500, spread=0.5):
    """Far from the origin, and wider for queries in some directions, for keys in others."""
    widths = torch.linspace(0.2, 1.8, DIM)
    x = torch.randn(HEADS, count, DIM) * widths + 0.8
    y = torch.randn(KEY_HEADS, count, DIM) * widths.flip(0) - 0.6
    return Samples(spread * x, spread * y)


def parameters(features=32, near=0, seed=0):
    found = samples()
    identities = centre_and_balance(found)
    folded = fold(identities, best_scaling(found, identities), features, seed, layer=0)
    return for_heads(folded, HEADS, near)


def test_balanced_queries_and_keys_have_one_covariance():
    found = samples()
    a, b, A = centre_and_balance(found)
    x = (found.grouped().double() - a[:, None]) @ A
    y = (found.y.double() - b[:, None]) @ torch.linalg.inv(A)
    of_x, of_y = (side.mT @ side / side.shape[1] for side in (x, y))
    torch.testing.assert_close(of_x, of_y, rtol=5e-3, atol=5e-3)
    plain = found.x.square().sum(-1).mean() + found.y.square().sum(-1).mean()
    assert x.square().sum(-1).mean() + y.square().sum(-1).mean() < 0.5 * plain


def test_folded_features_are_those_of_the_identities():
    """phi_q(x) = phi(A (x - a)) exp(x.b - a.b), phi_k(y) = phi(A^-1 (y - b)) exp(a.y)."""
    found, M = samples(), 16
    identities = centre_and_balance(found)
    scaling = best_scaling(found, identities)
    folded = fold(identities, scaling, M, seed=3, layer=2)
    W = performer.draw_projection(M, DIM, KEY_HEADS, seed=3, layer=2, rounding="none")
    W, bias = performer.oprf(W.double(), scaling, "none")
    assert (scaling < -0.01).all()  # far enough from plain features to be seen
    for head in range(KEY_HEADS):
        a, b, A = (part[head] for part in identities)
        x, y = found.grouped()[head, :9].double(), found.y[head, :9].double()
        inverse = torch.linalg.inv(A)
        root = M**0.5  # the mean over the features is not part of the parameters
        phi_q = root * performer.features((x - a) @ A, W[head], "positive", bias[head])
        phi_k = root * performer.features((y - b) @ inverse, W[head], "positive", bias[head])
        one = FeatureParameters(*(part[head : head + 1].double() for part in folded))
        log_q = x @ one.query_weight[0].mT + one.query_bias[0] + one.query_term(x[None])[0, :, None]
        log_k = y @ one.key_weight[0].mT + one.key_bias[0] + one.key_term(y[None])[0, :, None]
        torch.testing.assert_close(
            log_q.exp(), phi_q * (x @ b - a @ b).exp()[:, None], rtol=1e-5, atol=0
        )
        torch.testing.assert_close(log_k.exp(), phi_k * (y @ a).exp()[:, None], rtol=1e-5, atol=0)


def estimate(found, folded):
    """The estimates of exp(x.y) of all pairs, over what they should be."""
    log = objectives.log_weights(found.x[None], found.y[None], folded)
    return (log - objectives.logits(found.x[None], found.y[None])).exp()


def test_identities_estimate_the_same_numbers_with_less_variance():
    found = samples(200)
    with_them, without = [], []
    for seed in range(6):
        identities = centre_and_balance(found)
        for made, kept, scaling in (
            (identities, with_them, best_scaling(found, identities)),
            (no_identities(found), without, torch.zeros(KEY_HEADS, dtype=torch.float64)),
        ):
            folded = fold(made, scaling, 256, seed, layer=0)
            kept.append(estimate(found, for_heads(folded, HEADS, near=1)))
    error, plain = (torch.stack(kept) - 1 for kept in (with_them, without))
    assert error.mean().abs() < 0.02
    assert error.square().mean() < 0.2 * plain.square().mean()


def test_no_identities_are_plain_features():
    found = samples(20)
    folded = fold(no_identities(found), torch.zeros(KEY_HEADS).double(), 16, seed=1, layer=4)
    W = performer.draw_projection(16, DIM, KEY_HEADS, seed=1, layer=4, rounding="none")
    phi = performer.features(found.y[1], W[1], "positive")
    log = found.y[1] @ folded.key_weight[1].mT + folded.key_bias[1]
    log = log + folded.key_term(found.y)[1, :, None]
    torch.testing.assert_close(log.exp(), 4 * phi, rtol=1e-4, atol=0)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("near", [0, 4])
def test_the_operator_computes_what_the_fits_see(near, causal, left):
    features, scale = FittedFeatures(parameters(near=near), near).double(), 0.7
    q, k = torch.randn(2, HEADS, 23, DIM).double(), torch.randn(2, KEY_HEADS, 23, DIM).double()
    v = torch.randn(2, KEY_HEADS, 23, 5).double()
    real = torch.ones(2, 23, dtype=torch.bool)
    real[1, slice(0, 6) if left else slice(17, 23)] = False
    with torch.no_grad():
        seen = performer.favor_attention(
            q, k, v, causal=causal, key_mask=real, **features.arguments(q, k, scale)
        )
        x, y = q * scale**0.5, k * scale**0.5
        log = objectives.log_weights(x, y, features.values())
        if near:
            pairs = objectives.near_pairs(real, near)
            log = torch.where(pairs, objectives.logits(x, y), log)
        log = log.masked_fill(~objectives.visible(real, causal), -1e300)
        expected = log.softmax(-1) @ v.repeat_interleave(2, 1)
    rows = real[:, None].expand(-1, HEADS, -1)
    torch.testing.assert_close(seen[rows], expected[rows], rtol=1e-6, atol=1e-6)


def test_parameters_stay_float32():
    features = FittedFeatures(parameters(near=4), near=4)
    before = [value.clone() for value in features.parameters()]
    features.bfloat16().half()
    after = list(features.parameters())
    assert len(after) == 6 and all(map(torch.equal, before, after))
    assert all(value.dtype == torch.float32 for value in after)


def test_autocast_leaves_the_quadratic_terms_alone():
    features, q, k = FittedFeatures(parameters(near=4), near=4), *torch.randn(2, 1, HEADS, 9, DIM)
    k = k[:, :KEY_HEADS]
    plain = features.arguments(q, k, 0.5)
    with torch.autocast("cpu", torch.bfloat16):
        lowered = features.arguments(q, k, 0.5)
    assert torch.equal(lowered["key_bias"], plain["key_bias"])
    assert torch.equal(lowered["query_bias"], plain["query_bias"])


def test_divergence_of_attention():
    exact, other = torch.randn(2, 2, HEADS, 7, 7).unbind(0)
    real = torch.tensor([[True] * 7, [True] * 5 + [False] * 2])
    pairs = objectives.visible(real, causal=True)
    found = objectives.attention_divergence(exact, other, pairs, real)
    total = torch.zeros(HEADS)
    for b, length in ((0, 7), (1, 5)):
        for i in range(length):
            p = exact[b, :, i, : i + 1].softmax(-1)
            total += (p * (p.log() - other[b, :, i, : i + 1].log_softmax(-1))).sum(-1)
    torch.testing.assert_close(found, total / 12)
    assert objectives.attention_divergence(exact, exact, pairs, real).abs().max() < 1e-6
    shifted = other + torch.randn(2, HEADS, 7, 1)  # a number for each query cancels
    torch.testing.assert_close(
        objectives.attention_divergence(exact, shifted, pairs, real), found, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("near", [0, 3])
@pytest.mark.parametrize("causal", [False, True])
def test_the_loss_of_a_layer_is_that_of_the_attention_it_will_have(near, causal):
    features, recorder = FittedFeatures(parameters(near=near), near), Recorder()
    x, y = torch.randn(2, HEADS, 20, DIM), torch.randn(2, KEY_HEADS, 20, DIM)
    recorder.see(x / 2, y / 2, 4.0)
    real = torch.ones(2, 20, dtype=torch.bool)
    real[1, 15:] = False
    rows = torch.tensor([3, 19, 8, 11])
    layer = Layer(Place("", torch.nn.Identity(), 0), recorder, causal)
    found = fits.attention_loss(layer, features, real, rows)
    seen = {"rows": rows, "causal": causal, "key_mask": real}
    exact = performer.exact_attention_map(x, y, scale=1.0, **seen)
    kept = performer.attention_map(x, y, **seen, **features.arguments(x, y, 1.0))
    pairs = torch.where(exact > 0, exact * (exact.log() - kept.log()), 0).sum(-1)
    expected = pairs.masked_fill(~real[:, None, rows], 0).sum((0, 2)) / real[:, rows].sum()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_the_loss_of_a_model(causal):
    real = torch.tensor([[True, True, False]])
    hidden, target = torch.randn(2, 3, 1, 3, 4).unbind(0)
    one, two = torch.randn(2, 1, 3, 5).unbind(0)
    seen = SimpleNamespace(hidden_states=tuple(hidden), logits=one)
    exact = SimpleNamespace(hidden_states=tuple(target), logits=two)
    layer = Layer(Place("", torch.nn.Identity(), 0), Recorder(), causal)
    loss = fits.model_loss(Model(None, [layer], iter(())), exact, seen, real)
    expected = objectives.hidden_error(hidden[1:], target[1:], real)  # not the embedding
    if causal:
        expected = expected + objectives.logits_divergence(one, two, real)
    else:
        expected = expected + 4 * objectives.embedding_error(hidden[-1], target[-1], real)
    torch.testing.assert_close(loss, expected)


def test_errors_of_hidden_states_count_real_tokens_alone():
    real = torch.tensor([[True, True, False]])
    exact = torch.tensor([[[3.0, 0.0], [0.0, 4.0], [9.0, 9.0]]])
    seen = exact + torch.tensor([[[1.0, 0.0], [0.0, 2.0], [7.0, 7.0]]])
    error = objectives.hidden_error([seen, exact], [exact, exact], real)
    assert float(error) == pytest.approx(5 / 25)
    assert objectives.embedding_of(exact, real).tolist() == [[1.5, 2.0]]
    turned = torch.tensor([[[0.0, 8.0], [0.0, 0.0], [1.0, 1.0]]])
    assert float(objectives.embedding_error(turned, exact, real)) == pytest.approx(1 - 0.8)


def test_divergence_of_logits():
    exact, seen = torch.randn(2, 1, 3, 5).unbind(0)
    real = torch.tensor([[True, False, True]])
    kept = [0, 2]
    expected = torch.nn.functional.kl_div(
        seen[0, kept].log_softmax(-1), exact[0, kept].softmax(-1), reduction="batchmean"
    )
    torch.testing.assert_close(objectives.logits_divergence(seen, exact, real), expected)


def test_losses_have_gradients_where_features_vanish():
    """Keys so far from a query that no feature has a number of float32 for them."""
    values = FittedFeatures(parameters(), near=0)
    x, y = 30 * torch.randn(1, HEADS, 9, DIM), 30 * torch.randn(1, KEY_HEADS, 9, DIM)
    real = torch.ones(1, 9, dtype=torch.bool)
    log = objectives.log_weights(x, y, values.values())
    pairs = objectives.visible(real, causal=False)
    objectives.attention_divergence(objectives.logits(x, y), log, pairs, real).sum().backward()
    assert all(value.grad.isfinite().all() for value in values.parameters())
