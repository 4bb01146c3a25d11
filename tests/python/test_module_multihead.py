"""FavorAttention in the place of nn.MultiheadAttention: weights, layouts, masks."""

import copy
import inspect

import pytest
import torch
from torch import nn

import performer
from performer import FavorAttention, MultiheadAttention

LOWER = torch.ones(7, 7, dtype=torch.bool).tril()
PADDING = torch.arange(7) >= torch.tensor([[7], [4]])  # [B, L], True is padding


def additive(removed):
    return torch.zeros(removed.shape).masked_fill(removed, -torch.inf)


def exact_layer(**options):
    return nn.MultiheadAttention(8, 2, **options)


def test_arguments_are_those_of_torch_in_the_same_order():
    theirs = list(inspect.signature(nn.MultiheadAttention.__init__).parameters.values())
    ours = list(inspect.signature(MultiheadAttention.__init__).parameters.values())
    for mine, other in zip(ours, theirs, strict=False):
        assert (mine.name, mine.default) == (other.name, other.default)
    theirs = list(inspect.signature(nn.MultiheadAttention.forward).parameters)
    assert list(inspect.signature(MultiheadAttention.forward).parameters) == theirs


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("widths", [{}, {"kdim": 6, "vdim": 5}])
@pytest.mark.parametrize("bias", [False, True])
def test_takes_over_weights_and_layout(batch_first, widths, bias):
    exact = exact_layer(batch_first=batch_first, bias=bias, **widths).eval()
    for parameter in exact.parameters():
        nn.init.normal_(parameter, std=0.3)
    x = 0.5 * torch.randn((2, 7, 8) if batch_first else (7, 2, 8))
    key = 0.5 * torch.randn(*x.shape[:2], widths.get("kdim", 8))
    value = torch.randn(*x.shape[:2], widths.get("vdim", 8))
    want, _ = exact(x, key, value, key_padding_mask=PADDING)
    for kind in (FavorAttention, MultiheadAttention):
        mine = kind.from_multihead(exact, 4096)
        assert not mine.training and mine.batch_first == batch_first
        out, weights = mine(x, key, value, key_padding_mask=PADDING, need_weights=False)
        assert weights is None
        assert (out - want).square().mean() < 0.01 * want.square().mean()


def test_loads_the_state_dict_of_a_model_with_the_other_layer():
    exact = nn.Sequential(nn.Linear(8, 8), exact_layer())
    mine = nn.Sequential(nn.Linear(8, 8), MultiheadAttention(8, 2, num_features=6))
    W = mine[1].projection.clone()
    state = exact.state_dict()
    names = set(state)
    assert mine.load_state_dict(state).missing_keys == []
    assert set(state) == names, "the caller's dict is not ours to change"
    weight = exact[1].in_proj_weight
    assert torch.equal(mine[1].q_proj.weight, weight[:8])
    assert torch.equal(mine[1].k_proj.weight, weight[8:16])
    assert torch.equal(mine[1].v_proj.weight, weight[16:])
    assert torch.equal(mine[1].in_proj_weight.as_subclass(torch.Tensor), weight)
    assert torch.equal(mine[1].in_proj_bias.as_subclass(torch.Tensor), exact[1].in_proj_bias)
    assert torch.equal(mine[1].projection, W)


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("widths", [{}, {"kdim": 6}])
def test_a_layer_without_memory_of_its_own_draws_its_projection(assign, widths):
    state = exact_layer(**widths).state_dict()
    want = MultiheadAttention(8, 2, **widths)
    want.load_state_dict(state)
    mine = MultiheadAttention(8, 2, device="meta", redraw_interval=3, **widths)
    if not assign:
        mine.to_empty(device="cpu")
        for buffer in mine.buffers():
            buffer.fill_(-7)  # as any that to_empty() finds
    mine.load_state_dict(state, assign=assign)
    x, key = torch.randn(7, 2, 8), torch.randn(7, 2, widths.get("kdim", 8))
    assert torch.equal(mine(x, key, x)[0], want(x, key, x)[0])
    assert int(mine.draw) == 0 and int(mine.calls) == 1


def test_a_state_dict_that_does_not_fit_is_refused():
    layer = FavorAttention(8, 2, 6)
    with pytest.raises(RuntimeError, match="in_proj_weight must have 24 rows"):
        layer.load_state_dict(nn.MultiheadAttention(12, 2).state_dict())
    with pytest.raises(RuntimeError, match="Unexpected key.*bias_k"):
        layer.load_state_dict(exact_layer(add_bias_kv=True).state_dict())
    missing = {n: t for n, t in layer.state_dict().items() if n != "projection"}
    with pytest.raises(RuntimeError, match="Missing key.*projection"):
        layer.load_state_dict(missing)


