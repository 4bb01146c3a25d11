"""Calls in a CUDA graph: nothing in them waits for the device, and offsets may be wrong there."""

import pytest
import torch
from gpu_draws import BOTH, close, draw, gradients, same_bits
from gpu_inputs import make_inputs
from op_cases import Case

import performer


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
        return (
            out.detach(),
            *(t.detach() for t in state.tensors().values()),
            *gradients(out, leaves, inputs.grad),
        )

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
