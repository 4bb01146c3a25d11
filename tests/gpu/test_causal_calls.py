"""What causal calls promise beyond accuracy: states, packing, strides, repeats, graphs, memory."""

import random

import pytest
import torch
from gpu_bounds import check_kernels
from gpu_inputs import leaves_of, make_inputs, true_state
from gpu_kernels import DEVICE, DTYPES
from gpu_oracle import gradients
from op_cases import NAMES, Case

import performer

TYPES = pytest.mark.parametrize("dtype", DTYPES, ids=NAMES.get)
NEEDS_GPU = pytest.mark.skipif(DEVICE == "cpu", reason="a promise of the GPU's kernels")
MIB = 1 << 20
MILLION = 1 << 20


TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 4e-3}


def close(actual, expected, factor=1, dtype=None):
    """dtype: of the tokens, for a state, which is float32 and has features of theirs."""
    tolerance = factor * TOLERANCE[dtype or expected.dtype]
    actual, expected = actual.detach().double(), expected.detach().double()
    assert float((actual - expected).norm()) <= tolerance * float(expected.norm())


def headline(dtype, **options):
    given = {"heads": 4, "key_heads": 4, "head_parameters": 4, "length": 300, "features": 128}
    return Case("positive", causal=True, dtype=dtype, **{**given, **options})


def call(case, path, q, k, v, W, **options):
    """The operator, and the path it took."""
    result = performer.favor_attention(q, k, v, W, case.feature_map, causal=True, **options)
    check_kernels(case, path, (performer.last_kernel(),), backward=False)
    return result


def everything(inputs, path):
    """out, the final state and the gradients of q, k, v and the initial state."""
    (q, k, v), start, leaves = leaves_of(inputs)
    out, state = call(
        inputs.case,
        path,
        q,
        k,
        v,
        inputs.W,
        initial_state=start,
        return_state=True,
        **inputs.options,
    )
    final = true_state(state)
    return (out.detach(), *(t.detach() for t in final), *gradients(inputs, out, final, leaves))


@TYPES
@pytest.mark.parametrize("first", [1, 64, 100, 299])
def test_two_calls_by_state_equal_one(dtype, first, path):
    """Also in their gradients, which pass through the state between them."""
    inputs = make_inputs(headline(dtype, state=True))
    (q, k, v), start, leaves = leaves_of(inputs)
    out, state = call(inputs.case, path, q, k, v, inputs.W, initial_state=start, return_state=True)
    whole = gradients(inputs, out, true_state(state), leaves)

    def part(begin, end, state):
        tokens = (t[:, :, begin:end] for t in (q, k, v))
        return call(inputs.case, path, *tokens, inputs.W, initial_state=state, return_state=True)

    head, between = part(0, first, start)
    tail, last = part(first, None, between)
    joined = torch.cat([head, tail], 2)
    close(joined, out)
    for ours, theirs in zip(true_state(last), true_state(state), strict=True):
        close(ours, theirs, dtype=dtype)
    grads = gradients(inputs, joined, true_state(last), leaves)
    for ours, theirs in zip(grads, whole, strict=True):
        close(ours, theirs, 3, dtype)


@TYPES
@pytest.mark.parametrize("masked", [1, 63, 64, 65, 130])
@pytest.mark.parametrize("feature_map", ["positive", "loglinear", "hyperbolic", "relu"])
def test_rows_before_the_first_key_are_zero(feature_map, masked, dtype, path):
    features = 64 if feature_map == "hyperbolic" else 128
    case = Case(feature_map, causal=True, dtype=dtype, length=200, features=features)
    inputs = make_inputs(case)
    mask = torch.ones(2, 200, dtype=torch.bool, device=DEVICE)
    mask[:, :masked] = False
    q, k, v = (t.requires_grad_() for t in (inputs.q, inputs.k, inputs.v))
    out = call(case, path, q, k, v, inputs.W, key_mask=mask)
    grads = torch.autograd.grad(out, (q, k, v), inputs.grad)
    assert not out[:, :, :masked].any()
    assert not any(grad[:, :, :masked].any() for grad in grads)
    rest = [t.detach()[:, :, masked:].requires_grad_() for t in (q, k, v)]
    want = call(case, path, *rest, inputs.W)
    close(out[:, :, masked:], want)
    wanted = torch.autograd.grad(want, rest, inputs.grad[:, :, masked:])
    for ours, theirs in zip(grads, wanted, strict=True):
        close(ours[:, :, masked:], theirs, 2)