def test_starts_from_the_other_layers_distribution():
    mine, exact = MultiheadAttention(256, 2), nn.MultiheadAttention(256, 2)
    got, want = mine.in_proj_weight, exact.in_proj_weight
    assert abs(got.abs().max() / want.abs().max() - 1) < 0.01
    assert abs(got.std() / want.std() - 1) < 0.02
    assert not mine.in_proj_bias.any() and not mine.out_proj.bias.any()


@pytest.mark.parametrize("kind", [FavorAttention, MultiheadAttention])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dropout": 0.1}, "dropout must be 0, got 0.1"),
        ({"add_bias_kv": True}, "add_bias_kv must be False"),
        ({"add_zero_attn": True}, "add_zero_attn must be False"),
        ({"rotary": True}, "rotary needs an even head width, got 5"),
    ],
)
def test_what_has_no_counterpart_is_refused(kind, options, message):
    with pytest.raises(ValueError, match=message) as error:
        kind(10, 2, **options)
    assert "\n" not in str(error.value)


def test_dropout_of_another_layer_goes_only_when_told():
    exact = exact_layer(dropout=0.1)
    with pytest.raises(ValueError, match=r"dropout must be 0, got 0.1.*pass dropout=0.0"):
        FavorAttention.from_multihead(exact)
    assert FavorAttention.from_multihead(exact, dropout=0.0).dropout == 0


def test_dropout_in_the_place_of_the_features_is_named():
    with pytest.raises(TypeError, match="num_features must be a whole number, got 0.1"):
        FavorAttention(8, 2, 0.1)


def test_the_result_stays_a_tensor_unless_weights_are_named():
    layer, x = FavorAttention(8, 2, 64, causal=True), torch.randn(2, 7, 8)
    out = layer(x)
    again, nothing = layer(x, need_weights=False)
    assert torch.equal(out, again) and nothing is None
    again, weights = layer(x, need_weights=True, average_attn_weights=False)
    assert torch.equal(out, again) and weights.shape == (2, 2, 7, 7)
    v = layer.v_proj(x).unflatten(-1, (2, 4)).transpose(1, 2)
    torch.testing.assert_close(layer.out_proj((weights @ v).transpose(1, 2).flatten(2)), out)
    torch.testing.assert_close(layer(x, need_weights=True)[1], weights.mean(1))
    with pytest.raises(ValueError, match="leave need_weights out"):
        layer(x, need_weights=False, return_state=True)
    with pytest.raises(ValueError, match="got an initial_state"):
        layer(x, need_weights=True, initial_state=layer(x, return_state=True)[1])


def test_length_first_is_the_transpose_of_batch_first():
    layer = FavorAttention(8, 2, 6, causal=True)
    turned = FavorAttention(8, 2, 6, causal=True, batch_first=False)
    turned.load_state_dict(layer.state_dict())
    x = torch.randn(2, 7, 8)
    out, state = layer(x, return_state=True)
    got, got_state = turned(x.transpose(0, 1), return_state=True)
    torch.testing.assert_close(got.transpose(0, 1), out)
    step, _ = layer.step(x[:, :1], state)
    torch.testing.assert_close(turned.step(x[:, :1].transpose(0, 1), got_state)[0][0], step[:, 0])
    with pytest.raises(ValueError, match=r"query must be \[length, batch, 8\], got \[7, 8\]"):
        turned(x[0])


def test_a_sequence_without_batch():
    layer, x = MultiheadAttention(8, 2, num_features=6), torch.randn(7, 8)
    out, weights = layer(x, x, x, PADDING[1], True)
    batch, batch_weights = layer(*(x[:, None],) * 3, PADDING[1:], True)
    assert torch.equal(out, batch[:, 0]) and torch.equal(weights, batch_weights[0])


