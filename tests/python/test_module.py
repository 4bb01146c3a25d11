"""FavorAttention: masks, redraw schedule, state dict, precision, streaming."""

import copy

import pytest
import torch
from torch import nn

import performer
from performer import FavorAttention

X = (2, 7, 8)  # [B, L, E]


def layer_and_input(**options):
    layer = FavorAttention(8, 2, **{"num_features": 6} | options)
    return layer, torch.randn(*X)


@pytest.mark.parametrize("causal", [False, True])
def test_is_the_operator_between_linear_maps(causal):
    layer, x = layer_and_input(causal=causal, num_kv_heads=1, seed=3, layer=5)

    def heads(y):
        return y.unflatten(-1, (-1, 4)).transpose(1, 2)

    W = performer.draw_projection(6, 4, heads=1, seed=3, layer=5)
    q, k, v = heads(layer.q_proj(x)), heads(layer.k_proj(x)), heads(layer.v_proj(x))
    assert k.shape == (2, 1, 7, 4)
    out = performer.favor_attention(q, k, v, W, causal=causal)
    torch.testing.assert_close(layer(x), layer.out_proj(out.transpose(1, 2).flatten(2)))


def test_error_against_multihead_attention_falls_as_one_over_the_features():
    """Same weights, same padding mask: what is left is the variance of the estimate, so the mean
    square error falls 16-fold with 16 times the features. A wrong layout or polarity stays.

    The law needs small norms, here |x + y|^2 < 1.2; inputs of std 1 reach 18, where single rare
    features rule the estimate and the error falls only by half for 4 times the features.
    """
    exact = nn.MultiheadAttention(16, 2, batch_first=True)
    x = 0.25 * torch.randn(4, 9, 16)
    padding = torch.arange(9) >= torch.tensor([[9], [4], [1], [6]])
    want, _ = exact(x, x, x, key_padding_mask=padding)

    def mean_square_error(features):
        errors = []
        for seed in range(8):
            layer = FavorAttention(16, 2, features, seed=seed)
            parts = (layer.q_proj, layer.k_proj, layer.v_proj)
            with torch.no_grad():
                for part, weight in zip(parts, exact.in_proj_weight.chunk(3), strict=True):
                    part.weight.copy_(weight)
                for part, bias in zip(parts, exact.in_proj_bias.chunk(3), strict=True):
                    part.bias.copy_(bias)
            layer.out_proj.load_state_dict(exact.out_proj.state_dict())
            errors.append((layer(x, key_padding_mask=padding) - want).square().mean())
        return torch.stack(errors).mean().item()

    assert 16 / 2 < mean_square_error(64) / mean_square_error(1024) < 16 * 2


def test_masks_have_opposite_polarity_and_exclude_each_other():
    layer, x = layer_and_input()
    padding = torch.zeros(2, 7, dtype=torch.bool)
    padding[1, 4:] = True
    masked = layer(x, key_padding_mask=padding)
    assert torch.equal(masked, layer(x, key_mask=~padding))
    torch.testing.assert_close(masked[1], layer(x, x[:, :4])[1])
    with pytest.raises(ValueError, match="got both"):
        layer(x, key_mask=~padding, key_padding_mask=padding)
    with pytest.raises(ValueError, match="floating with 0 and -inf alone, got .*float32 with 1"):
        layer(x, key_padding_mask=padding.float())
    with pytest.raises(ValueError, match="must be bool .*, got torch.int64"):
        layer(x, key_padding_mask=padding.long())


def test_cross_attention():
    layer, x = layer_and_input()
    key, value = torch.randn(2, 11, 8), torch.randn(2, 11, 8)
    assert layer(x, key, value).shape == X
    assert torch.equal(layer(x, key), layer(x, key, key))
    assert not torch.equal(layer(x, key), layer(x, key, value))


