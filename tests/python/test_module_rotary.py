"""Rotary positions: the operator, and FavorAttention(rotary=True) in one pass and in steps."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import performer
from performer import FavorAttention

OPS = torch.ops.performer
rotary = OPS.rotary


def turned(x, first=0):
    """Pair (2i, 2i + 1) at position p, as a complex number, times exp(i p 10000^(-2i/D))."""
    D = x.shape[-1]
    position = torch.arange(first, first + x.shape[1], dtype=torch.float64)
    angle = position[:, None] * 10000.0 ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
    pairs = torch.view_as_complex(x.double().contiguous().unflatten(-1, (-1, 2)))
    angle = angle.view(1, -1, *(1,) * (x.dim() - 3), D // 2)
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(-2)


@pytest.mark.parametrize("first", [0, 5, 100_000])
@pytest.mark.parametrize("shape", [(2, 7, 8), (2, 7, 3, 8), (1, 0, 2, 4)])
def test_is_the_formula(shape, first):
    x = torch.randn(shape, dtype=torch.float64)
    torch.testing.assert_close(rotary(x, first), turned(x, first))
    assert torch.equal(rotary(x, first)[:, 3:], rotary(x[:, 3:], first + 3))
    torch.testing.assert_close(rotary(rotary(x, first), first, back=True), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rounds_once(dtype):
    x = torch.randn(2, 9, 2, 8).to(dtype)
    got = rotary(x, 4000)
    assert got.dtype == dtype
    error = (got.double() - turned(x, 4000)).abs().max()
    assert error < 4 * torch.finfo(dtype).eps * max(1, x.abs().max().item() / 2)


def test_passes_torchs_own_checks():
    x = torch.randn(2, 3, 2, 4, dtype=torch.float64, requires_grad=True)
    torch.library.opcheck(OPS.rotary.default, (x, 2))
    torch.library.opcheck(OPS.rotary.default, (x.detach().transpose(1, 2), 1, True))
    assert gradcheck(lambda x: rotary(x, 2), x) and gradgradcheck(lambda x: rotary(x, 2), x)


@pytest.mark.parametrize(
    ("x", "first", "message"),
    [
        (torch.zeros(2, 3, 5), 0, "x must have an even last dimension"),
        (torch.zeros(3, 4), 0, r"x must be \[batch, length, ..., dim\], got \[3, 4\]"),
        (torch.zeros(1, 3, 4, dtype=torch.int64), 0, "x must be floating"),
        (
            torch.zeros(1, 3, 4),
            -1,
            "position must be at least 0 and end below 2\\^53, got -1 for 3",
        ),
        (torch.zeros(1, 3, 4), 2**63 - 1, "position must be at least 0 and end below"),
        (torch.zeros(1, 3, 4), 2**53 - 2, "end below 2\\^53, got 9007199254740990 for 3"),
    ],
)
def test_wrong_arguments_are_refused(x, first, message):
    with pytest.raises(RuntimeError, match=message):
        rotary(x, first)


@pytest.mark.parametrize("batch_first", [True, False])
def test_the_layer_turns_queries_and_keys_alone(batch_first):
    layer = FavorAttention(
        8, 2, 6, causal=True, num_kv_heads=1, rotary=True, batch_first=batch_first
    )
    x = torch.randn(2, 7, 8)

    def heads(y):
        return y.unflatten(-1, (-1, 4))

    q, k, v = heads(layer.q_proj(x)), heads(layer.k_proj(x)), heads(layer.v_proj(x))
    q, k = turned(q).float(), turned(k).float()
    out = performer.favor_attention(
        *(y.transpose(1, 2) for y in (q, k, v)), layer.projection, causal=True
    )
    want = layer.out_proj(out.transpose(1, 2).flatten(2))
    got = layer(x) if batch_first else layer(x.transpose(0, 1)).transpose(0, 1)
    torch.testing.assert_close(got, want)


def test_steps_and_pieces_equal_the_batch():
    layer, x = FavorAttention(8, 2, 6, causal=True, rotary=True), torch.randn(2, 7, 8)
    out = layer(x)
    head, state = layer(x[:, :4], return_state=True)
    outs = [head]
    torch.testing.assert_close(layer(x[:, 4:], initial_state=state, position=4), out[:, 4:])
    for t in range(4, 7):
        step, state = layer.step(x[:, t : t + 1], state, position=t)
        outs.append(step)
    torch.testing.assert_close(torch.cat(outs, 1), out)
    for call in (layer.step, lambda x, state: layer(x, initial_state=state)):
        with pytest.raises(ValueError, match="rotary needs position="):
            call(x[:, :1], state)
    torch.testing.assert_close(layer.step(x[:, :1])[0], out[:, :1])


@pytest.mark.usefixtures("fresh_dynamo")
def test_compiles_with_dynamic_lengths_and_positions():
    layer = FavorAttention(8, 2, 6, causal=True, rotary=True)

    def run(x, position):
        return layer(x, position=position)

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager", dynamic=True)
    for length, position in ((5, 3), (9, 70)):
        x = torch.randn(2, length, 8, requires_grad=True)
        out, want = compiled(x, position), run(x, position)
        torch.testing.assert_close(out, want)
        grads = [torch.autograd.grad(y.square().sum(), x)[0] for y in (out, want)]
        torch.testing.assert_close(*grads)


@pytest.mark.parametrize("strict", [False, True], ids=["non_strict", "strict"])
def test_exports_with_a_length_of_no_bound(strict):
    layer = FavorAttention(8, 2, 6, causal=True, rotary=True).eval()
    lengths = {"query": {1: torch.export.Dim("L")}}
    program = torch.export.export(
        layer, (torch.randn(2, 5, 8),), dynamic_shapes=lengths, strict=strict
    )
    longer = torch.randn(2, 77, 8)
    torch.testing.assert_close(program.module()(longer), layer(longer))
