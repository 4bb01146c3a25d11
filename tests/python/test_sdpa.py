"""scaled_dot_product_attention and FavorSDPA: torch's call, with a projection that is kept."""

import inspect
import os
import threading

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.functional import scaled_dot_product_attention as exact

import performer
from performer import FavorAttention, FavorSDPA, _projection_cache
from performer import scaled_dot_product_attention as attend

LOWER = torch.ones(7, 7, dtype=torch.bool).tril()
REAL = torch.arange(7) < torch.tensor([[7], [4]])  # [B, L], True is a real key


def qkv(length=7, heads=2, scale=1.0):
    return [scale * torch.randn(2, heads, length, 8) for _ in range(3)]


def additive(kept):
    return torch.zeros(kept.shape).masked_fill(~kept, -torch.inf)


@pytest.fixture
def empty_cache(monkeypatch):
    monkeypatch.setattr(_projection_cache, "_drawn", type(_projection_cache._drawn)())
    return _projection_cache._drawn


def test_arguments_are_those_of_torch_in_the_same_order():
    ours = inspect.signature(attend).parameters.values()
    positional = [p for p in ours if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert [p.name for p in positional] == [
        "query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa",
    ]  # fmt: skip
    assert [p.default for p in positional[3:]] == [None, 0.0, False, None, False]


def test_is_the_operator_with_a_projection_of_its_own():
    q, k, v = qkv()
    W = performer.draw_projection(32, 8, heads=2, seed=5, layer=3)
    want = performer.favor_attention(q, k, v, W, causal=True, scale=0.2)
    options = {"num_features": 32, "seed": 5, "layer": 3}
    assert torch.equal(attend(q, k, v, is_causal=True, scale=0.2, **options), want)
    module = FavorSDPA(8, 2, 32, seed=5, layer=3)
    assert torch.equal(module(q, k, v, is_causal=True, scale=0.2), want)
    assert torch.equal(FavorSDPA(8, 2, 32, seed=5, layer=3, causal=True, scale=0.2)(q, k, v), want)
    for other in (
        {"seed": 6}, {"layer": 4}, {"kind": "iid"}, {"norm": "sqrt_d"}, {"rounding": "none"},
    ):  # fmt: skip
        got = attend(q, k, v, is_causal=True, scale=0.2, **options | other)
        assert not torch.equal(got, want), other
        module = FavorSDPA(8, 2, 32, **{"seed": 5, "layer": 3} | other)
        assert torch.equal(module(q, k, v, is_causal=True, scale=0.2), got), other


MASKS = {
    "none": (None, False),
    "causal": (None, True),
    "bool padding": (REAL[:, None, None], False),
    "additive padding": (additive(REAL)[:, None, None], False),
    "lowest number": (additive(REAL).clamp_min(torch.finfo().min)[:, None, None], False),
    "-1e9": (additive(REAL).clamp_min(-1e9)[:, None, None], False),
    "lowest number of bfloat16": (
        additive(REAL).clamp_min(torch.finfo(torch.bfloat16).min)[:, None, None],
        False,
    ),
    "one row for all": (REAL[1:], False),
    "expanded": (REAL[:, None, None].expand(2, 2, 7, 7), False),
    "stored rows": (REAL[:, None, None].expand(2, 1, 7, 7).contiguous(), False),
    "by head": (torch.stack([REAL, REAL.flip(1)], 1)[:, :, None], False),
    "bias of keys": (torch.linspace(-1, 1, 7).expand(2, 1, 1, 7), False),
    "one number": (torch.full((1, 1), 0.5), False),
    "one word": (torch.ones(1, 1, dtype=torch.bool), False),
    "one number for each sequence": (torch.tensor([0.0, 2.0])[:, None, None, None], False),
    "one column": (torch.ones(7, 1, dtype=torch.bool), False),
    "one stored column": (torch.full((2, 2, 7, 1), -1.0), False),
    "bool triangle": (LOWER, False),
    "additive triangle": (additive(LOWER), False),
    "triangle of lowest numbers": (additive(LOWER).clamp_min(torch.finfo().min), False),
    "triangle of -1e9": (additive(LOWER).clamp_min(-1e9), False),
    "triangle and padding": (LOWER & REAL[:, None, None], False),
    "additive triangle and padding": (additive(LOWER & REAL[:, None, None]), False),
}


@pytest.mark.parametrize(("mask", "is_causal"), MASKS.values(), ids=MASKS.keys())
def test_masks_mean_what_they_mean_in_torch(mask, is_causal):
    q, k, v = qkv(scale=0.5)
    want = exact(q, k, v, mask, is_causal=is_causal)
    got = attend(q, k, v, mask, is_causal=is_causal, num_features=4096)
    assert (got - want).square().mean() < 1e-3 * want.square().mean()


def test_a_mask_of_keys_may_stand_beside_is_causal():
    q, k, v = qkv()
    both = attend(q, k, v, LOWER & REAL[:, None, None])
    assert torch.equal(attend(q, k, v, REAL[:, None, None], is_causal=True), both)


def test_a_mask_of_one_word_may_remove_all_keys():
    q, k, v = qkv()
    kept = torch.tensor([True, False])[:, None, None, None]
    out = attend(q, k, v, kept)
    assert torch.equal(out[0], attend(q, k, v)[0]) and not out[1].any()
    assert not attend(q, k, v, torch.tensor(-torch.inf)).any()
    assert torch.equal(attend(q, k, v, torch.tensor(True)), attend(q, k, v))
    with pytest.raises(ValueError, match=r"a mask \[1, 1, 7, 7\] of neither kind"):
        attend(q, k, v, torch.arange(7)[:, None] < 4)


@pytest.mark.parametrize("removed", [-1e9, -1e30])
def test_rows_without_real_keys_stay_finite_through_layers(removed):
    x = torch.randn(2, 2, 7, 8)
    padding = torch.zeros(2, 1, 1, 7)
    padding[0] = removed  # the whole sequence
    padding[1, ..., :3] = removed  # on the left, so that the first rows see padding alone
    for _ in range(2):
        x = attend(x, x, x, padding, is_causal=True)
        assert x.isfinite().all()
    assert not x[0].any() and not x[1, :, :3].any() and x[1, :, 3:].all()


def test_a_learned_mask_is_stored_once_per_key():
    q, k, v = qkv()
    with pytest.raises(ValueError, match=r"learned must be stored once per key.*got \[1, 1, 7, 7"):
        attend(q, k, v, torch.zeros(7, 7, requires_grad=True))
    with torch.no_grad():
        assert attend(q, k, v, torch.zeros(7, 7, requires_grad=True)).isfinite().all()


@pytest.mark.parametrize("keys", [7, 0])
def test_no_queries_take_any_mask(keys):
    q, k, v = qkv()
    out = attend(q[:, :, :0], k[:, :, :keys], v[:, :, :keys], torch.zeros(0, keys))
    assert out.shape == (2, 2, 0, 8)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_is_refused_by_name():
    nested = torch.nested.nested_tensor([torch.randn(2, 3, 8), torch.randn(2, 5, 8)])
    for call in (attend, FavorSDPA(8, 2)):
        with pytest.raises(ValueError, match="query must be .*, got a nested tensor"):
            call(nested, nested, nested)


def test_gradients_reach_a_bias_of_keys():
    q, k, v = qkv()
    bias = torch.zeros(2, 1, 1, 7, requires_grad=True)
    attend(q, k, v, bias).square().sum().backward()
    assert bias.grad.abs().min() > 0


def test_generalised_maps_with_and_without_projection():
    q, k, v = qkv()
    W = performer.draw_projection(16, 8, heads=2)
    want = performer.favor_attention(q, k, v, W, "relu", key_mask=REAL, eps=0.1)
    options = {"feature_map": "relu", "eps": 0.1}
    assert torch.equal(attend(q, k, v, REAL[:, None, None], num_features=16, **options), want)
    want = performer.favor_attention(q, k, v, None, "relu")
    assert torch.equal(attend(q, k, v, num_features=None, feature_map="relu"), want)
    assert FavorSDPA(8, 2, None, feature_map="relu").projection is None


def test_grouped_and_missing_heads():
    q, k, v = qkv()
    one = [x[:, :1] for x in (k, v)]
    W = performer.draw_projection(256, 8, heads=1)
    got = attend(q, *one, enable_gqa=True)
    assert torch.equal(got, performer.favor_attention(q, *one, W))
    with pytest.raises(ValueError, match="the 2 heads of query unless enable_gqa=True, got 1"):
        attend(q, *one)
    flat = attend(q[:, 0], k[:, 0], v[:, 0], REAL[:, None])
    assert torch.equal(flat, attend(q[:, :1], *one, REAL[:, None, None])[:, 0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dropout_p": 0.1}, "dropout_p must be 0, got 0.1"),
        ({"attn_mask": LOWER.T}, r"attn_mask must be causal, .* a mask \[1, 1, 7, 7\] of neither"),
        (
            {"attn_mask": torch.linspace(-1, 1, 7), "feature_map": "relu"},
            "attn_mask must be bool and the same for all heads with feature_map 'relu'",
        ),
        ({"attn_mask": LOWER[:5]}, r"attn_mask must broadcast to \[2, 2, 7, 7\].*got \[1, 1, 5"),
        ({"attn_mask": LOWER.long()}, "attn_mask must be bool or floating, got torch.int64"),
    ],
)
def test_what_has_no_counterpart_is_refused_in_one_line(options, message):
    with pytest.raises(ValueError, match=message) as error:
        attend(*qkv(), **options)
    assert "\n" not in str(error.value)


def test_wrong_shapes_are_refused_by_name():
    q, k, v = qkv()
    with pytest.raises(ValueError, match=r"value must be \[batch, heads, length, dim\], got \[7"):
        attend(q, k, v[0, 0])
    with pytest.raises(ValueError, match=r"query must be .*, got \[7, 8\]"):
        attend(q[0, 0], k[0, 0], v[0, 0])


def test_the_projection_is_drawn_once(empty_cache, monkeypatch):
    draws = []
    draw = _projection_cache.draw_projection
    monkeypatch.setattr(
        _projection_cache, "draw_projection", lambda *a: draws.append(a) or draw(*a)
    )
    tensors = qkv()
    threads = [threading.Thread(target=attend, args=tensors) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    attend(*qkv(length=9))
    assert len(draws) == 1 == len(empty_cache)
    attend(*qkv(), layer=1)
    assert len(draws) == 2 == len(empty_cache)


def test_the_cache_is_bounded_and_forgets_the_oldest(empty_cache):
    first = _projection_cache.cached_projection(4, 8, 1, "iid", "chi", 0, 0, "cpu")
    for layer in range(1, _projection_cache.CAPACITY + 5):
        _projection_cache.cached_projection(4, 8, 1, "iid", "chi", 0, layer, "cpu")
        again = _projection_cache.cached_projection(4, 8, 1, "iid", "chi", 0, 0, "cpu")
        assert again is first, "in use"
    assert len(empty_cache) == _projection_cache.CAPACITY
    assert [layer for *_, layer, _ in empty_cache][:2] == [6, 7]


def test_a_first_call_under_inference_mode_leaves_a_tensor_for_training(empty_cache):
    q, k, v = qkv()
    with torch.inference_mode():
        attend(q, k, v)
    q.requires_grad_()
    attend(q, k, v).sum().backward()
    assert q.grad.abs().max() > 0


def test_a_first_call_under_fake_tensors_leaves_a_real_projection(empty_cache):
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        assert attend(*qkv()).shape == (2, 2, 7, 8)
    out = attend(*qkv())
    assert type(out) is torch.Tensor and out.isfinite().all()


def test_fake_tensors_give_shapes_and_gradients(empty_cache):
    with torch._subclasses.FakeTensorMode():
        for _ in range(2):  # the second finds a real projection in the cache
            q, k, v = (x.requires_grad_() for x in qkv())
            out = attend(q, k, v, is_causal=True)
            out.sum().backward()
            assert out.shape == q.grad.shape == (2, 2, 7, 8)
    (W,) = empty_cache.values()
    assert type(W) is torch.Tensor


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_traces_hold_the_projection_as_a_constant(mode, empty_cache):
    tensors = qkv()
    graph = make_fx(lambda q, k, v: attend(q, k, v), tracing_mode=mode)(*tensors)
    assert "draw_projection" not in graph.code
    other = qkv()
    assert torch.equal(graph(*other), attend(*other))


def test_a_first_call_under_torch_func_leaves_a_plain_projection(empty_cache):
    q, k, v = qkv()
    with pytest.raises(RuntimeError, match="functorch"):  # the operator's own gradient is C++
        torch.func.grad(lambda x: attend(x, k, v).sum())(q)
    (W,) = empty_cache.values()
    assert not torch._C._functorch.is_functorch_wrapped_tensor(W)
    assert torch.equal(W, performer.draw_projection(256, 8, heads=2))


def test_a_child_does_not_wait_for_a_lock_held_at_the_fork(empty_cache):
    with _projection_cache._lock:
        child = os.fork()
        if child == 0:
            free = _projection_cache._lock.acquire(blocking=False)
            os._exit(0 if free else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_cuda_graph_is_sent_to_the_module(empty_cache, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(RuntimeError, match="capture performer.FavorSDPA, which keeps its own"):
        _projection_cache.cached_projection(4, 8, 1, "iid", "chi", 0, 0, "cuda:0")
    assert not empty_cache


@pytest.mark.usefixtures("fresh_dynamo", "empty_cache")
@pytest.mark.parametrize(("kind", "backend"), [("function", "inductor"), ("module", "aot_eager")])
def test_compiles_in_one_graph_with_masks_and_gradients(kind, backend):
    call = attend if kind == "function" else FavorSDPA(8, 2)

    def leaves(length):
        torch.manual_seed(length)
        return [x.requires_grad_() for x in qkv(length)]

    def forward(q, k, v, mask):
        return call(q, k, v, mask, is_causal=True) + call(q, k, v)

    compiled = torch.compile(forward, fullgraph=True, backend=backend, dynamic=True)
    for length in (7, 9):
        mask = (torch.arange(length) < 5).expand(2, 1, 1, length)
        got, want = leaves(length), leaves(length)
        out = compiled(*got, mask)
        eager = forward(*want, mask)
        torch.testing.assert_close(out, eager)
        grads = torch.autograd.grad(out.square().sum(), got)
        for one, other in zip(grads, torch.autograd.grad(eager.square().sum(), want), strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.usefixtures("fresh_dynamo")
def test_compiled_code_says_which_masks_it_can_read():
    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="compiled code cannot look into attn_mask"):
        compiled(*qkv(), LOWER)


class Model(nn.Module):
    def __init__(self, call):
        super().__init__()
        self.call = call

    def forward(self, q, k, v):
        return self.call(q, k, v, is_causal=True)


@pytest.mark.usefixtures("empty_cache")
@pytest.mark.parametrize("strict", [False, True], ids=["non_strict", "strict"])
@pytest.mark.parametrize("kind", ["function", "module"])
def test_exports(strict, kind):
    model = Model(attend if kind == "function" else FavorSDPA(8, 2))
    tensors = tuple(qkv())
    program = torch.export.export(model, tensors, strict=strict)
    torch.testing.assert_close(program.module()(*tensors), model(*tensors))


def test_the_modules_projection_goes_with_the_state_dict_and_stays_float32():
    module, other = FavorSDPA(8, 2, seed=1), FavorSDPA(8, 2, seed=2)
    W = module.projection.clone()
    other.load_state_dict(module.state_dict())
    assert torch.equal(other.projection, W)
    low = nn.Sequential(module).bfloat16()[0]
    assert torch.equal(low.projection, W)
    tensors = [x.bfloat16() for x in qkv()]
    assert low(*tensors).dtype == torch.bfloat16
    with torch.device("meta"):
        assert FavorSDPA(8, 2).projection.is_meta


def test_a_module_built_on_the_meta_device_draws_its_own_projection():
    with torch.device("meta"):
        module = FavorSDPA(8, 2, 16, kind="iid", norm="sqrt_d", seed=3, layer=4)
    module.to_empty(device="cpu").reset_parameters()
    want = FavorSDPA(8, 2, 16, kind="iid", norm="sqrt_d", seed=3, layer=4).projection
    assert torch.equal(module.projection, want)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": -1.0}, "scale must be finite and positive, got -1"),
        ({"feature_map": "nonsense"}, "feature_map must be one of"),
        ({"feature_map": "softmax"}, "got 'softmax'; did you mean positive?"),
        ({"feature_map": "rleu"}, "got 'rleu'; did you mean relu?"),
        ({"num_features": None}, "'positive' needs a projection"),
        ({"feature_map": torch.relu, "eps": -1.0}, "eps must be finite and not negative"),
    ],
)
def test_options_that_no_call_could_use_are_refused_by_both_modules(options, message):
    for build in (lambda: FavorSDPA(8, 2, **options), lambda: FavorAttention(16, 2, **options)):
        with pytest.raises((ValueError, RuntimeError), match=message):
            build()


def test_construction_runs_nothing():
    q, k, v = qkv()
    performer.favor_attention(q, k, v, performer.draw_projection(16, 8))
    before, calls = performer.last_kernel(), []
    FavorAttention(16, 2, feature_map="trigonometric")
    FavorSDPA(8, 2, feature_map=lambda u: calls.append(u) or u)
    assert performer.last_kernel() == before != "composed" and not calls


@pytest.mark.parametrize("build", [lambda: FavorSDPA(8, 2, 16), lambda: FavorAttention(16, 2, 16)])
def test_a_checkpoint_of_lower_precision_leaves_the_projection_float32(build):
    state = {
        name: x.bfloat16() for name, x in build().state_dict().items() if x.is_floating_point()
    }
    module = build()
    module.load_state_dict(state, strict=False, assign=True)
    assert module.projection.dtype == torch.float32
    assert torch.equal(module.projection, state["projection"].float())
