"""torch.library.opcheck for every registered operator: schema, autograd, fake and AOT kernels."""

import re
from pathlib import Path

import pytest
import torch
from op_cases import ALL_MAPS
from small_inputs import inputs, options_of
from torch.library import opcheck

import performer
from performer._operator import Result
from performer.state import by_sequence

OPS = torch.ops.performer


def positional(op, **given):
    """The arguments in the order of the schema; those that are not given are absent."""
    usual = {"renormalize": True, "near": 0, "for_backward": True}
    names = [argument.name for argument in op.default._schema.arguments]
    assert given.keys() <= set(names)
    return tuple(given.get(name, usual.get(name)) for name in names)


def state_arguments(state):
    return {f"state_{name}": tensor for name, tensor in state._asdict().items()}


def attention_arguments(feature_map, causal, grad=True, W=None, state=None, **options):
    """The positional arguments of the operator."""
    q, k, v, drawn = inputs(feature_map, B=2, L=5)
    tensors = {"q": q, "k": k, "v": v, "projection": drawn if W is None else W}
    if grad:
        tensors = {name: t.detach().clone().requires_grad_() for name, t in tensors.items()}
    given = {**tensors, **options, **({} if state is None else state_arguments(state))}
    return positional(OPS.favor_attention, feature_map=feature_map, causal=causal, **given)


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
    arguments = positional(
        OPS.favor_attention,
        q=q.requires_grad_(),
        k=k,
        v=v,
        projection=W,
        feature_map="positive",
        causal=True,
        cu_seqlens_q=bounds,
        cu_seqlens_k=bounds,
        max_seqlen_q=4,
        max_seqlen_k=4,
    )
    opcheck(OPS.favor_attention.default, arguments)


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_favor_attention_with_a_near_field(causal):
    key_mask = torch.tensor([[True] * 5, [False, True, True, True, False]])
    options = {name: tensor.requires_grad_() for name, tensor in options_of("loglinear").items()}
    for name in ("key_bias", "query_bias"):
        options[name] = torch.randn(2, 2, 5, dtype=torch.float64).requires_grad_()
    arguments = attention_arguments("loglinear", causal, near=2, key_mask=key_mask, **options)
    opcheck(OPS.favor_attention.default, arguments)


def test_favor_attention_behind_a_near_field():
    q, k, v, W = inputs("positive", B=2, L=5)
    _, state = performer.favor_attention(q, k, v, W, causal=True, near=2, return_state=True)
    learned = {name: getattr(state, name).requires_grad_() for name in ("near_keys", "near_values")}
    state = state._replace(**learned)
    arguments = attention_arguments("positive", True, W=W, state=state, near=2)
    opcheck(OPS.favor_attention.default, arguments)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fused", "composed"])
def test_rows_are_returned_for_a_backward_pass_alone(dtype):
    q, k, v, W = inputs("positive", B=2, L=5, dtype=dtype)
    tensors = {"q": q, "k": k, "v": v, "projection": W, "feature_map": "positive"}
    arguments = positional(OPS.favor_attention, causal=True, for_backward=False, **tensors)
    with torch.no_grad():
        out, row_sum, row_log2_scale, *state = OPS.favor_attention(*arguments)
        opcheck(OPS.favor_attention.default, arguments)
    full, full_sum, full_log2_scale, *full_state = OPS.favor_attention(*arguments)
    assert row_sum.numel() == row_log2_scale.numel() == 0
    assert full_sum.shape == full_log2_scale.shape == out.shape[:3]  # gradients may be asked for
    for ours, theirs in zip((out, *state), (full, *full_state), strict=True):
        assert torch.equal(ours, theirs)


def step_arguments(token, W, place, near=0):
    """place: the tensors of a state by name, which the step writes over."""
    q, k, v = token
    given = {f"state_{name}": tensor for name, tensor in place.items()}
    tensors = {"q": q, "k": k, "v": v, "projection": W, **given}
    return positional(OPS.favor_step_, feature_map="positive", near=near, **tensors)


