"""The near field in modules and drop-in functions, and what they refuse beside it."""

import copy
import types

import pytest
import torch
from op_cases import GENERALISED_MAPS
from small_inputs import inputs
from torch import nn

import performer
from performer import FavorAttention, FavorSDPA, MultiheadAttention

X = (2, 9, 8)
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def exact_layer(layer, x, causal):
    """The layer's own maps around exact attention."""
    q, k, v = layer._heads(x, x, x, 0)
    return layer._merge(performer.exact_attention(q, k, v, causal=causal))


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_a_layer_passes_its_near_field_on(causal):
    layer = FavorAttention(8, 2, 6, causal=causal, near=2)
    x = torch.randn(*X)
    q, k, v = layer._heads(x, x, x, 0)
    out = performer.favor_attention(q, k, v, layer.projection, causal=causal, near=2)
    torch.testing.assert_close(layer(x), layer._merge(out), **CLOSE)
    wide = FavorAttention(8, 2, 6, causal=causal, near=9)  # one block holds all
    wide.load_state_dict(layer.state_dict())
    torch.testing.assert_close(wide(x), exact_layer(wide, x, causal), **CLOSE)


def test_a_layer_steps_as_it_reads():
    layer = FavorAttention(8, 2, 6, causal=True, near=2, rotary=True)
    x = torch.randn(*X)
    _, state = layer(x[:, :5], return_state=True)
    outs = []
    for t in range(5, 9):
        out, state = layer.step(x[:, t : t + 1], state, position=t)
        outs.append(out)
    torch.testing.assert_close(torch.cat(outs, 1), layer(x)[:, 5:], **CLOSE)


def test_local_attention_alone_has_nothing_to_redraw():
    layer = FavorAttention(8, 2, 0, causal=True, near=5, redraw_interval=1)
    x = torch.randn(*X)
    assert layer.projection.shape == (2, 0, 4)
    for _ in range(3):
        torch.testing.assert_close(layer(x), exact_layer(layer, x, True), **CLOSE)
    assert (int(layer.draw), int(layer.calls)) == (0, 0)
    alone = FavorAttention(8, 2, 0, near=5, shared_projection=True)
    assert alone.projection.shape == (0, 4)
    copy.deepcopy(layer).load_state_dict(layer.state_dict())


def test_state_dicts_are_those_of_a_layer_without():
    with_near, without = FavorAttention(8, 2, 6, near=4), FavorAttention(8, 2, 6)
    shapes = [{n: t.shape for n, t in m.state_dict().items()} for m in (with_near, without)]
    assert shapes[0] == shapes[1]
    with_near.load_state_dict(without.state_dict())


def test_a_layer_pickled_before_the_option_has_none():
    layer = FavorAttention(8, 2, 6)
    want = layer(torch.ones(1, 3, 8))
    del layer.__dict__["near"]
    assert torch.equal(layer(torch.ones(1, 3, 8)), want)


def test_weights_are_those_that_the_values_meet():
    layer = FavorAttention(8, 2, 6, causal=True, near=2, bias=False)
    x = torch.randn(*X)
    out, weights = layer(x, need_weights=True, average_attn_weights=False)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 9))
    v = layer._heads(x, x, x, 0)[2]
    torch.testing.assert_close(layer._merge(weights @ v), out, **CLOSE)


def test_it_reaches_multihead_attention_and_what_is_made_of_it():
    theirs = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(*X)
    ours = MultiheadAttention.from_multihead(theirs, 6, near=9)
    torch.testing.assert_close(ours(x, x, x)[0], theirs(x, x, x)[0], **CLOSE)
    causal = nn.Transformer.generate_square_subsequent_mask(9)
    want, _ = theirs(x, x, x, attn_mask=causal, need_weights=False)
    torch.testing.assert_close(ours(x, x, x, attn_mask=causal)[0], want, **CLOSE)
    assert "near=9" in repr(ours)


