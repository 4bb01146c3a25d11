"""Bad input gets one clear message with the argument's name and the value seen."""

import pytest
import torch
from small_inputs import inputs

import performer

NAN = float("nan")


def attend(feature_map="positive", **changes):
    q, k, v, W = inputs(feature_map, B=2, H=4, Hkv=2)
    named = {"q": q, "k": k, "v": v, "W": W} | changes
    positional = [named.pop(name) for name in ("q", "k", "v", "W")]
    return performer.favor_attention(*positional, feature_map, **named)


def tensor(*shape, dtype=torch.float64):
    return torch.zeros(*shape, dtype=dtype)


CASES = {
    "rank of q": ({"q": tensor(4, 4, 2)}, r"q must be .*\[4, 4, 2\]"),
    "rank of k": ({"k": tensor(4)}, r"k must be .*\[4\]"),
    "batch of k": ({"k": tensor(3, 2, 4, 2)}, r"k .*3"),
    "width of k": ({"k": tensor(2, 2, 4, 5)}, r"k .*5"),
    "length of v": ({"v": tensor(2, 2, 6, 2)}, r"v .*6"),
    "heads of k": ({"k": tensor(2, 3, 4, 2), "v": tensor(2, 3, 4, 2)}, r"heads.*3"),
    "dtype of v": ({"v": tensor(2, 2, 4, 2, dtype=torch.float32)}, "dtype"),
    "integers": (
        {name: tensor(2, 4, 4, 2, dtype=torch.int64) for name in "qkv"},
        "Long|int64|Int",
    ),
    "device of k": ({"k": tensor(2, 2, 4, 2).to("meta")}, "device"),
    "width of W": ({"W": tensor(3, 7)}, r"W must have the width of q, 2, got \[3, 7\]"),
    "rank of W": ({"W": tensor(3)}, r"W must be .*\[3\]"),
    "heads of W": ({"W": tensor(3, 3, 2)}, r"W .*3"),
    "no features": ({"W": tensor(0, 2)}, r"W .*\[0, 2\]"),
    "half W": ({"W": tensor(3, 2, dtype=torch.float16)}, r"W .*(Half|float16)"),
    "no W": ({"W": None}, "W|projection"),
    "length of key_mask": ({"key_mask": tensor(2, 5, dtype=torch.bool)}, r"key_mask .*\[2, 5\]"),
    "dtype of key_mask": ({"key_mask": tensor(2, 4)}, r"key_mask .*(Double|double|float64)"),
    "causal lengths": (
        {"causal": True, "k": tensor(2, 2, 5, 2), "v": tensor(2, 2, 5, 2)},
        r"causal .*\[2, 4, 4, 2\].*\[2, 2, 5, 2\]",
    ),
    "eps": ({"eps": 1e-6}, "eps"),
    "scale": ({"scale": -1.0}, "scale .*-1"),
    "nan scale": ({"scale": NAN}, "scale .*nan"),
    "width of bias_k": ({"bias_k": tensor(4)}, r"bias_k .*\[4\]"),
    "heads of bias_q": ({"bias_q": tensor(3, 3)}, r"bias_q .*\[3, 3\]"),
    "shape of key_bias": ({"key_bias": tensor(2, 2, 5)}, r"key_bias .*\[2, 2, 5\]"),
    "projection_k": ({"projection_k": tensor(4, 2)}, r"projection_k .*4"),
    "one cu_seqlens": ({"cu_seqlens_q": torch.tensor([0, 4])}, "cu_seqlens"),
}


@pytest.mark.parametrize(("changes", "message"), CASES.values(), ids=CASES.keys())
def test_message_names_the_argument_and_the_value(changes, message):
    with pytest.raises(RuntimeError, match=message) as error:
        attend(**changes)
    first = str(error.value).splitlines()[0]
    assert first.startswith("favor_attention: ")


def test_unknown_map_lists_the_known_ones():
    with pytest.raises(RuntimeError, match="softmax") as error:
        performer.favor_attention(*inputs("positive"), "softmax")
    for name in ("positive", "loglinear", "trigonometric", "relu", "elu1", "sgn"):
        assert name in str(error.value)


def test_eps_with_a_softmax_map_says_why():
    with pytest.raises(RuntimeError, match=r"eps.*positive|positive.*eps"):
        attend(eps=1e-6)
    with pytest.raises(RuntimeError, match="exact|no eps|ratio|needs none"):
        attend(eps=1e-6)