@pytest.mark.parametrize("near", [0, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["fused", "composed"])
def test_favor_step_in_place(dtype, near):
    q, k, v, W = inputs("positive", B=2, L=5, dtype=dtype)
    options = {"causal": True, "near": near}
    _, state = performer.favor_attention(q, k, v, W, return_state=True, **options)
    token = [t[:, :, :1].contiguous() for t in (q, k, v)]
    out, after = performer.favor_step(*token, W, state, **options)
    place = {name: tensor.clone() for name, tensor in by_sequence(state).items()}
    assert torch.equal(OPS.favor_step_(*step_arguments(token, W, place, near)), out)
    for name, want in by_sequence(after).items():
        assert torch.equal(place[name], want)
    opcheck(OPS.favor_step_.default, step_arguments(token, W, place, near))


def test_a_step_in_place_keeps_the_type_of_its_token_under_autocast():
    q, k, v, W = inputs("positive", B=2, L=5, dtype=torch.float32)
    _, state = performer.favor_attention(q, k, v, W, causal=True, return_state=True)
    token = [t[:, :, :1].contiguous() for t in (q, k, v)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = OPS.favor_step_(*step_arguments(token, W, by_sequence(state)))
    assert out.dtype == torch.float32


LEARNED = ("q", "k", "v", "projection", "projection_k", "bias_q", "bias_k", "key_bias")
LEARNED += ("query_bias", "state_kv", "state_normalizer")
LEARNED += ("state_near_keys", "state_near_values", "state_near_bias")  # in the order of `needs`


@pytest.mark.parametrize(("feature_map", "near"), [("positive", 0), ("relu", 0), ("positive", 2)])
def test_favor_attention_backward(feature_map, near):
    """Called as autograd calls it; it has no derivative of its own."""
    arguments = attention_arguments(feature_map, causal=True, grad=False, near=near)
    result = Result(*OPS.favor_attention(*arguments))
    names = [argument.name for argument in OPS.favor_attention.default._schema.arguments]
    given = dict(zip(names, arguments, strict=True)) | {
        "grad_out": torch.randn_like(result.out),
        "grad_kv": torch.randn_like(result.kv),
        "grad_near_values": torch.randn_like(result.near_values) if near else None,
        **result._asdict(),
        "needs": [name in ("q", "k", "v", "projection") for name in LEARNED],
    }
    schema = OPS.favor_attention_backward.default._schema.arguments
    opcheck(
        OPS.favor_attention_backward.default,
        tuple(given.get(argument.name) for argument in schema),
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


def test_merge_near_states():
    q, k, v, W = inputs("positive", L=6)
    options = {"causal": True, "near": 2, "return_state": True}
    _, earlier = performer.favor_attention(*(t[:, :, :4] for t in (q, k, v)), W, **options)
    _, later = performer.favor_attention(*(t[:, :, 3:] for t in (q, k, v)), W, **options)
    parts = [[t.detach() for t in by_sequence(state).values()] for state in (earlier, later)]
    for part in parts:
        for tensor in part:
            tensor.requires_grad_(tensor.is_floating_point())
    opcheck(OPS.merge_near_states.default, (*parts, W, "positive", None, None, None))


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


@pytest.mark.parametrize(
    ("feature_map", "near"), [*((name, 0) for name in ALL_MAPS), ("positive", 3)]
)
def test_meta_tensors_give_the_shapes_dtypes_and_strides(feature_map, near):
    B, H, L, D = 2, 4, 7, 6
    packed = torch.randn(B, L, 3, H, D).permute(2, 0, 3, 1, 4)  # views of one projection's output
    W = torch.randn(H, 5, D)
    options = {"causal": True, "return_state": True, "near": near}
    real = performer.favor_attention(*packed, W, feature_map, **options)
    meta = performer.favor_attention(*packed.to("meta"), W.to("meta"), feature_map, **options)
    shown = [(out, *state.tensors().values()) for out, state in (real, meta)]
    for a, b in zip(*shown, strict=True):
        assert (a.shape, a.dtype, a.stride()) == (b.shape, b.dtype, b.stride())
    assert meta[0].is_meta
    assert real[0].transpose(1, 2).is_contiguous()  # q's stride order
