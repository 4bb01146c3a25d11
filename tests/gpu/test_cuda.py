"""The operators on a GPU against float64 on the CPU. Run by hand where there is one:
pytest tests/gpu"""

import pytest
import torch

import performer

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

MAPS = ("positive", "loglinear", "hyperbolic", "relu", "elu1", "square", "sigmoid")


def draw(length, dtype=torch.float32, heads=4, dim=64):
    generator = torch.Generator().manual_seed(length)
    q, k, v = (torch.randn(2, heads, length, dim, generator=generator) for _ in range(3))
    return tuple(t.to(dtype) for t in (q, k, v))


def on_gpu(tensors):
    return tuple(t.cuda().requires_grad_() for t in tensors)


def wide(tensors):
    return tuple(t.double().requires_grad_() for t in tensors)


def relative(a, b):
    return float((a.cpu().double() - b).norm() / b.norm())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("feature_map", MAPS)
@pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.float32, 2e-5), (torch.bfloat16, 1e-2), (torch.float16, 2e-3)]
)
def test_forward_and_backward_match_float64(feature_map, causal, dtype, bound):
    tensors = draw(300, dtype)
    W = performer.draw_projection(128, 64, heads=4)
    mask = torch.arange(300).expand(2, 300) % 7 != 3
    grad = torch.randn(2, 4, 300, 64, generator=torch.Generator().manual_seed(1))
    gpu, cpu = on_gpu(tensors), wide(tensors)
    out = performer.favor_attention(
        *gpu, W.cuda(), feature_map=feature_map, causal=causal, key_mask=mask.cuda()
    )
    exact = performer.favor_attention(
        *cpu, W, feature_map=feature_map, causal=causal, key_mask=mask
    )
    assert out.dtype == dtype and out.is_cuda
    assert relative(out, exact) < bound
    got = torch.autograd.grad(out, gpu, grad.to(out))
    want = torch.autograd.grad(exact, cpu, grad.double())
    for ours, theirs in zip(got, want, strict=True):
        assert relative(ours, theirs) < 2 * bound


@pytest.mark.parametrize("std", [1, 10, 100])
def test_large_norms_stay_exact(std):
    q, k, v = draw(200)
    W = performer.draw_projection(128, 64)
    out = performer.favor_attention(*(t.cuda() for t in (std * q, std * k, v)), W.cuda())
    exact = performer.favor_attention(*wide((std * q, std * k, v)), W)
    assert relative(out, exact) < 5e-5


def test_outputs_up_to_t_keep_their_bits():
    q, k, v = (t.cuda() for t in draw(300))
    W = performer.draw_projection(128, 64).cuda()
    before = performer.favor_attention(q, k, v, W, causal=True)
    for value in (1e4, float("inf"), float("nan")):
        changed = [t.clone() for t in (q, k, v)]
        for t in changed:
            t[:, :, 100:] = value
        after = performer.favor_attention(*changed, W, causal=True)
        assert torch.equal(before[:, :, :100], after[:, :, :100])


def test_stepping_equals_the_batch_pass():
    q, k, v = (t.cuda() for t in draw(70))
    W = performer.draw_projection(128, 64).cuda()
    batch = performer.favor_attention(q, k, v, W, causal=True)
    state = None
    for t in range(70):
        token = [x[:, :, t : t + 1] for x in (q, k, v)]
        out, state = performer.favor_step(*token, W, state)
        torch.testing.assert_close(out, batch[:, :, t : t + 1], rtol=1e-5, atol=1e-5)


def test_a_callable_and_a_moved_state():
    q, k, v = (t.cuda() for t in draw(40))
    W = performer.draw_projection(32, 64).cuda()
    out, state = performer.favor_attention(q, k, v, W, torch.relu, return_state=True)
    named = performer.favor_attention(q, k, v, W, "relu")
    torch.testing.assert_close(out, named)
    performer.merge_states(state, state.to("cpu").to("cuda"))


def test_projections_are_the_same_bits():
    host = performer.draw_projection(64, 32, heads=2)
    assert torch.equal(host, host.cuda().cpu())
