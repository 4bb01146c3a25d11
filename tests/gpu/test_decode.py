"""The decode kernel: one token after a state, in place or not. Run by hand where there is a GPU:
pytest tests/gpu/test_decode.py"""

from dataclasses import replace

import pytest
import torch
from gpu_inputs import make_inputs
from gpu_kernels import DTYPES, MAPS
from op_cases import EXPONENTIAL_MAPS, NAMES, Case, read_cases

import performer
from performer import FavorState

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 4e-3, torch.float16: 5e-4}
STEPS = read_cases("steps")


def arguments(inputs, tokens=None):
    """Those of favor_step_ before the state."""
    named = inputs.options
    q, k, v = tokens or (inputs.q, inputs.k, inputs.v)
    names = ("key_mask", "projection_k", "bias_q", "bias_k", "key_bias", "query_bias")
    rest = (named.get(name) for name in names)
    return q, k, v, inputs.W, inputs.case.feature_map, None, None, True, 0, *rest


def in_place(*given):
    """favor_step_ on a state without a near field."""
    return torch.ops.performer.favor_step_(*given, *(None,) * 4)


def step(inputs, state=None, tokens=None):
    """The functional step without gradients: out, state, and the kernel that ran."""
    q, k, v = tokens or (inputs.q, inputs.k, inputs.v)
    with torch.no_grad():
        out, after = performer.favor_step(
            q, k, v, inputs.W, state or inputs.state, inputs.case.feature_map, **inputs.options
        )
    return out, after, performer.last_kernel()


def wide(state):
    return FavorState(state.kv.double(), state.normalizer.double(), state.log2_scale)


def exact_step(inputs, state=None, tokens=None):
    """The same by the composed operator in float64."""
    q, k, v = (t.double() for t in tokens or (inputs.q, inputs.k, inputs.v))
    options = {n: t.double() if t.is_floating_point() else t for n, t in inputs.options.items()}
    W = None if inputs.W is None else inputs.W.double()
    with torch.no_grad():
        return performer.favor_step(
            q, k, v, W, state or wide(inputs.state), inputs.case.feature_map, **options
        )


def relative(actual, expected):
    difference = (actual.double() - expected.double()).norm()
    return float(difference / expected.double().norm().clamp_min(1e-30))


def assert_same_state(state, expected):
    """Scales are rounded up, so that they may differ by one."""
    shift = torch.exp2((state.log2_scale - expected.log2_scale).double())
    assert relative(state.kv * shift[..., None], expected.kv) <= 1e-5
    assert relative(state.normalizer * shift, expected.normalizer) <= 1e-5


def copies(state):
    return tuple(t.clone() for t in state[:3])


@pytest.mark.parametrize("case", STEPS, ids=str)
def test_a_step_matches_float64(case):
    inputs = make_inputs(case)
    out, state, kernel = step(inputs)
    expected, exact = exact_step(inputs)
    assert kernel == f"cuda/decode/{NAMES[case.dtype]}/{case.feature_map}/causal"
    assert out.dtype == case.dtype and out.shape == expected.shape
    assert relative(out, expected) <= TOLERANCE[case.dtype]
    assert_same_state(state, exact)