@pytest.mark.parametrize("name", ["bias_q", "bias_k", "key_bias"])
def test_biases_with_a_generalised_map(name):
    value = tensor(2, 2, 4) if name == "key_bias" else tensor(3)
    with pytest.raises(RuntimeError, match=f"{name}.*relu"):
        attend("relu", **{name: value})


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ([0, 3, 2, 4], "cu_seqlens_q"),
        ([1, 4], "cu_seqlens_q"),
        ([0, 5], "cu_seqlens_q"),
        ([[0, 4]], "cu_seqlens_q"),
    ],
)
def test_bounds_of_packed_sequences(bounds, message):
    q, k, v, W = inputs("positive")
    good = torch.tensor([0, 4])
    with pytest.raises(RuntimeError, match=message):
        performer.favor_attention(q, k, v, W, cu_seqlens_q=torch.tensor(bounds), cu_seqlens_k=good)


class TestState:
    def state(self):
        q, k, v, W = inputs("positive")
        return performer.favor_attention(q, k, v, W, return_state=True)[1]

    @pytest.mark.parametrize(
        "changes",
        [{"W": 2}, {"feature_map": "loglinear"}, {"scale": 0.5}],
        ids=["projection", "map", "scale"],
    )
    def test_of_another_projection_map_or_scale(self, changes):
        q, k, v, W = inputs("positive")
        W = W * changes.pop("W", 1)
        with pytest.raises(RuntimeError, match="favor_attention: .*state"):
            performer.favor_attention(q, k, v, W, initial_state=self.state(), **changes)

    def test_of_another_batch(self):
        with pytest.raises(RuntimeError, match="state"):
            performer.favor_attention(
                *inputs("positive", B=2), initial_state=self.state()._replace(fingerprint=None)
            )

    @pytest.mark.parametrize(
        "fingerprint", [torch.tensor([1.5]), torch.tensor([1, 2]), torch.tensor([[1]])]
    )
    def test_merge_of_no_fingerprint(self, fingerprint):
        wrong = self.state()._replace(fingerprint=fingerprint)
        for pair in ((self.state(), wrong), (wrong, wrong)):
            with pytest.raises(ValueError, match=r"fingerprint must be int64 \[1\], got"):
                performer.merge_states(*pair)

    @pytest.mark.parametrize(
        "index",
        [
            torch.tensor([1]),
            torch.tensor([-1]),
            torch.tensor([0.0]),
            torch.tensor([True]),
            torch.tensor([[0]]),
            torch.tensor([0], device="meta"),
        ],
    )
    def test_reorder_by_what_is_no_sequence(self, index):
        with pytest.raises(IndexError, match=r"FavorState.reorder: index must be int64 .* below 1"):
            self.state().reorder(index)

    def test_reorder_of_no_sequences(self):
        none = self.state().reorder(torch.tensor([], dtype=torch.int64))
        assert none.reorder(torch.tensor([], dtype=torch.int64)).kv.shape == none.kv.shape
        with pytest.raises(IndexError, match="of sequences below 0 on cpu"):
            none.reorder(torch.tensor([0]))

    def test_reorder_without_memory_says_so(self):
        kv = torch.zeros(()).expand(1, 2**20, 2**20, 2**10)  # 4 PiB once it is copied
        with pytest.raises(RuntimeError, match="can't allocate memory"):
            self.state()._replace(kv=kv).reorder(torch.tensor([0]))

    def test_concatenation_of_other_forms(self):
        state = self.state()
        for other in (state._replace(kv=state.kv.float()), state._replace(kv=state.kv[:, :0])):
            with pytest.raises(ValueError, match="must agree but for the number of sequences"):
                performer.FavorState.concatenate([state, other])

    def test_merge_of_other_shapes(self):
        state = self.state()
        other = state._replace(kv=state.kv[..., :1])
        with pytest.raises(RuntimeError, match="merge_states: .*1"):
            performer.merge_states(state, other)


class TestStep:
    def test_takes_one_token(self):
        q, k, v, W = inputs("positive")
        with pytest.raises(ValueError, match=r"favor_step: q must be .*got \[1, 2, 4, 2\]"):
            performer.favor_step(q, k, v, W)

    def test_is_causal(self):
        q, k, v, W = (t[:, :, :1] for t in inputs("positive"))
        with pytest.raises(ValueError, match="causal=False"):
            performer.favor_step(q, k, v, W, causal=False)


