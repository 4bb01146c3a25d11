"""What the operators promise on a GPU beyond accuracy: bits, masks, empty rows, strides, steps."""

import pytest
import torch
from gpu_draws import BOTH, TYPES, close, draw, gradients, same_bits
from gpu_inputs import true_state

import performer


@BOTH
@TYPES
def test_250_repeats_have_the_same_bits(causal, dtype, path):
    q, k, v, W = draw(1500, dtype)
    mask = torch.rand(2, 1500, device="cuda") < 0.8

    def once():
        out = performer.favor_attention(q, k, v, W, causal=causal, key_mask=mask)
        return out, *gradients(out, (q, k, v), q.detach())

    first = once()
    different = torch.zeros((), dtype=torch.int64, device="cuda")
    for _ in range(250):
        for a, b in zip(once(), first, strict=True):
            different += (a != b).sum()
    assert int(different) == 0


@BOTH
@TYPES
def test_masked_keys_may_hold_nan(causal, dtype, path):
    q, k, v, W = draw(200, dtype)
    mask = torch.rand(2, 200, device="cuda") < 0.7
    gone = ~mask[:, None, :, None]
    results = []
    for value in (0.0, float("nan"), float("inf")):
        tokens = [
            q.detach(),
            k.detach().masked_fill(gone, value),
            v.detach().masked_fill(gone, value),
        ]
        tokens = [t.requires_grad_() for t in tokens]
        out = performer.favor_attention(*tokens, W, causal=causal, key_mask=mask)
        results.append((out, *gradients(out, tokens, q.detach())))
    assert same_bits(results[0], results[1])
    assert same_bits(results[0], results[2])
    assert not results[0][2].masked_select(gone).any()
    assert not results[0][3].masked_select(gone).any()


@BOTH
@TYPES
@pytest.mark.parametrize("feature_map", ["positive", "relu"])
def test_rows_without_keys_are_zero(causal, dtype, feature_map, path):
    q, k, v, W = draw(130, dtype)
    mask = torch.ones(2, 130, dtype=torch.bool, device="cuda")
    mask[0, :70] = False
    mask[1] = False
    out = performer.favor_attention(q, k, v, W, feature_map, causal=causal, key_mask=mask)
    grads = gradients(out, (q, k, v), q.detach())
    assert not out[1].any() and not any(grad[1].any() for grad in grads)
    assert torch.isfinite(out).all() and all(torch.isfinite(grad).all() for grad in grads)
    if causal:
        assert not out[0, :, :70].any()
    assert out[0, :, 70:].any()


@TYPES
def test_a_row_of_nan_stays_nan(dtype, path):
    q, k, v, W = (t.detach() for t in draw(130, dtype))
    before = performer.favor_attention(q, k, v, W)
    q = q.clone()
    q[0, 1, 7] = float("nan")
    out = performer.favor_attention(q, k, v, W)
    assert out[0, 1, 7].isnan().all()
    out[0, 1, 7] = before[0, 1, 7]
    close(out, before)


@BOTH
@TYPES
def test_packed_projections_keep_their_stride_order(causal, dtype, path):
    qkv = torch.randn(2, 300, 3, 4, 64, device="cuda").to(dtype).requires_grad_()
    q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # [B, H, L, D] views
    W = torch.randn(4, 128, 64, device="cuda")
    out = performer.favor_attention(q, k, v, W, causal=causal)
    grads = gradients(out, (q, k, v), q.detach())
    for t in (out, *grads):
        assert t.transpose(1, 2).is_contiguous()
    plain = [t.detach().contiguous().requires_grad_() for t in (q, k, v)]
    other = performer.favor_attention(*plain, W, causal=causal)
    close(out, other)
    for ours, theirs in zip(grads, gradients(other, plain, plain[0].detach()), strict=True):
        close(ours, theirs)
    (whole,) = torch.autograd.grad(
        performer.favor_attention(q, k, v, W, causal=causal), qkv, q.detach()
    )
    assert torch.equal(whole, torch.stack([g.transpose(1, 2) for g in grads], 2))


@BOTH
@TYPES
def test_incoming_gradients_have_any_strides(causal, dtype, path):
    q, k, v, W = draw(200, dtype)
    out = performer.favor_attention(q, k, v, W, causal=causal)
    for grad in (
        torch.ones((), device="cuda", dtype=dtype).expand_as(out),
        torch.randn(2, 4, 64, 200, device="cuda").to(dtype).transpose(-1, -2),
        torch.randn(2, 200, 4, 64, device="cuda").to(dtype).transpose(1, 2),
        torch.randn(2, 4, 200, 128, device="cuda").to(dtype)[..., 1::2],
    ):
        got = torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)
        want = torch.autograd.grad(out, (q, k, v), grad.contiguous(), retain_graph=True)
        for ours, theirs in zip(got, want, strict=True):
            close(ours, theirs)


@TYPES
def test_stepping_equals_the_batch_pass(dtype, path):
    q, k, v, W = (t.detach() for t in draw(70, dtype))
    batch = performer.favor_attention(q, k, v, W, causal=True)
    state = None
    steps = []
    for t in range(70):
        token = [x[:, :, t : t + 1] for x in (q, k, v)]
        out, state = performer.favor_step(*token, W, state)
        assert performer.last_kernel().startswith("cuda/")
        steps.append(out)
    close(torch.cat(steps, 2), batch)


@BOTH
def test_parts_equal_the_whole(causal, path):
    q, k, v, W = (t.detach() for t in draw(300))
    whole, final = performer.favor_attention(q, k, v, W, causal=causal, return_state=True)
    _, first = performer.favor_attention(
        q[:, :, :0], k[:, :, :130], v[:, :, :130], W, return_state=True
    )
    rows = slice(130, None) if causal else slice(None)
    out, last = performer.favor_attention(
        q[:, :, rows],
        k[:, :, 130:],
        v[:, :, 130:],
        W,
        causal=causal,
        initial_state=first,
        return_state=True,
    )
    close(out, whole[:, :, rows])
    for ours, theirs in zip(true_state(last), true_state(final), strict=True):
        close(ours, theirs)


def test_a_parameters_gradient_is_composed_and_right(path):
    q, k, v, W = draw(200, torch.bfloat16)
    W.requires_grad_()
    with torch.autograd.set_multithreading_enabled(False):
        out = performer.favor_attention(q, k, v, W)
        assert performer.last_kernel().startswith("cuda/")
        grads = gradients(out, (q, k, v, W), q.detach())
        assert performer.last_kernel() == "composed"
    wide = [t.detach().double().requires_grad_() for t in (q, k, v, W)]
    want = gradients(performer.favor_attention(*wide), wide, q.detach().double())
    for ours, theirs in zip(grads, want, strict=True):
        close(ours, theirs.to(ours.dtype))


@pytest.mark.parametrize("kind", ["hadamard", "givens"])
def test_structured_projections_have_the_bits_of_the_cpu(kind):
    """Products and sums are operations of their own, without a fused rounding."""
    host = performer.draw_structured(100, 48, heads=2, kind=kind)
    device = host.to("cuda")
    assert torch.equal(device.dense().cpu(), host.dense())
    dense = performer.draw_projection(100, 48, heads=2, kind=kind, rounding="none")
    assert torch.equal(host.dense(), dense)
    x = torch.randn(3, 2, 70, 48)
    assert torch.equal(device(x.cuda()).cpu(), host(x))