@TYPES
@pytest.mark.parametrize("state", [False, True], ids=["empty", "state"])
def test_without_any_key(dtype, state, path):
    """Zeros, or what the state alone says."""
    case = headline(dtype, state=state)
    inputs = make_inputs(case)
    mask = torch.zeros(2, 300, dtype=torch.bool, device=DEVICE)
    (q, k, v), start, leaves = leaves_of(inputs)
    out, final = call(
        case, path, q, k, v, inputs.W, key_mask=mask, initial_state=start, return_state=True
    )
    grads = gradients(inputs, out, true_state(final), leaves)
    assert all(torch.isfinite(t).all() for t in (out, *grads))
    assert not grads[1].any() and not grads[2].any()
    if not state:
        assert not out.any() and not grads[0].any()
        return
    for ours, theirs in zip(true_state(final), true_state(start), strict=True):
        close(ours, theirs, dtype=dtype)
    nothing = [t.detach()[:, :, :0] for t in (k, v)]
    alone = performer.favor_attention(q.detach(), *nothing, inputs.W, initial_state=start)
    close(out, alone)


def packed_case(dtype, lengths):
    case = headline(dtype, batch=1, length=sum(lengths), key_heads=2, head_parameters=2)
    offsets = torch.tensor([0, *lengths], device=DEVICE).cumsum(0).to(torch.int32)
    return case, {"cu_seqlens_q": offsets, "cu_seqlens_k": offsets}


LENGTHS = {
    "unsorted": [64, 1, 0, 300, 65, 2, 128, 17],
    "all short": [1] * 40 + [0] + [3] * 20,
    "one long": [5, 2000, 63],
    "ends empty": [0, 0, 70, 0],
    "many": [random.Random(0).randint(0, 150) for _ in range(70)],
}


@TYPES
@pytest.mark.parametrize("name", LENGTHS)
def test_packed_equals_one_by_one(dtype, name, path):
    lengths = LENGTHS[name]
    case, options = packed_case(dtype, lengths)
    inputs = make_inputs(case)
    q, k, v = (t.requires_grad_() for t in (inputs.q, inputs.k, inputs.v))
    out, state = call(case, path, q, k, v, inputs.W, return_state=True, **options)
    grads = torch.autograd.grad(out, (q, k, v), inputs.grad)
    assert state.kv.shape[0] == len(lengths)
    rows, finals, begin = [], [], 0
    single = [t.detach().requires_grad_() for t in (q, k, v)]
    for length in lengths:
        tokens = (t[:, :, begin : begin + length] for t in single)
        row, final = performer.favor_attention(*tokens, inputs.W, causal=True, return_state=True)
        rows.append(row)
        finals.append(final)
        begin += length
    one_by_one = torch.cat(rows, 2)
    close(out, one_by_one)
    single_states = zip(*map(true_state, finals), strict=True)
    for ours, parts in zip(true_state(state), single_states, strict=True):
        close(ours, torch.cat(parts), dtype=dtype)
    wanted = torch.autograd.grad(one_by_one, single, inputs.grad)
    for ours, theirs in zip(grads, wanted, strict=True):
        close(ours, theirs, 2)


def odd_views(dtype):
    """[B, H, L, D] views that no copy engine likes: name, q, k, v."""
    batch, length, heads, dim = 2, 150, 4, 64
    qkv = torch.randn(batch, length, 3, heads, dim, device=DEVICE).to(dtype)
    yield "[B, L, 3, H, D]", *qkv.permute(2, 0, 3, 1, 4).unbind(0)
    wide = torch.randn(3, batch, heads, length, dim + 3, device=DEVICE).to(dtype)
    yield "rows of 67", *wide[..., :dim].unbind(0)
    yield "from the third element on", *wide[..., 3:].unbind(0)
    every = torch.randn(3, batch, heads, length, 2 * dim, device=DEVICE).to(dtype)
    yield "every other element", *every[..., ::2].unbind(0)
    across = torch.randn(3, batch, heads, dim, length, device=DEVICE).to(dtype)
    yield "transposed", *across.mT.unbind(0)
    steps = torch.randn(3, batch, heads, 2 * length, dim, device=DEVICE).to(dtype)
    yield "every other token", *steps[..., ::2, :].unbind(0)
    one = torch.randn(3, 1, 1, length, dim, device=DEVICE).to(dtype)
    yield "expanded", *one.expand(3, batch, heads, length, dim).unbind(0)


@TYPES
def test_any_strides(dtype, path):
    case = headline(dtype, length=150)
    W = make_inputs(case).W
    for name, q, k, v in odd_views(dtype):
        results = []
        for tokens in ((q, k, v), [t.contiguous() for t in (q, k, v)]):
            leaves = [t.detach().requires_grad_() for t in tokens]
            out = call(case, path, *leaves, W)
            results.append((out, *torch.autograd.grad(out, leaves, torch.cos(out.detach()))))
        for ours, theirs in zip(*results, strict=True):
            assert torch.isfinite(ours).all(), name
            close(ours, theirs, 2)