class TestCallable:
    def test_wrong_arguments(self):
        q, k, v, W = inputs("relu")
        with pytest.raises(TypeError, match="must be a name or a function, got 3"):
            performer.favor_attention(q, k, v, W, 3)
        with pytest.raises(ValueError, match=r"q must be .*got \[2, 4, 2\]"):
            performer.favor_attention(q[0], k, v, W, torch.relu)
        with pytest.raises(ValueError, match=r"W must be .*got \[1, 3, 1\]"):
            performer.favor_attention(q, k, v, W[..., :1], torch.relu)
        with pytest.raises(ValueError, match="one floating-point dtype"):
            performer.favor_attention(q, k, v.float(), W, torch.relu)
        with pytest.raises(ValueError, match=r"heads, got \[3, "):
            performer.favor_attention(q, k, v, tensor(3, 3, 2), torch.relu)
        with pytest.raises(ValueError, match="projection_k is for the maps"):
            performer.favor_attention(q, k, v, W, torch.relu, projection_k=W)
        with pytest.raises(RuntimeError, match="key_bias"):
            performer.favor_attention(q, k, v, W, torch.relu, key_bias=tensor(1, 1, 4))

    @pytest.mark.parametrize("name", "qkv")
    def test_no_heads(self, name):
        tensors = dict(zip("qkvW", inputs("relu"), strict=True))
        tensors[name] = tensors[name][:, :0]
        with pytest.raises(ValueError, match=f"{name} must have at least one head, got"):
            performer.favor_attention(*tensors.values(), torch.relu)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"W": tensor(2)}, r"features: W must be \[M, D\].*got \[2\]"),
            ({"W": tensor(1, 3, 2)}, r"W must be .*got \[1, 3, 2\]"),
            ({"eps": NAN}, "features: eps must be finite and not negative, got nan"),
        ],
    )
    def test_features_keep_the_rules_of_the_named_maps(self, options, message):
        for feature_map in ("relu", torch.relu):
            with pytest.raises((ValueError, RuntimeError), match=message.split(".*")[0]):
                performer.features(tensor(4, 2), feature_map=feature_map, **options)

    @pytest.mark.parametrize("W", [None, tensor(3, 2)], ids=["alone", "projected"])
    def test_features_of_whole_numbers_would_be_truncated(self, W):
        whole = torch.ones(4, 2, dtype=torch.int64)
        for feature_map in ("sigmoid", torch.sigmoid):
            with pytest.raises((ValueError, RuntimeError), match="x must be a floating point"):
                performer.features(whole, W, feature_map)

    def test_features_take_no_bias(self):
        with pytest.raises(ValueError, match="bias belongs to the softmax maps"):
            performer.features(tensor(4, 2), None, torch.relu, tensor(2))


def test_no_query_heads_are_refused():
    q = torch.randn(1, 2, 5, 16)
    with pytest.raises(RuntimeError, match="neither 0"):
        performer.favor_attention(q[:, :0], q, q, performer.draw_projection(32, 16))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": -1.0}, "scale must be finite and positive, got -1.0"),
        ({"eps": float("nan")}, "eps must be finite and not negative, got nan"),
        ({"key_mask": torch.ones(1, 5, dtype=torch.int64)}, "key_mask must be bool"),
    ],
)
def test_a_callable_map_keeps_the_rules_of_the_options(options, message):
    q = torch.randn(1, 2, 5, 16)
    with pytest.raises(ValueError, match=message):
        performer.favor_attention(q, q, q, None, torch.relu, **options)


def test_a_callable_map_keeps_the_rule_of_heads():
    q = torch.randn(1, 2, 5, 16)
    with pytest.raises(ValueError, match=r"heads, got \[4, 32, 16\]"):
        performer.favor_attention(q, q, q, performer.draw_projection(32, 16, heads=4), torch.relu)


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_what_is_no_tensor_is_named_and_not_printed(name):
    q, k, v, W = inputs("positive")
    arguments = {"q": q, "k": k, "v": v} | {name: q.numpy()}
    for function in (performer.favor_attention, performer.favor_step):
        with pytest.raises(TypeError) as caught:
            function(*arguments.values(), W)
        text = f"{function.__name__}: {name} must be a torch.Tensor, got numpy.ndarray; "
        assert str(caught.value) == text + "torch.as_tensor makes one"
