"""Which kernel and which device serve a call, the memory it needs, the states it refuses."""

import pytest
import torch
from gpu_draws import BOTH, draw, gradients
from gpu_inputs import Inputs, make_inputs
from gpu_kernels import HOPPER
from gpu_oracle import run_operator
from op_cases import Case

import performer
from performer import FavorState

MIB = 1 << 20
MILLION = 1 << 20


def big():
    """1M tokens, 8 heads, d = 64, m = 256."""
    shape = (1, 8, MILLION, 64)
    tokens = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    return *tokens, torch.randn(8, 256, 64, device="cuda")


def peak_above(baseline):
    return torch.cuda.max_memory_allocated() - baseline


@BOTH
def test_memory_of_a_million_tokens(causal, path):
    # The portable path keeps states between causal chunks: about 50 MiB, whatever the length.
    chunks = causal and path == "portable"
    forward_limit, backward_limit = (72 * MIB, 72 * MIB) if chunks else (40 * MIB, 48 * MIB)
    q, k, v, W = big()
    performer.favor_attention(*(t[:, :, :1000] for t in (q, k, v)), W, causal=causal)
    token = q.numel() * q.element_size()  # of q, and of every tensor like it
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    with torch.no_grad():
        out = performer.favor_attention(q, k, v, W, causal=causal)
    serves = "hopper" if HOPPER and path == "auto" else "portable"
    assert performer.last_kernel().startswith(f"cuda/{serves}/")
    assert peak_above(before) - token <= forward_limit
    del out

    leaves = [t.requires_grad_() for t in (q, k, v)]
    torch.cuda.reset_peak_memory_stats()
    out = performer.favor_attention(*leaves, W, causal=causal)
    grads = gradients(out, leaves, torch.ones((), device="cuda", dtype=out.dtype).expand_as(out))
    assert peak_above(before) - 4 * token <= 8 * 8 * MILLION + backward_limit
    del grads


@pytest.mark.parametrize("case", ["fp64", "trigonometric", "not divided", "elu1", "wide"])
def test_what_the_kernels_do_not_serve_is_composed(case, path):
    dim = 257 if case == "wide" else 64
    q, k, v, W = (t.detach() for t in draw(50, dim=dim, features=32))
    if case == "fp64":
        q, k, v = q.double(), k.double(), v.double()
    feature_map = case if case in ("trigonometric", "elu1") else "positive"
    performer.favor_attention(q, k, v, W, feature_map, renormalize=case != "not divided")
    assert performer.last_kernel() == "composed"


def test_kernels_can_be_switched_off_and_chosen(kernels):
    q, k, v, W = (t.detach() for t in draw(50))
    kernels("off")
    performer.favor_attention(q, k, v, W)
    assert performer.last_kernel() == "composed"
    kernels("portable")
    performer.favor_attention(q, k, v, W, "relu", causal=True)
    assert performer.last_kernel() == "cuda/portable/fp32/relu/causal"
    kernels("auto")
    performer.favor_attention(q, k, v, W, causal=True)
    assert performer.last_kernel() == "cuda/portable/fp32/positive/causal"
    kernels("turing")
    message = "PERFORMER_CUDA_KERNELS=turing is not one of auto, portable, hopper, off"
    with pytest.raises(RuntimeError, match=message):
        performer.favor_attention(q, k, v, W)
    kernels("hopper")
    with pytest.raises(RuntimeError, match="PERFORMER_CUDA_KERNELS=hopper"):
        performer.favor_attention(q, k, v, W)


def test_a_callable_and_a_moved_state(path):
    q, k, v, W = (t.detach() for t in draw(40))
    out, state = performer.favor_attention(q, k, v, W, torch.relu, return_state=True)
    named = performer.favor_attention(q, k, v, W, "relu")
    torch.testing.assert_close(out, named)
    performer.merge_states(state, state.to("cpu").to("cuda"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fp32", "fp64"])
@pytest.mark.parametrize("shape", [(8, 256, 64), (4, 31, 7), (1, 1, 1), (1500, 3)])
def test_fingerprints_are_those_of_the_cpu(shape, dtype):
    W = torch.randn(shape, dtype=dtype)
    bias = torch.randn(shape[:-1], dtype=dtype)
    keys = torch.randn(1, shape[0] if len(shape) == 3 else 1, 0, shape[-1])

    def fingerprint(device, W, bias=None):
        tokens = keys.to(device)
        bias = None if bias is None else bias.to(device)
        _, state = performer.favor_attention(
            tokens, tokens, tokens, W, projection_k=W, bias_k=bias, return_state=True
        )
        return int(state.fingerprint)

    assert fingerprint("cuda", W.cuda(), bias) == fingerprint("cpu", W, bias)
    strided = W.transpose(-1, -2).contiguous().cuda().transpose(-1, -2)
    unaligned = torch.cat([W.flatten()[:1], W.flatten()]).cuda()[1:].view(shape)
    assert fingerprint("cuda", strided) == fingerprint("cpu", W)
    assert fingerprint("cuda", unaligned) == fingerprint("cpu", W)
    if W.numel() > 1:
        swapped = W.flatten().flip(0).view(shape)
        assert fingerprint("cuda", swapped.cuda()) == fingerprint("cpu", swapped)
        assert fingerprint("cuda", swapped.cuda()) != fingerprint("cpu", W)


def test_a_state_of_another_projection_is_refused(path):
    q, k, v, W = (t.detach() for t in draw(20))
    _, state = performer.favor_attention(q, k, v, W, return_state=True)
    performer.favor_attention(q, k, v, W, initial_state=state)
    with pytest.raises(RuntimeError, match="initial_state was made with another W"):
        performer.favor_attention(q, k, v, W + 1, initial_state=state)
    performer.favor_attention(q, k, v, W + 1, initial_state=FavorState(*state[:3]))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_the_second_device(path):
    inputs = make_inputs(Case(dtype=torch.bfloat16, length=300))
    want = run_operator(inputs)
    moved = {name: t.to("cuda:1") for name, t in inputs.options.items()}
    tokens = (t.to("cuda:1") for t in (inputs.q, inputs.k, inputs.v, inputs.W, inputs.grad))
    got = run_operator(Inputs(inputs.case, *tokens, moved, None, ()))
    assert torch.equal(got.out.cpu(), want.out.cpu())
    assert got.kernels == want.kernels