@pytest.mark.parametrize(
    "feature_map", ["positive", "relu", torch.relu], ids=["positive", "relu", "callable"]
)
def test_steps_equal_the_batch(feature_map):
    layer, x = layer_and_input(causal=True, feature_map=feature_map)
    out = layer(x)
    head, state = layer(x[:, :4], return_state=True)
    outs = [head]
    for t in range(4, 7):
        step, state = layer.step(x[:, t : t + 1], state)
        outs.append(step)
    torch.testing.assert_close(torch.cat(outs, 1), out)
    tail = layer(x[:, 4:], initial_state=layer(x[:, :4], return_state=True)[1])
    torch.testing.assert_close(tail, out[:, 4:])


def test_redraws_every_interval_of_training_calls_only():
    layer, x = layer_and_input(redraw_interval=3, seed=4, layer=2)
    drawn = [performer.draw_projection(6, 4, heads=2, seed=4, layer=2, draw=n) for n in range(4)]
    used = []
    for _ in range(8):
        layer.train()
        layer(x)
        used.append(next(n for n, W in enumerate(drawn) if torch.equal(W, layer.projection)))
        layer.eval()
        layer(x)
    assert used == [0, 0, 0, 1, 1, 1, 2, 2]
    assert (int(layer.draw), int(layer.calls)) == (2, 8)
    layer.redraw()
    assert torch.equal(layer.projection, drawn[3])


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("rounding", ["bf16", "none"])
def test_redraws_keep_to_the_rounding(rounding, compiled):
    layer, x = layer_and_input(redraw_interval=1, seed=4, rounding=rounding)
    call = torch.compile(layer, fullgraph=True, backend="aot_eager") if compiled else layer
    for draw in range(3):
        call(x)
        want = performer.draw_projection(6, 4, heads=2, seed=4, draw=draw, rounding=rounding)
        assert torch.equal(layer.projection, want)
        assert torch.equal(want, want.bfloat16().float()) == (rounding == "bf16")
    layer.reset_parameters()
    want = performer.draw_projection(6, 4, heads=2, seed=4, rounding=rounding)
    assert torch.equal(layer.projection, want)


def test_a_loaded_projection_stays_as_it_was_saved():
    """Modules of before the option have float32 projections; redraws follow the option."""
    older, x = layer_and_input(rounding="none", causal=True)
    layer, _ = layer_and_input(causal=True)
    layer.load_state_dict(older.state_dict())
    assert torch.equal(layer.projection, older.projection)
    assert torch.equal(layer(x), older(x))
    layer.redraw()
    assert torch.equal(layer.projection, performer.draw_projection(6, 4, heads=2, draw=1))
    pickled = copy.deepcopy(older)
    del pickled.rounding  # what a whole pickled module of then lacks
    pickled.redraw()
    older.redraw()
    assert torch.equal(pickled.projection, older.projection)
    assert "rounding='none'" in repr(pickled)


def test_never_redraws_without_an_interval():
    layer, x = layer_and_input()
    W = layer.projection
    for _ in range(3):
        layer(x)
    assert layer.projection is W and int(layer.calls) == 0


def test_a_redraw_leaves_graphs_that_await_backward_alone():
    layer, x = layer_and_input(redraw_interval=1)
    x.requires_grad_()
    first = layer(x)
    (want,) = torch.autograd.grad(first.sum(), x, retain_graph=True)
    layer(x)
    assert int(layer.draw) == 1
    (after,) = torch.autograd.grad(first.sum(), x)
    assert torch.equal(after, want)


def test_a_state_of_another_draw_is_refused():
    layer, x = layer_and_input(causal=True)
    _, state = layer(x, return_state=True)
    layer.redraw()
    with pytest.raises(RuntimeError, match="state"):
        layer.step(x[:, :1], state)


