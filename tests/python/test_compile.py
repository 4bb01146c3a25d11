"""torch.compile(fullgraph=True), dynamic lengths, and torch.export."""

import io

import pytest
import torch
from small_inputs import inputs
from torch._dynamo.testing import CompileCounter

import performer
from performer import FavorAttention, FavorState

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def attend(q, k, v, W, start=None):
    out, state = performer.favor_attention(
        q, k, v, W, causal=True, initial_state=start, return_state=True
    )
    return out, state


def gradients(function, tensors, *rest):
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    out, state = function(*leaves, *rest)
    loss = out.square().sum() + state.kv.sum() + state.normalizer.square().sum()
    return (out, *state.tensors().values(), *torch.autograd.grad(loss, leaves))


def assert_same(actual, expected):
    for got, want in zip(actual, expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_forward_and_backward_equal_eager(backend):
    tensors = inputs("positive", B=2, L=70, dtype=torch.float32)
    start = performer.favor_attention(*tensors, return_state=True)[1]
    compiled = torch.compile(attend, fullgraph=True, backend=backend)
    assert_same(gradients(compiled, tensors, start), gradients(attend, tensors, start))


@pytest.mark.parametrize("feature_map", ["trigonometric", "relu"])
def test_other_maps_equal_eager(feature_map):
    q, k, v, W = inputs(feature_map, B=2, L=9)
    key_mask = torch.rand(2, 9) < 0.7

    def attend(q, k, v, W):
        return performer.favor_attention(
            q, k, v, W, feature_map, key_mask=key_mask, renormalize=False, return_state=True
        )

    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    assert_same(gradients(compiled, (q, k, v, W)), gradients(attend, (q, k, v, W)))


def test_a_second_length_does_not_compile_again():
    counter = CompileCounter()
    compiled = torch.compile(attend, fullgraph=True, backend=counter, dynamic=True)
    for length in (5, 9, 130):
        tensors = inputs("positive", L=length)
        assert_same(gradients(compiled, tensors), gradients(attend, tensors))
    assert counter.frame_count == 1


def test_a_marked_length_traces_through_autograd_once():
    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    for length in (5, 9, 130):
        tensors = inputs("positive", L=length)
        leaves = [tensor.clone().requires_grad_() for tensor in tensors]
        for leaf in leaves[:3]:
            torch._dynamo.mark_dynamic(leaf, 2)  # raises if the trace fixes the length
        with torch.compiler.set_stance("default" if length == 5 else "fail_on_recompile"):
            out, _ = compiled(*leaves)
        torch.testing.assert_close(out, attend(*tensors)[0])


def test_callable_map_step_and_merge():
    def softplus(u):
        return torch.nn.functional.softplus(u)

    def run(q, k, v, W):
        _, state = performer.favor_attention(q, k, v, W, softplus, return_state=True)
        last = (tensor[:, :, -1:] for tensor in (q, k, v))
        out, after = performer.favor_step(*last, W, state, softplus)
        return out, performer.merge_states(after, state)

    tensors = inputs("relu")
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    assert_same(gradients(compiled, tensors), gradients(run, tensors))


def test_near_field_with_reorder_step_and_merge():
    def run(q, k, v, W):
        options = {"causal": True, "near": 2}
        head, tail = ([t[:, :, part] for t in (q, k, v)] for part in (slice(4), slice(4, None)))
        _, first = performer.favor_attention(*head, W, return_state=True, **options)
        out, second = performer.favor_attention(*tail, W, return_state=True, **options)
        both = performer.merge_states(first, second, W).reorder(torch.tensor([1, 0]))
        token = (tensor[:, :, -1:] for tensor in (q, k, v))
        step, after = performer.favor_step(*token, W, both, near=2)
        return torch.cat([out, step], 2), performer.FavorState.concatenate([after, both])

    tensors = inputs("positive", B=2, L=9)
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    assert_same(gradients(compiled, tensors), gradients(run, tensors))


def test_a_second_length_with_a_near_field_does_not_compile_again():
    def attend(q, k, v, W):
        return performer.favor_attention(q, k, v, W, causal=True, near=4, return_state=True)

    counter = CompileCounter()
    compiled = torch.compile(attend, fullgraph=True, backend=counter, dynamic=True)
    for length in (5, 9, 130):
        tensors = inputs("positive", L=length)
        assert_same(gradients(compiled, tensors), gradients(attend, tensors))
    assert counter.frame_count == 1


def test_merge_of_other_features_fails_in_compiled_code_too():
    q, k, v, W = inputs("positive")
    states = [attend(q, k, v, projection)[1] for projection in (W, 2 * W)]
    merge = torch.compile(performer.merge_states, fullgraph=True, backend="aot_eager")
    merge(states[0], states[0])
    with pytest.raises(RuntimeError, match="same projection, map and scale"):
        merge(*states)


def test_structured_projection():
    q, k, v, _ = inputs("positive", D=4, dtype=torch.float32)
    P = performer.draw_structured(8, 4, kind="hadamard")
    compiled = torch.compile(
        lambda q, k, v: performer.favor_attention(q, k, v, P), fullgraph=True, backend="aot_eager"
    )
    torch.testing.assert_close(compiled(q, k, v), performer.favor_attention(q, k, v, P))


def test_module_redraws_on_schedule_without_compiling_again():
    counter = CompileCounter()
    layer = FavorAttention(8, 2, 6, causal=True, redraw_interval=2)
    twin = FavorAttention(8, 2, 6, causal=True, redraw_interval=2)
    twin.load_state_dict(layer.state_dict())
    compiled = torch.compile(layer, fullgraph=True, backend=counter)
    x = torch.randn(2, 5, 8)
    for _ in range(5):
        torch.testing.assert_close(compiled(x), twin(x))
        assert torch.equal(layer.projection, twin.projection)
    assert counter.frame_count == 1
    assert (int(layer.draw), int(layer.calls)) == (2, 5) == (int(twin.draw), int(twin.calls))


class Streaming(torch.nn.Module):
    def __init__(self, near):
        super().__init__()
        self.layer = FavorAttention(8, 2, 6, causal=True, near=near)

    def forward(self, x: torch.Tensor, state: FavorState) -> tuple[torch.Tensor, FavorState]:
        return self.layer(x, initial_state=state, return_state=True)


@pytest.mark.parametrize("near", [0, 3])
@pytest.mark.parametrize("strict", [False, True], ids=["non_strict", "strict"])
def test_exported_program_runs_at_another_length(strict, near):
    model = Streaming(near).eval()
    x = torch.randn(2, 5, 8)
    _, state = model.layer(x, return_state=True)
    length = torch.export.Dim("length", min=2, max=4096)
    program = torch.export.export(
        model,
        (x, state),
        dynamic_shapes=({1: length}, FavorState(*(None,) * len(FavorState._fields))),
        strict=strict,
    )
    longer = torch.randn(2, 77, 8)
    out, after = program.module()(longer, state)
    want, want_after = model(longer, state)
    torch.testing.assert_close(out, want)
    assert_same(after.tensors().values(), want_after.tensors().values())


class Reordering(torch.nn.Module):
    def forward(self, kv, normalizer, log2_scale, index):
        return FavorState(kv, normalizer, log2_scale).reorder(index)


@pytest.mark.parametrize("strict", [False, True], ids=["non_strict", "strict"])
def test_exported_reordering_takes_any_number_of_sequences(strict):
    def state(batch):
        q, k, v, W = inputs("positive", B=batch)
        return performer.favor_attention(q, k, v, W, return_state=True)[1]

    sequences, chosen = torch.export.Dim("sequences"), torch.export.Dim("chosen")
    program = torch.export.export(
        Reordering(),
        (*state(3)[:3], torch.tensor([2, 0])),
        dynamic_shapes=(*({0: sequences},) * 3, {0: chosen}),
        strict=strict,
    )
    index = torch.tensor([4, 4, 1, 0])
    assert_same(program.module()(*state(5)[:3], index)[:3], state(5).reorder(index)[:3])


def test_exported_program_is_saved_and_loaded():
    layer = FavorAttention(8, 2, 6, causal=True).eval()
    x = torch.randn(2, 5, 8)
    file = io.BytesIO()
    torch.export.save(torch.export.export(layer, (x,)), file)
    file.seek(0)
    torch.testing.assert_close(torch.export.load(file).module()(x), layer(x))