def test_padding_begins_no_block():
    """A padded row equals the row alone: blocks begin at its first real token."""
    layer = FavorAttention(8, 2, 6, causal=True, near=3)
    row = torch.randn(1, 7, 8)
    padded = torch.cat([torch.randn(1, 2, 8), row], 1)
    padding = torch.tensor([[True, True] + [False] * 7])
    got = layer(padded, key_padding_mask=padding)[:, 2:]
    torch.testing.assert_close(got, layer(row), **CLOSE)


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_drop_in_functions(causal):
    q, k, v, _ = inputs("positive", H=2, Hkv=2, L=8, D=4, Dv=4, dtype=torch.float32)
    exact = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    local = performer.scaled_dot_product_attention(
        q, k, v, is_causal=causal, near=8, num_features=0
    )
    torch.testing.assert_close(local, exact, **CLOSE)
    attend = FavorSDPA(4, 2, 16, near=2, causal=causal, layer=3)
    out = performer.scaled_dot_product_attention(
        q, k, v, is_causal=causal, near=2, num_features=16, layer=3
    )
    assert torch.equal(attend(q, k, v), out)
    assert not torch.allclose(out, FavorSDPA(4, 2, 16, causal=causal, layer=3)(q, k, v))
    assert "near=2" in repr(attend)


def make_sdpa(**options):
    x = torch.randn(1, 2, 4, 8)
    return performer.scaled_dot_product_attention(x, x, x, **options)


def make_layer(**options):
    return FavorAttention(16, 2, **options)


def make_attend(**options):
    return FavorSDPA(8, 2, **options)


@pytest.mark.parametrize("make", [make_layer, make_attend, make_sdpa])
class TestRefusals:
    def test_norms_that_underestimate(self, make):
        with pytest.raises(ValueError, match=r"near=4 .* norm='sqrt_d' underestimates .*0\.47"):
            make(near=4, norm="sqrt_d")
        make(near=4, norm="sqrt_d", num_features=0)  # nothing is estimated
        make(norm="sqrt_d")

    @pytest.mark.parametrize("feature_map", [*GENERALISED_MAPS, torch.exp])
    def test_maps_of_other_kernels(self, make, feature_map):
        name = "a Python function" if callable(feature_map) else f"'{feature_map}'"
        with pytest.raises(ValueError, match=f"near=4 needs a map .* got feature_map={name}"):
            make(near=4, feature_map=feature_map)

    def test_a_map_without_norm_terms(self, make):
        with pytest.raises(ValueError, match="near=4 .* loglinear has no norm terms"):
            make(near=4, feature_map="loglinear")

    def test_blocks_that_cannot_be(self, make):
        for near in (-1, 1 << 20):
            with pytest.raises(RuntimeError, match=f"near must be in 0 ... 4096.*got {near}"):
                make(near=near)

    def test_no_features_without_a_near_field(self, make):
        with pytest.raises(RuntimeError, match="at least one feature .* where near is 0"):
            make(num_features=0)


def test_a_python_function_is_refused_by_the_operator_too():
    q, k, v, W = inputs("relu")
    with pytest.raises(ValueError, match="near is for the softmax maps.*got near=2 with a Python"):
        performer.favor_attention(q, k, v, W, torch.relu, near=2)


def test_keys_of_other_tokens_are_refused():
    layer = FavorAttention(8, 2, 6, near=2)
    with pytest.raises(RuntimeError, match="near needs q and k of the same tokens"):
        layer(torch.randn(1, 4, 8), torch.randn(1, 5, 8))


def test_a_converted_layer_may_get_one():
    """A stand-in for performer-pytorch's FastAttention, which the conversion reads."""
    fast = types.SimpleNamespace(
        dim_heads=4,
        nb_features=16,
        projection_matrix=performer.draw_projection(16, 4),
        causal=True,
        kernel_fn=None,
        training=True,
    )
    attend = performer.from_performer_pytorch(fast, near=8)
    q, k, v, _ = inputs("positive", H=2, Hkv=2, L=8, D=4, Dv=4, dtype=torch.float32)
    exact = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(attend(q, k, v), exact, **CLOSE)
    fast.ortho_scaling = 1
    with pytest.raises(ValueError, match="norm='sqrt_d' underestimates"):
        performer.from_performer_pytorch(fast, near=8)
