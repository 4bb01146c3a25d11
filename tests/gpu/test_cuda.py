"""What the operators promise on a GPU beyond accuracy. Run by hand where there is one:
pytest tests/gpu"""

import pytest
import torch
from gpu_bounds import HOPPER
from gpu_cases import Case, Inputs, make_inputs, run_operator, true_state

import performer
from performer import FavorState

BOTH = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
TYPES = pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["fp32", "bf16", "fp16"]
)
MIB = 1 << 20


def draw(length=300, dtype=torch.float32, heads=4, dim=64, features=128):
    """q, k, v as leaves and W, on the GPU."""
    shape = (2, heads, length, dim)
    tokens = (torch.randn(shape, device="cuda").to(dtype).requires_grad_() for _ in range(3))
    return *tokens, torch.randn(heads, features, dim, device="cuda")


def gradients(out, leaves, grad=None):
    return torch.autograd.grad(out, leaves, torch.ones_like(out) if grad is None else grad)


def same_bits(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def close(actual, expected):
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}[expected.dtype]
    actual, expected = actual.detach().double(), expected.detach().double()
    assert float((actual - expected).norm()) <= tolerance * float(expected.norm())


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


def capturable(causal, dtype, packed):
    """A call with every kind of device argument."""
    case = Case(
        causal=causal,
        dtype=dtype,
        batch=1 if packed else 2,
        heads=4,
        key_heads=2,
        head_parameters=2,
        length=500,
        features=128,
        mask=True,
        key_bias=True,
        state=True,
        packed=packed,
    )
    inputs = make_inputs(case)
    leaves = [t.requires_grad_() for t in (inputs.q, inputs.k, inputs.v)]

    def call():
        out, state = performer.favor_attention(
            *leaves,
            inputs.W,
            causal=causal,
            initial_state=inputs.state,
            return_state=True,
            **inputs.options,
        )
        return out.detach(), *(t.detach() for t in state), *gradients(out, leaves, inputs.grad)

    return call, inputs


@BOTH
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
def test_a_graph_captures_forward_and_backward(causal, dtype, packed, path):
    call, inputs = capturable(causal, dtype, packed)
    with torch.no_grad():  # a graph kept alive here would tie the leaves to this stream
        _, with_fingerprint = performer.favor_attention(
            inputs.q, inputs.k, inputs.v, inputs.W, return_state=True, **inputs.options
        )
    inputs.state = inputs.state._replace(fingerprint=with_fingerprint.fingerprint)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = call()
    with torch.no_grad():
        for t in (inputs.q, inputs.k, inputs.v, inputs.grad):
            t.copy_(torch.randn_like(t))
    graph.replay()
    assert same_bits(captured, call())


@BOTH
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
def test_nothing_waits_for_the_device(causal, dtype, packed, path):
    call, inputs = capturable(causal, dtype, packed)
    inputs.W = inputs.W.double()  # converted on the device
    call()
    torch.cuda.set_sync_debug_mode("error")
    try:
        call()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_offsets_on_the_host_are_checked_and_cannot_be_captured(path):
    q, k, v, W = (t.detach()[:1] for t in draw(100))
    W = W[0]
    host = torch.tensor([0, 30, 100])
    options = {"cu_seqlens_q": host, "cu_seqlens_k": host}
    device = {name: t.cuda() for name, t in options.items()}
    want = performer.favor_attention(q, k, v, W, **device)
    assert torch.equal(performer.favor_attention(q, k, v, W, **options), want)
    wrong = torch.tensor([0, 30, 99])
    with pytest.raises(RuntimeError, match="must end at the packed length 100, got 99"):
        performer.favor_attention(q, k, v, W, cu_seqlens_q=wrong, cu_seqlens_k=wrong)
    graph = torch.cuda.CUDAGraph()
    with (
        pytest.raises(RuntimeError, match="must be on the device of q"),
        torch.cuda.graph(graph),
    ):
        performer.favor_attention(q, k, v, W, **options)


@pytest.mark.parametrize("bounds", [[5, 30, 100], [0, 130, 100], [0, -40, 100], [0, 70, 1 << 40]])
@BOTH
def test_wrong_offsets_on_the_device_stay_within_bounds(bounds, causal, path):
    q, k, v, W = draw(100)
    q, k, v = (t.detach()[:1].requires_grad_() for t in (q, k, v))
    offsets = torch.tensor(bounds, device="cuda")
    options = {"cu_seqlens_q": offsets, "cu_seqlens_k": offsets}
    out = performer.favor_attention(q, k, v, W, causal=causal, **options)
    gradients(out, (q, k, v))
    torch.cuda.synchronize()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_code_gives_the_same(backend):
    torch._dynamo.reset()
    q, k, v, W = draw(200, torch.bfloat16)

    def attend(q, k, v, W):
        out, state = performer.favor_attention(q, k, v, W, causal=True, return_state=True)
        return out * 2, state.kv

    compiled = torch.compile(attend, fullgraph=True, backend=backend)
    out, kv = compiled(q, k, v, W)
    plain_out, plain_kv = attend(q, k, v, W)
    assert same_bits((out, kv), (plain_out, plain_kv))
    # Compiled code hands zeros to the state's gradient, which eager code leaves out.
    grads = gradients(out, (q, k, v), q.detach())
    for ours, plain in zip(grads, gradients(plain_out, (q, k, v), q.detach()), strict=True):
        close(ours, plain)


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


def test_projections_are_the_same_bits():
    host = performer.draw_projection(64, 32, heads=2)
    assert torch.equal(host, host.cuda().cpu())


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_the_second_device(path):
    inputs = make_inputs(Case(dtype=torch.bfloat16, length=300))
    want = run_operator(inputs)
    moved = {name: t.to("cuda:1") for name, t in inputs.options.items()}
    tokens = (t.to("cuda:1") for t in (inputs.q, inputs.k, inputs.v, inputs.W, inputs.grad))
    got = run_operator(Inputs(inputs.case, *tokens, moved, None, ()))
    assert torch.equal(got.out.cpu(), want.out.cpu())
    assert got.kernels == want.kernels