MASKS = {
    "bool causal": {"attn_mask": ~LOWER},
    "additive causal": {"attn_mask": additive(~LOWER)},
    "per head causal": {"attn_mask": (~LOWER).expand(4, 7, 7).contiguous()},
    "causal by word": {"attn_mask": ~LOWER, "is_causal": True},
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
def test_causal_masks_are_read(mask):
    layer, x = FavorAttention(8, 2, 6), torch.randn(2, 7, 8)
    causal = FavorAttention(8, 2, 6, causal=True)
    causal.load_state_dict(layer.state_dict())
    assert torch.equal(layer(x, **mask), causal(x))
    assert torch.equal(causal(x, **mask), causal(x))
    padded = {"key_padding_mask": PADDING}
    assert torch.equal(layer(x, **mask, **padded), causal(x, **padded))


@pytest.mark.parametrize("padding", [PADDING, additive(PADDING)], ids=["bool", "additive"])
def test_padding_inside_attn_mask_is_read(padding):
    layer, x = FavorAttention(8, 2, 6), torch.randn(2, 7, 8)
    whole = padding[:, None, None].expand(2, 2, 7, 7).flatten(0, 1)
    want = layer(x, key_mask=~PADDING)
    assert torch.equal(layer(x, attn_mask=whole.contiguous()), want)
    assert torch.equal(layer(x, key_padding_mask=padding), want)


def test_masks_of_single_pairs_are_refused():
    layer, x = FavorAttention(8, 2, 6), torch.randn(2, 7, 8)
    window = LOWER & LOWER.T.roll(2, 1)
    with pytest.raises(ValueError, match="attn_mask must be causal, or the same for every query"):
        layer(x, attn_mask=window)
    with pytest.raises(ValueError, match=r"attn_mask must broadcast to \[2, 2, 7, 7\]"):
        layer(x, attn_mask=LOWER[:, :5])
    with pytest.raises(ValueError, match="attn_mask must be bool or floating, got torch.int64"):
        layer(x, attn_mask=LOWER.long())


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_is_refused_by_name():
    layer = performer.FavorAttention(8, 2, 6)
    nested = torch.nested.nested_tensor([torch.randn(3, 8), torch.randn(5, 8)])
    with pytest.raises(ValueError, match="query must be .*, got a nested tensor"):
        layer(nested)


@pytest.mark.parametrize(
    "write",
    [
        lambda layer: nn.init.normal_(layer.in_proj_weight),
        lambda layer: nn.init.constant_(layer.in_proj_bias, 0.0),
        lambda layer: layer.in_proj_weight.data.normal_(),
        lambda layer: layer.in_proj_weight.requires_grad_(False),
        lambda layer: layer.in_proj_weight.__setitem__(0, 1.0),
        lambda layer: torch.add(torch.zeros(24), 1.0, out=layer.in_proj_bias),
        lambda layer: nn.init.zeros_(layer.in_proj_weight[:8]),
        lambda layer: layer.in_proj_weight[:8].__setitem__(0, 1.0),
        lambda layer: layer.in_proj_weight.chunk(3)[1].zero_(),
        lambda layer: layer.in_proj_weight.split(8)[1].T[0].zero_(),
        lambda layer: next(iter(layer.in_proj_weight.unbind())).zero_(),
        lambda layer: torch.narrow(input=layer.in_proj_weight, dim=0, start=8, length=8).zero_(),
        lambda layer: layer.in_proj_weight.detach().zero_(),
        lambda layer: layer.in_proj_weight.view(-1).zero_(),
        lambda layer: layer.in_proj_bias.reshape(3, 8)[0].copy_(torch.ones(8)),
    ],
)
def test_a_joined_weight_refuses_what_would_vanish(write):
    with pytest.raises(RuntimeError, match="are copies.*write to q_proj, k_proj and v_proj"):
        write(MultiheadAttention(8, 2))


def test_copies_and_files_of_a_joined_weight_are_plain(tmp_path):
    weight = MultiheadAttention(8, 2).in_proj_weight.detach()
    torch.save({"w": weight}, tmp_path / "weight.pt")
    loaded = torch.load(tmp_path / "weight.pt", weights_only=True)["w"]
    for plain in (loaded, copy.deepcopy(weight), weight.as_subclass(torch.Tensor)):
        assert type(plain) is torch.Tensor and torch.equal(plain, weight)


def test_what_is_computed_from_a_joined_weight_is_plain():
    layer = MultiheadAttention(8, 2)
    weight = layer.in_proj_weight
    for computed in (weight + 1, weight.clone(), weight[:8] * 2, weight.detach().double()):
        assert type(computed) is torch.Tensor
    weight.detach().clone().zero_()
    layer.q_proj.weight.data.copy_(layer.in_proj_weight[8:16])
    assert torch.equal(layer.q_proj.weight, layer.k_proj.weight)
    layer.in_proj_weight.sum().backward()
    assert layer.v_proj.weight.grad.eq(1).all()


@pytest.mark.usefixtures("fresh_dynamo")
def test_a_joined_weight_is_read_by_compiled_code():
    layer, x = MultiheadAttention(8, 2), torch.randn(5, 2, 8)

    def project(x):
        parts = nn.functional.linear(x, layer.in_proj_weight, layer.in_proj_bias).chunk(3, -1)
        return parts[0] * layer.in_proj_weight[:8].sum() + parts[2] * layer.in_proj_bias.detach()[0]

    got = torch.compile(project, fullgraph=True, backend="aot_eager")(x)
    assert type(got) is torch.Tensor
    torch.testing.assert_close(got, project(x))
    learned = [layer.q_proj.weight, layer.v_proj.bias]
    for one, other in zip(
        *(torch.autograd.grad(y.sum(), learned) for y in (got, project(x))), strict=True
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("widths", [{}, {"kdim": 6}])
def test_what_is_frozen_stays_frozen(widths):
    exact = exact_layer(**widths)
    frozen = {
        "in_proj_weight" if not widths else "q_proj_weight": {"q_proj.weight"},
        "out_proj.bias": {"out_proj.bias"},
    }
    for name in frozen:
        exact.get_parameter(name).requires_grad_(False)
    want = set.union(*frozen.values()) | (set() if widths else {"k_proj.weight", "v_proj.weight"})
    mine = FavorAttention.from_multihead(exact)
    assert {name for name, p in mine.named_parameters() if not p.requires_grad} == want


def test_conversion_takes_options_of_its_own_and_happens_once():
    exact = exact_layer()
    mine = MultiheadAttention.from_multihead(exact, 6, batch_first=True, dtype=torch.float64)
    assert mine.batch_first and mine.q_proj.weight.dtype == torch.float64
    assert (mine.bias_k, mine.bias_v, mine.add_zero_attn) == (None, None, False)
    with pytest.raises(TypeError, match="got a MultiheadAttention, which is converted already"):
        FavorAttention.from_multihead(mine)


@pytest.mark.parametrize("other", [nn.Linear(2, 2), nn.TransformerEncoderLayer(8, 2), None])
def test_what_is_no_multihead_attention_is_named(other):
    with pytest.raises(TypeError, match="torch.nn.MultiheadAttention, got a ") as error:
        MultiheadAttention.from_multihead(other)
    assert str(error.value).endswith(f"got a {type(other).__name__}")


def test_masks_of_other_forms_are_refused():
    layer, x = MultiheadAttention(8, 2, batch_first=True), torch.randn(2, 7, 8)
    for mask in (LOWER.expand(2, 7, 7), LOWER.expand(2, 1, 7, 7)):
        with pytest.raises(ValueError, match=r"must be \[7, 7\] .* or \[4, 7, 7\]"):
            layer(x, x, x, attn_mask=mask)
    with pytest.raises(ValueError, match=r"key_padding_mask must be \[2, 7\].*got \[2, 6\]"):
        layer(x, x, x, key_padding_mask=PADDING[:, :6])
    bias = torch.linspace(-1, 1, 7).expand(7, 7)
    with pytest.raises(ValueError, match="attn_mask must be bool .* with feature_map 'relu'"):
        FavorAttention(8, 2, feature_map="relu")(x, attn_mask=bias)


def test_padding_may_be_minus_1e9():
    layer, x = MultiheadAttention(8, 2, batch_first=True), torch.randn(2, 7, 8)
    want, _ = layer(x, x, x, key_padding_mask=PADDING)
    got, _ = layer(x, x, x, key_padding_mask=additive(PADDING).clamp_min(-1e9))
    assert torch.equal(got, want)


def test_weights_have_the_dtype_of_the_layer():
    x = torch.randn(2, 7, 8, dtype=torch.bfloat16)
    layer = MultiheadAttention(8, 2, batch_first=True, dtype=torch.bfloat16)
    assert layer(x, x, x, need_weights=True)[1].dtype == torch.bfloat16


def test_a_causal_layer_is_prefilled_and_steps():
    layer = MultiheadAttention(8, 2, causal=True, batch_first=True)
    x = torch.randn(2, 7, 8)
    want, _ = layer(x, x, x)
    out, state = FavorAttention.forward(layer, x[:, :6], return_state=True)
    last, _ = layer.step(x[:, 6:], state)
    torch.testing.assert_close(torch.cat([out, last], 1), want)


def test_a_position_below_0_is_refused():
    with pytest.raises(ValueError, match="position must be at least 0, got -1"):
        FavorAttention(8, 2)(torch.randn(2, 7, 8), position=-1)


def test_a_state_dict_with_a_number_for_a_weight_is_refused():
    with pytest.raises(RuntimeError, match=r"in_proj_weight must have 24 rows.*got \[\]"):
        FavorAttention(8, 2).load_state_dict({"in_proj_weight": torch.tensor(1.0)})