def test_state_dict_resumes_the_schedule():
    layer, x = layer_and_input(redraw_interval=2)
    for _ in range(3):
        layer(x)
    other = FavorAttention(8, 2, num_features=6, redraw_interval=2)
    other.load_state_dict(layer.state_dict())
    for _ in range(4):
        assert torch.equal(layer(x), other(x))
    assert int(other.draw) == int(layer.draw) == 3
    assert set(layer.state_dict()) >= {"projection", "draw", "calls"}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_projection_stays_float32_in_low_precision(dtype):
    layer, x = layer_and_input()
    W = layer.projection.clone()
    model = nn.Sequential(layer).to(dtype)
    assert layer.projection.dtype == torch.float32 and torch.equal(layer.projection, W)
    assert layer.q_proj.weight.dtype == dtype
    assert model(x.to(dtype)).dtype == dtype
    layer.float()
    assert torch.equal(layer.projection, W)
    assert layer.double().projection.dtype == torch.float64
    assert FavorAttention(8, 2, 6, dtype=dtype).projection.dtype == torch.float32


def test_built_on_meta_then_materialised_equals_built_at_once():
    built = FavorAttention(8, 2, 6, device="meta")
    assert built.projection.is_meta
    built.to_empty(device="cpu")
    built.reset_parameters()
    assert torch.equal(built.projection, FavorAttention(8, 2, 6).projection)
    assert (int(built.draw), int(built.calls)) == (0, 0)


def test_deepcopy_is_independent():
    layer, x = layer_and_input(redraw_interval=1)
    twin = copy.deepcopy(layer)
    layer(x)
    layer(x)
    assert (int(twin.draw), int(layer.draw)) == (0, 1)
    assert not torch.equal(twin.projection, layer.projection)


def test_projection_shapes():
    assert layer_and_input()[0].projection.shape == (2, 6, 4)
    assert layer_and_input(num_kv_heads=1)[0].projection.shape == (1, 6, 4)
    assert layer_and_input(shared_projection=True)[0].projection.shape == (6, 4)
    layer, x = layer_and_input(num_features=None, feature_map="relu", redraw_interval=1)
    assert layer.projection is None and layer(x).shape == X
    with pytest.raises(ValueError, match="no projection"):
        layer.redraw()


def test_options_reach_the_operator():
    x = torch.randn(*X)
    plain = FavorAttention(8, 2, 6, feature_map="relu")
    for option in ({"scale": 0.1}, {"eps": 0.5}, {"renormalize": False}, {"kind": "iid"}):
        other = FavorAttention(8, 2, 6, feature_map="relu", **option)
        kept = {n: t for n, t in plain.state_dict().items() if n != "projection"}
        other.load_state_dict(kept, strict=False)
        assert not torch.allclose(other(x), plain(x)), option


def test_training_lowers_the_loss_and_reaches_every_parameter():
    layer, x = layer_and_input(causal=True, redraw_interval=5)
    target = torch.randn(*X)
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        loss = (layer(x) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    # The bias of the keys cancels in the softmax but not in its estimate, so it has a gradient.
    assert all(parameter.grad is not None for parameter in layer.parameters())
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((8, 3), "embed_dim must be a multiple of num_heads, got 8 and 3"),
        ((8, 4, 6, False, "positive", "orthogonal", "chi", 3), "must divide num_heads, got 3"),
    ],
)
def test_bad_sizes(arguments, message):
    with pytest.raises(ValueError, match=message):
        FavorAttention(*arguments)


def test_bad_calls():
    with pytest.raises(ValueError, match="redraw_interval must be at least 1, got 0"):
        FavorAttention(8, 2, redraw_interval=0)
    layer, x = layer_and_input()
    with pytest.raises(ValueError, match="layer must be causal"):
        layer.step(x[:, :1])
    with pytest.raises(ValueError, match=r"query must be \[batch, length, 8\], got \[7, 8\]"):
        layer(x[0])


def test_the_projection_follows_the_default_device():
    with torch.device("meta"):
        layer = performer.FavorAttention(32, 2, 32)
    assert layer.projection.device.type == "meta"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"feature_map": "posative"}, "feature_map must be one of"),
        ({"num_features": None}, "needs a projection W"),
        ({"eps": 1e-3}, "eps is for generalised maps"),
    ],
)
def test_impossible_options_are_refused_at_once(options, message):
    with pytest.raises(RuntimeError, match=message):
        FavorAttention(32, 2, **options)