@pytest.mark.parametrize("case", STEPS[::3], ids=str)
def test_in_place_has_the_bits_of_the_functional_step(case):
    inputs = make_inputs(case)
    before = copies(inputs.state)
    out, state, _ = step(inputs)
    for kept, given in zip(before, inputs.state[:3], strict=True):
        assert torch.equal(kept, given)
    place = copies(inputs.state)
    assert torch.equal(in_place(*arguments(inputs), *place), out)
    assert performer.last_kernel().startswith("cuda/decode/")
    for got, want in zip(place, state[:3], strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize("case", STEPS[::5], ids=str)
def test_the_portable_kernels_step_in_place_too(case, kernels):
    inputs = make_inputs(case)
    place = copies(inputs.state)
    out = in_place(*arguments(inputs), *place)
    kernels("portable")
    other = copies(inputs.state)
    assert relative(in_place(*arguments(inputs), *other), out) <= 2 * TOLERANCE[case.dtype]
    assert performer.last_kernel().startswith("cuda/portable/")
    assert_same_state(FavorState(*other), FavorState(*place))


def stream(case, length):
    """A case's inputs with `length` tokens, and the state before them."""
    inputs = make_inputs(replace(case, length=length))
    return inputs, [
        tuple(t[:, :, i : i + 1] for t in (inputs.q, inputs.k, inputs.v)) for i in range(length)
    ]


def test_1000_steps_equal_the_batch():
    inputs, tokens = stream(Case(causal=True, heads=4, key_heads=4, features=256), 1000)
    with torch.no_grad():
        whole, last = performer.favor_attention(
            inputs.q, inputs.k, inputs.v, inputs.W, causal=True, return_state=True
        )
        _, state = performer.favor_attention(*tokens[0], inputs.W, causal=True, return_state=True)
        outs = [in_place(*arguments(inputs, one), *state[:3]) for one in tokens[1:]]
        assert performer.last_kernel() == "cuda/decode/fp32/positive/causal"
    exact = performer.favor_attention(
        *(t.double() for t in (inputs.q, inputs.k, inputs.v, inputs.W)), causal=True
    )
    steps = torch.cat(outs, 2)
    assert relative(steps, exact[:, :, 1:]) <= 1e-5
    assert relative(steps, whole[:, :, 1:]) <= 1e-5
    assert_same_state(state, last)


@pytest.mark.parametrize("magnitude", [10, 100, 1000])
@pytest.mark.parametrize("feature_map", EXPONENTIAL_MAPS)
def test_steps_at_any_norm_are_as_exact_as_the_portable_ones(feature_map, magnitude, kernels):
    case = Case(feature_map, True, batch=8, heads=4, key_heads=4, magnitude=magnitude)
    inputs, tokens = stream(case, 64)

    def errors(choice):
        kernels(choice)
        with torch.no_grad():
            _, state = performer.favor_attention(
                *tokens[0], inputs.W, feature_map, causal=True, return_state=True
            )
            outs = [in_place(*arguments(inputs, one), *state[:3]) for one in tokens[1:]]
        return torch.cat(outs, 2)

    exact = performer.favor_attention(
        *(t.double() for t in (inputs.q, inputs.k, inputs.v, inputs.W)), feature_map, causal=True
    )[:, :, 1:]
    ours, theirs = errors("auto"), errors("portable")
    assert torch.isfinite(ours).all()
    assert relative(ours, exact) <= 2 * relative(theirs, exact) + 1e-5


@pytest.mark.parametrize("dtype", DTYPES, ids=NAMES.get)
def test_100_repeats_have_the_same_bits(dtype):
    case = Case(dtype=dtype, causal=True, batch=30, heads=8, key_heads=8, length=1, state=True)
    for batch in (1, 30):  # clusters of blocks, and blocks
        inputs = make_inputs(replace(case, batch=batch, features=256))
        first = copies(inputs.state)
        out = in_place(*arguments(inputs), *first)
        different = torch.zeros((), dtype=torch.int64, device="cuda")
        for _ in range(100):
            place = copies(inputs.state)
            different += (in_place(*arguments(inputs), *place) != out).sum()
            different += sum((a != b).sum() for a, b in zip(place, first, strict=True))
        assert int(different) == 0


def test_few_heads_and_many_agree():
    """Where few heads are cut over the blocks of clusters, the same heads give the same."""
    case = Case(causal=True, batch=200, heads=4, key_heads=2, length=1, features=256, state=True)
    inputs = make_inputs(case)
    out, state, _ = step(inputs)
    for n in (1, 3, 20):
        few = replace(inputs, q=inputs.q[:n], k=inputs.k[:n], v=inputs.v[:n])
        few_state = FavorState(*(t[:n].contiguous() for t in inputs.state[:3]))
        got, after, _ = step(few, few_state)
        assert relative(got, out[:n]) <= 1e-6
        assert torch.equal(after.kv, state.kv[:n])
        assert torch.equal(after.log2_scale, state.log2_scale[:n])


@pytest.mark.parametrize("feature_map", MAPS)
def test_steps_in_a_graph(feature_map):
    case = Case(feature_map, True, torch.bfloat16, heads=4, key_heads=2, mask=True)
    inputs, tokens = stream(case, 8)
    mask = inputs.options.pop("key_mask")
    _, start = performer.favor_attention(
        *tokens[0], inputs.W, feature_map, causal=True, return_state=True
    )
    eager, expected = copies(start), []
    for i, one in enumerate(tokens):
        inputs.options["key_mask"] = mask[:, i : i + 1]
        expected.append(in_place(*arguments(inputs, one), *eager))
    place = copies(start)
    inputs.options["key_mask"] = mask[:, :1].clone()
    static = tuple(t.clone() for t in tokens[0])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = in_place(*arguments(inputs, static), *place)
    for i, one in enumerate(tokens):
        inputs.options["key_mask"].copy_(mask[:, i : i + 1])
        for to, token in zip(static, one, strict=True):
            to.copy_(token)
        graph.replay()
        assert torch.equal(out, expected[i])
    for got, want in zip(place, eager, strict=True):
        assert torch.equal(got, want)


def test_a_masked_key_leaves_its_state_alone():
    case = Case(causal=True, batch=2, heads=4, key_heads=2, length=1, state=True)
    inputs = make_inputs(case)
    inputs.options["key_mask"] = torch.tensor([[True], [False]], device="cuda")
    inputs.k[1] = float("nan")
    inputs.v[1] = float("inf")
    place = copies(inputs.state)
    out = in_place(*arguments(inputs), *place)
    for got, before in zip(place, inputs.state[:3], strict=True):
        assert torch.equal(got[1], before[1]) and not torch.equal(got[0], before[0])
    expected, _ = exact_step(inputs)
    assert relative(out, expected) <= TOLERANCE[torch.float32]


@pytest.mark.parametrize("feature_map", MAPS)
def test_a_row_without_keys_is_zero(feature_map):
    case = Case(feature_map, True, batch=2, heads=2, length=1, state=True, features=64)
    inputs = make_inputs(case)
    inputs.options["key_mask"] = torch.zeros(2, 1, dtype=torch.bool, device="cuda")
    kv, normalizer, scale = (torch.zeros_like(t) for t in inputs.state[:3])
    empty = FavorState(kv, normalizer, scale - (1 << 30))
    out, after, kernel = step(inputs, empty)
    assert kernel.startswith("cuda/decode/")
    assert not out.any() and not after.kv.any() and torch.equal(after.log2_scale, empty.log2_scale)
    del inputs.options["key_mask"]
    first, _, _ = step(inputs, empty)
    expected, _ = exact_step(inputs, wide(empty))
    assert relative(first, expected) <= TOLERANCE[torch.float32]


def test_views_of_a_packed_projection_and_odd_addresses():
    qkv = torch.randn(3, 1, 3, 4, 64, device="cuda", dtype=torch.bfloat16)
    q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
    case = Case(causal=True, dtype=torch.bfloat16, batch=3, heads=4, key_heads=4, length=1)
    inputs = replace(make_inputs(replace(case, state=True, features=128)), q=q, k=k, v=v)
    out, state, _ = step(inputs)
    assert out.transpose(1, 2).is_contiguous()
    expected, _ = exact_step(inputs)
    assert relative(out, expected) <= TOLERANCE[torch.bfloat16]
    odd = torch.empty(inputs.state.kv.numel() + 1, device="cuda")[1:].view_as(inputs.state.kv)
    odd.copy_(inputs.state.kv)
    _, normalizer, scale = copies(inputs.state)
    assert relative(in_place(*arguments(inputs), odd, normalizer, scale), out) <= 1e-3
    assert relative(odd, state.kv) <= 1e-6


def test_gradients_take_the_differentiable_path():
    case = Case(causal=True, heads=4, key_heads=4, length=1, state=True)
    inputs = make_inputs(case)
    inputs.q.requires_grad_()
    out, _ = performer.favor_step(inputs.q, inputs.k, inputs.v, inputs.W, inputs.state)
    assert performer.last_kernel().startswith("cuda/portable/")
    (grad,) = torch.autograd.grad(out.sum(), inputs.q)
    assert grad.any()
    assert relative(step(inputs)[0], out.detach()) <= 1e-5
