"""Autocast, activation checkpointing, determinism, vmap, forward mode and double backward."""

import pytest
import torch
from small_inputs import inputs
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

import performer
from performer import FavorAttention


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


NEAR = pytest.mark.parametrize("near", [0, 2])


@pytest.mark.parametrize(
    ("feature_map", "near"),
    [("positive", 0), ("relu", 0), (torch.relu, 0), ("positive", 8)],
    ids=["positive", "relu", "callable", "near"],
)
def test_autocast_casts_q_k_v_only(feature_map, near):
    q, k, v, W = inputs("positive", L=33, dtype=torch.float32)
    options = {"feature_map": feature_map, "near": near}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, state = performer.favor_attention(q, k, v, W, return_state=True, **options)
    low = (tensor.bfloat16() for tensor in (q, k, v))
    want, want_state = performer.favor_attention(*low, W, return_state=True, **options)
    assert out.dtype == torch.bfloat16
    assert state.kv.dtype == torch.float32
    assert torch.equal(out, want)  # a rounded W would differ
    assert torch.equal(state.kv, want_state.kv)
    rounded = performer.favor_attention(
        *(tensor.bfloat16() for tensor in (q, k, v)), W.bfloat16().float(), **options
    )
    assert not torch.equal(out, rounded)


def test_autocast_gradients_arrive_in_the_inputs_dtype():
    tensors = [tensor.requires_grad_() for tensor in inputs("positive", dtype=torch.float32)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = performer.favor_attention(*tensors, causal=True)
    out.sum().backward()
    assert all(tensor.grad.dtype == torch.float32 for tensor in tensors)


def test_autocast_leaves_float64_alone():
    q, k, v, W = inputs("positive")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = performer.favor_attention(q, k, v, W)
    assert out.dtype == torch.float64


@NEAR
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_gives_the_same_gradients(reentrant, near):
    tensors = inputs("positive", B=2, L=70)
    results = []
    for wrap in (False, True):
        leaves = [tensor.clone().requires_grad_() for tensor in tensors]

        def attend(*args):
            return performer.favor_attention(*args, causal=True, near=near)

        out = checkpoint(attend, *leaves, use_reentrant=reentrant) if wrap else attend(*leaves)
        results.append(torch.autograd.grad(out.square().sum(), leaves) if not reentrant else None)
        if reentrant:
            out.square().sum().backward()
            results[-1] = [leaf.grad for leaf in leaves]
    for got, want in zip(*results, strict=True):
        assert torch.equal(got, want)


@NEAR
@pytest.mark.usefixtures("deterministic")
def test_deterministic_algorithms(near):
    def run():
        leaves = [t.requires_grad_() for t in inputs("positive", B=2, H=4, Hkv=2, L=300)]
        out, state = performer.favor_attention(*leaves, causal=True, near=near, return_state=True)
        return out, *torch.autograd.grad(out.square().sum() + state.kv.sum(), leaves)

    assert all(torch.equal(a, b) for a, b in zip(run(), run(), strict=True))


@NEAR
def test_double_backward_raises_clearly(near):
    q, k, v, W = inputs("positive")
    q.requires_grad_()
    out = performer.favor_attention(q, k, v, W, near=near)
    with pytest.raises(
        RuntimeError, match="derivative for performer::favor_attention_backward is not"
    ):
        (grad,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
        torch.autograd.grad(grad.sum(), q)


@NEAR
@pytest.mark.parametrize("needs_grad", [False, True])
def test_forward_mode_raises_and_drops_no_tangent(needs_grad, near):
    q, k, v, W = inputs("positive")
    q.requires_grad_(needs_grad)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(q, torch.randn_like(q))
        with pytest.raises(RuntimeError, match="forward|jvp"):
            performer.favor_attention(dual, k, v, W, near=near)


@NEAR
@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacfwd])
def test_function_transforms_of_gradients_raise_clearly(transform, near):
    q, k, v, W = inputs("positive")
    with pytest.raises(RuntimeError, match="functorch transforms"):
        transform(lambda q: performer.favor_attention(q, k, v, W, near=near).sum())(q)


@NEAR
def test_vmap_equals_a_loop(near):
    q, k, v, W = inputs("positive", B=3)
    batch = [torch.stack([tensor, 2 * tensor]) for tensor in (q, k, v)]

    def attend(q, k, v):
        return performer.favor_attention(q, k, v, W, causal=True, near=near)

    mapped = torch.vmap(attend)(*batch)
    loop = torch.stack([attend(*row) for row in zip(*batch, strict=True)])
    torch.testing.assert_close(mapped, loop)


def test_checkpointed_layer_does_not_redraw_in_recomputation():
    layer = FavorAttention(8, 2, 6, redraw_interval=1)
    x = torch.randn(2, 5, 8, requires_grad=True)
    for reentrant in (False, True):
        before = int(layer.calls)
        out = checkpoint(layer, x, use_reentrant=reentrant)
        used, draw = layer.projection, int(layer.draw)
        (want,) = torch.autograd.grad(plain(layer, x).sum(), x)
        x.grad = None
        out.sum().backward()
        torch.testing.assert_close(x.grad, want)
        assert layer.projection is used
        assert (int(layer.draw), int(layer.calls)) == (draw, before + 1)


def plain(layer, x):
    """The layer's forward pass without its schedule."""
    layer.eval()
    out = layer(x)
    layer.train()
    return out
