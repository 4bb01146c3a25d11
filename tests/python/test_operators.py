"""torch.library.opcheck for every registered operator: schema, autograd, fake and AOT kernels."""

import re
from pathlib import Path

import pytest
import torch
from op_cases import ALL_MAPS
from small_inputs import inputs, options_of
from torch.library import opcheck

import performer

OPS = torch.ops.performer


def attention_arguments(feature_map, causal, grad=True, W=None, **options):
    """The positional arguments of the operator."""
    q, k, v, drawn = inputs(feature_map, B=2, L=5)
    tensors = [q, k, v, drawn if W is None else W]
    state = options.pop("state", None)
    named = dict.fromkeys(
        ["key_mask", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"]
        + ["projection_k", "bias_q", "bias_k", "key_bias"]
    )
    named |= options
    if grad:
        tensors = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    tail = (None,) * 4 if state is None else tuple(state)
    return (*tensors, feature_map, causal, None, None, True, *named.values(), *tail, True)


@pytest.mark.parametrize("feature_map", ["positive", "trigonometric", "relu"])
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_favor_attention(feature_map, causal):
    key_mask = torch.tensor([[True] * 5, [False, True, True, False, True]])
    opcheck(
        OPS.favor_attention.default, attention_arguments(feature_map, causal, key_mask=key_mask)
    )


def test_favor_attention_with_state_and_every_option():
    q, k, v, W = inputs("positive", B=2, L=5)
    options = {name: tensor.requires_grad_() for name, tensor in options_of("positive").items()}
    options["key_bias"] = torch.randn(2, 2, 5, dtype=torch.float64).requires_grad_()
    _, state = performer.favor_attention(q, k, v, W, return_state=True, **options)
    state = state._replace(
        kv=state.kv.detach().requires_grad_(), normalizer=state.normalizer.detach()
    )
    opcheck(
        OPS.favor_attention.default,
        attention_arguments("positive", True, W=W, state=state, **options),
    )


def test_favor_attention_packed():
    q, k, v, W = inputs("positive", L=6)
    bounds = torch.tensor([0, 2, 6])
    arguments = (q.requires_grad_(), k, v, W, "positive", True, None, None, True, None)
    opcheck(OPS.favor_attention.default, (*arguments, bounds, bounds, 4, 4, *(None,) * 8))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fused", "composed"])
def test_rows_are_returned_for_a_backward_pass_alone(dtype):
    q, k, v, W = inputs("positive", B=2, L=5, dtype=dtype)
    arguments = (q, k, v, W, "positive", True, None, None, True, *(None,) * 13)
    with torch.no_grad():
        out, row_sum, row_log2_scale, *state = OPS.favor_attention(*arguments, False)
        opcheck(OPS.favor_attention.default, (*arguments, False))
    full, full_sum, full_log2_scale, *full_state = OPS.favor_attention(*arguments, False)
    assert row_sum.numel() == row_log2_scale.numel() == 0
    assert full_sum.shape == full_log2_scale.shape == out.shape[:3]  # gradients may be asked for
    for ours, theirs in zip((out, *state), (full, *full_state), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fused", "composed"])
def test_favor_step_in_place(dtype):
    q, k, v, W = inputs("positive", B=2, L=5, dtype=dtype)
    _, state = performer.favor_attention(q, k, v, W, causal=True, return_state=True)
    token = [t[:, :, :1].contiguous() for t in (q, k, v)]
    out, after = performer.favor_step(*token, W, state)
    arguments = (*token, W, "positive", None, None, True, *(None,) * 5)
    place = [t.clone() for t in state[:3]]
    assert torch.equal(OPS.favor_step_(*arguments, *place), out)
    for got, want in zip(place, after[:3], strict=True):
        assert torch.equal(got, want)
    opcheck(OPS.favor_step_.default, (*arguments, *place))


def test_a_step_in_place_keeps_the_type_of_its_token_under_autocast():
    q, k, v, W = inputs("positive", B=2, L=5, dtype=torch.float32)
    _, state = performer.favor_attention(q, k, v, W, causal=True, return_state=True)
    token = [t[:, :, :1].contiguous() for t in (q, k, v)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = OPS.favor_step_(*token, W, "positive", None, None, True, *(None,) * 5, *state[:3])
    assert out.dtype == torch.float32


@pytest.mark.parametrize("feature_map", ["positive", "relu"])
def test_favor_attention_backward(feature_map):
    """Called as autograd calls it; it has no derivative of its own."""
    arguments = attention_arguments(feature_map, causal=True, grad=False)
    out, row_sum, row_log2_scale, kv, normalizer, log2_scale, _ = OPS.favor_attention(*arguments)
    names = [argument.name for argument in OPS.favor_attention.default._schema.arguments]
    given = dict(zip(names, arguments, strict=True)) | {
        "grad_out": torch.randn_like(out),
        "grad_kv": torch.randn_like(kv),
        "grad_normalizer": None,
        "out": out,
        "row_sum": row_sum,
        "row_log2_scale": row_log2_scale,
        "kv": kv,
        "normalizer": normalizer,
        "log2_scale": log2_scale,
        "needs": [True] * 4 + [False] * 6,  # q, k, v and the projection
    }
    schema = OPS.favor_attention_backward.default._schema.arguments
    opcheck(
        OPS.favor_attention_backward.default, tuple(given[argument.name] for argument in schema)
    )


@pytest.mark.parametrize("feature_map", ALL_MAPS)
def test_features(feature_map):
    x, _, _, W = inputs(feature_map)
    opcheck(
        OPS.features.default,
        (x.requires_grad_(), W[0].clone().requires_grad_(), feature_map, None, None),
    )


def test_merge_states():
    q, k, v, W = inputs("positive")
    _, state = performer.favor_attention(q, k, v, W, return_state=True)
    kv, normalizer = state.kv.detach().requires_grad_(), state.normalizer.detach()
    one = (kv, normalizer.requires_grad_(), state.log2_scale)
    opcheck(OPS.merge_states.default, (*one, *(tensor.detach().clone() for tensor in one)))


def test_draws():
    draw = (8, 4, 2, "hadamard", "chi", 0, 0, 0)
    for rounding in ((), ("bf16",), ("none",)):
        opcheck(OPS.draw_projection.default, (*draw, *rounding))
    opcheck(OPS.draw_structured.default, draw)


@pytest.mark.parametrize("kind", ["hadamard", "givens"])
def test_structured_products(kind):
    P = performer.draw_structured(8, 4, heads=2, kind=kind)
    x = torch.randn(2, 3, 4, requires_grad=True)
    opcheck(OPS.structured_apply.default, (x, kind, 4, list(P.parts)))
    opcheck(OPS.structured_dense.default, (kind, 4, list(P.parts), torch.float32))


def test_advance_draw():
    W = performer.draw_projection(8, 4, heads=2)
    for calls in (1, 2):  # without and with a redraw
        counters = (torch.tensor(0), torch.tensor(calls))
        given = (W, *counters, 2, "orthogonal", "chi", 0, 0)
        for rounding in ((), ("none",)):
            opcheck(OPS.advance_draw.default, (*given, *rounding))


def test_every_operator_is_checked():
    names = {
        name.split("::")[1].split(".")[0]
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("performer::")
    }
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    checked = set(re.findall(r"\bops\.(\w+)\.default", tests, re.IGNORECASE))
    without_tensors = {"fma_probe", "last_kernel", "quality_verdict"}
    assert names - checked == without_tensors


@pytest.mark.parametrize("feature_map", ALL_MAPS)
def test_meta_tensors_give_the_shapes_dtypes_and_strides(feature_map):
    B, H, L, D = 2, 4, 7, 6
    packed = torch.randn(B, L, 3, H, D).permute(2, 0, 3, 1, 4)  # views of one projection's output
    W = torch.randn(H, 5, D)
    real = performer.favor_attention(*packed, W, feature_map, causal=True, return_state=True)
    meta = performer.favor_attention(
        *packed.to("meta"), W.to("meta"), feature_map, causal=True, return_state=True
    )
    for a, b in zip((real[0], *real[1]), (meta[0], *meta[1]), strict=True):
        assert (a.shape, a.dtype, a.stride()) == (b.shape, b.dtype, b.stride())
    assert meta[0].is_meta
    assert real[0].transpose(1, 2).is_contiguous()  # q's stride order