@TYPES
@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
@pytest.mark.parametrize("length", [700, 20_000])
def test_50_repeats_have_the_same_bits(dtype, packed, length, path):
    repeats = 50 if DEVICE == "cuda" else 2
    case = headline(
        dtype,
        batch=1,
        length=length,
        heads=2,
        key_heads=1,
        head_parameters=1,
        mask=True,
        key_bias=True,
        state=True,
        packed=packed,
    )
    inputs = make_inputs(case)
    first = everything(inputs, path)
    different = torch.zeros((), dtype=torch.int64, device=DEVICE)
    for _ in range(repeats):
        for a, b in zip(everything(inputs, path), first, strict=True):
            different += (a != b).sum()
    assert int(different) == 0


@NEEDS_GPU
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
def test_a_graph_of_a_long_sequence_replays(dtype, path):
    """Segments and their scan are a chain of kernels: a replay must find all on the device."""
    case = headline(dtype, batch=1, length=10_000, heads=1, key_heads=1, head_parameters=0)
    inputs = make_inputs(case)
    leaves = [t.requires_grad_() for t in (inputs.q, inputs.k, inputs.v)]

    def once():
        out = call(case, path, *leaves, inputs.W)
        return out.detach(), *torch.autograd.grad(out, leaves, inputs.grad)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        once()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = once()
    with torch.no_grad():
        for t in (*leaves, inputs.grad):
            t.copy_(torch.randn_like(t))
    graph.replay()
    graph.replay()
    for a, b in zip(captured, once(), strict=True):
        assert torch.equal(a, b)
    torch.cuda.set_sync_debug_mode("error")
    try:
        once()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@NEEDS_GPU
def test_memory_of_a_million_packed_tokens(path):
    """8 heads, 16 sequences: what a dense call takes, and their states."""
    case = headline(torch.bfloat16, batch=1, length=MILLION, heads=8, key_heads=8, features=256)
    shape = (1, 8, MILLION, 64)
    leaves = [
        torch.randn(shape, device="cuda", dtype=torch.bfloat16).requires_grad_() for _ in range(3)
    ]
    W = torch.randn(8, 256, 64, device="cuda")
    bounds = torch.arange(0, MILLION + 1, MILLION // 16, device="cuda", dtype=torch.int32)
    bounds[1:-1] += 5
    options = {"cu_seqlens_q": bounds, "cu_seqlens_k": bounds}
    token = leaves[0].numel() * leaves[0].element_size()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    out = call(case, path, *leaves, W, **options)
    ones = torch.ones((), device="cuda", dtype=out.dtype).expand_as(out)
    torch.autograd.grad(out, leaves, ones)
    peak = torch.cuda.max_memory_allocated() - before - 4 * token
    states = 16 * 8 * 256 * (64 + 2) * 4
    limit = (72 if path == "portable" else 48) * MIB
    assert peak <= 8 * 8 * MILLION + limit + 4 * states


STEPS = {"auto": 100_000, "portable": 10_000} if DEVICE == "cuda" else {"auto": 1_000}


@pytest.mark.parametrize("choice", STEPS)
@pytest.mark.parametrize("tokens", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_stepping_equals_the_batch_pass(tokens, choice, kernels):
    """The state is float32, and nothing drifts."""
    kernels(choice)
    length = STEPS[choice] if tokens == torch.float32 else STEPS[choice] // 10
    case = headline(torch.float32, batch=1, length=length, heads=2, key_heads=2, head_parameters=2)
    inputs = make_inputs(case)
    q, k, v = (t.to(tokens) for t in (inputs.q, inputs.k, inputs.v))
    state, steps = None, []
    with torch.no_grad():
        for t in range(length):
            token = (x[:, :, t : t + 1] for x in (q, k, v))
            out, state = performer.favor_step(*token, inputs.W, state)
            steps.append(out)
        assert performer.last_kernel().startswith(("cuda/", "cpu/"))
        wide = (t.double() for t in (q, k, v))
        batch = performer.favor_attention(*wide, inputs.W.double(), causal=True)
    error = (torch.cat(steps, 2).double() - batch).norm(dim=-1) / batch.norm(dim=-1)
    limit = 1e-5 if tokens == torch.float32 else 4e-3  # bf16: the rounding of its outputs
    for rows in (error, error[:, :, -length // 10 :]):
        assert float(rows.square().mean().sqrt()) <= limit
