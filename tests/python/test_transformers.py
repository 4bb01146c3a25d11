"""FAVOR+ inside models of the package transformers: one attention function, one mask function."""

import subprocess
import sys

import pytest
import torch
import transformers
from small_transformers import CAUSAL, ENCODERS, bert, gpt2, llama, padding, tokens
from transformers.masking_utils import AttentionMaskInterface

import performer
import performer.transformers

ALL = {**ENCODERS, **CAUSAL}


def output(model, ids, mask=None):
    with torch.no_grad():
        return model(ids, attention_mask=mask)[0]


class Oracle:
    """The same attention written down again: float64, the whole matrix, nothing of the product but
    the drawn projection and the definition of the map's weights."""

    def __init__(self, mask, features, seed, near):
        self.mask, self.features, self.seed, self.near = mask, features, seed, near

    def __call__(self, module, query, key, value, attention_mask, scaling, **others):
        causal = module.is_causal
        near = self.near if self.near is not None else 64 if causal else 0
        W = performer.draw_projection(
            self.features, key.shape[-1], key.shape[1], seed=self.seed, layer=module.favor.layer
        )
        weights = performer.attention_map(
            query.double(), key.double(), W.double(), causal=causal, scale=scaling, near=near,
            key_mask=self.mask.bool(),
        )  # fmt: skip
        value = value.repeat_interleave(query.shape[1] // value.shape[1], 1)
        return (weights @ value.double()).to(query.dtype).transpose(1, 2), None


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_is_favor_attention_of_every_layer(name, left):
    model, ids, mask = ALL[name](), tokens(length=150), padding(length=150, left=left)
    options = {"features": 24, "seed": 7, "near": {"esm": 16, "llama": 8}.get(name)}
    performer.patch(model, **options)
    seen = output(model, ids, mask)

    transformers.AttentionInterface.register("oracle", Oracle(mask, **options))
    AttentionMaskInterface.register("oracle", performer.transformers._masks.favor_mask)
    model.set_attn_implementation("oracle")
    expected = output(model, ids, mask)
    real = mask.bool()
    torch.testing.assert_close(seen[real], expected[real], rtol=2e-4, atol=2e-4)


def test_the_number_of_features_decides_how_close_it_comes():
    model, ids, mask = bert(), tokens(), padding()
    exact, errors = output(model, ids, mask), []
    for features in (16, 4096):
        performer.patch(model, features=features)
        errors.append(float((output(model, ids, mask) - exact)[mask.bool()].norm()))
    assert errors[1] < 0.5 * errors[0]


@pytest.mark.parametrize("name", ALL)
def test_pads_change_nothing(name):
    ids = tokens(batch=1, length=70)
    model = performer.patch(ALL[name](), features=32)
    longer = torch.cat([ids, tokens(batch=1, length=20, seed=9)], 1)
    mask = torch.ones_like(longer)
    mask[:, 70:] = 0
    torch.testing.assert_close(
        output(model, longer, mask)[:, :70], output(model, ids), rtol=1e-4, atol=1e-4
    )


def test_attn_implementation_needs_no_patch(tmp_path):
    model = performer.patch(llama(), features=16, near=8, keep_exact=(1,), seed=3)
    model.save_pretrained(tmp_path)
    again = transformers.LlamaForCausalLM.from_pretrained(tmp_path, attn_implementation="favor")
    assert again.config.favor == {
        "features": 16, "near": 8, "seed": 3, "feature_map": "positive", "keep_exact": [1],
        "fitted": False,
    }  # fmt: skip
    torch.testing.assert_close(output(again, tokens()), output(model, tokens()), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_projection_stays_float32(dtype):
    model = performer.patch(llama(), features=16)
    before = model.model.layers[2].self_attn.favor.projection.clone()
    model.to(dtype)
    after = model.model.layers[2].self_attn.favor.projection
    assert after.dtype == torch.float32 and after.equal(before)
    assert output(model, tokens()).isfinite().all()


def test_layers_and_seeds_have_their_own_projection():
    def drawn(seed):
        layers = performer.patch(bert(), seed=seed).encoder.layer
        return [layer.attention.self.favor.projection for layer in layers]

    one, two = drawn(0), drawn(1)
    assert not one[0].equal(one[1]) and not one[0].equal(two[0])
    assert one[2].equal(performer.draw_projection(64, 8, 4, seed=0, layer=2))


def test_unpatch_gives_the_model_back():
    model, ids = bert(), tokens()
    before, keys = output(model, ids), set(model.state_dict())
    performer.patch(model)
    assert performer.last_kernel() is not None and set(model.state_dict()) == keys
    performer.unpatch(model)
    assert torch.equal(output(model, ids), before)
    assert not hasattr(model.config, "favor") and model.config._attn_implementation == "sdpa"


def test_patching_again_draws_again():
    model, ids = bert(), tokens()
    before = output(model, ids)
    first = output(performer.patch(model, seed=0), ids)
    second = output(performer.patch(model, seed=1), ids)
    assert not torch.equal(first, second)
    assert torch.equal(output(performer.unpatch(model), ids), before)


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_kept_layers_are_exact(name):
    model, ids, mask = ALL[name](), tokens(), padding()
    with torch.no_grad():
        exact = model(ids, attention_mask=mask, output_hidden_states=True).hidden_states
        performer.patch(model, layers=[2], near=0)
        mixed = model(ids, attention_mask=mask, output_hidden_states=True).hidden_states
    real = mask.bool()
    torch.testing.assert_close(mixed[2][real], exact[2][real], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(mixed[3][real], exact[3][real], atol=1e-2)


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_compiles_whole(name, fresh_dynamo):
    model, ids, mask = performer.patch(ALL[name](), features=16), tokens(), padding()
    given = {"input_ids": ids, "attention_mask": mask}
    if name == "llama":
        given["use_cache"] = False
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(**given)[0], model(**given)[0])


def test_compiled_code_asks_for_a_mask(fresh_dynamo):
    compiled = torch.compile(performer.patch(llama()), backend="eager", fullgraph=True)
    with pytest.raises(Exception, match="pass an attention_mask"):
        compiled(tokens(), use_cache=False)


def test_features_drawn_in_inference_mode_can_be_trained_beside():
    model = llama()
    model.set_attn_implementation("favor")
    with torch.inference_mode():
        model(tokens())
    model(tokens(), labels=tokens()).loss.backward()


def test_gradients_reach_the_weights():
    model = performer.patch(llama(), features=16).train()
    model(tokens(), labels=tokens()).loss.backward()
    for layer in model.model.layers:
        assert layer.self_attn.q_proj.weight.grad.norm() > 0


def favor(make=bert, **options):
    return performer.patch(make(), **options)


def window(model, mask=None):
    return lambda: model(tokens(), attention_mask=mask)


def mistral():
    config = llama().config.to_dict()
    for name in ("architectures", "model_type", "attention_bias", "mlp_bias", "pretraining_tp"):
        config.pop(name, None)
    return transformers.MistralForCausalLM(
        transformers.MistralConfig(**{**config, "sliding_window": 50})
    ).eval()


def gemma():
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 16}
    more = {"num_key_value_heads": 1, "intermediate_size": 32, "vocab_size": 64}
    return transformers.Gemma2ForCausalLM(
        transformers.Gemma2Config(**sizes, **more, layer_types=["full_attention"])
    ).eval()


def random_mask():
    return torch.rand(2, 1, 90, 90) > 0.5


def packed():
    positions = torch.cat([torch.arange(40), torch.arange(50)]).expand(2, -1)
    favor(llama)(tokens(), position_ids=positions, use_cache=False)


def cache_of_keys():
    model = favor(llama)
    past = transformers.DynamicCache(config=model.config)
    model(tokens(), past_key_values=past)
    model(tokens(length=1), past_key_values=past)


def prefix():
    model = favor(llama)
    transformers.masking_utils.create_causal_mask(
        config=model.config, inputs_embeds=torch.zeros(2, 9, 32), attention_mask=None,
        past_key_values=None, or_mask_function=lambda b, h, q, k: k < 4,
    )  # fmt: skip


def attend(**others):
    module = favor().encoder.layer[0].attention.self
    q = torch.randn(1, 4, 6, 8)
    return performer.transformers._attention.favor_attention_forward(
        module, q, q, q, None, **others
    )


REFUSALS = [
    (lambda: favor(mistral)(tokens()), "sliding window or chunk of 50 tokens, got 90 keys"),
    (lambda: favor()(tokens(), attention_mask=random_mask()), "attn_mask must be causal"),
    (packed, "packed sequences"),
    (prefix, "a prefix, an overlay"),
    (lambda: favor(gemma)(tokens()), "softcap"),
    (lambda: attend(s_aux=torch.zeros(4)), "s_aux is not possible: sinks"),
    (lambda: attend(head_mask=torch.ones(4)), "head_mask"),
    (lambda: attend(position_bias=torch.ones(1)), "position_bias"),
    (lambda: favor()(tokens(), output_attentions=True), "output_attentions"),
    (lambda: favor(llama)(tokens(), output_attentions=True), "output_attentions"),
    (
        lambda: favor(lambda: bert(attention_probs_dropout_prob=0.1)).train()(tokens()),
        "dropout of attention weights must be 0, got 0.1",
    ),
    (cache_of_keys, "performer.FavorCache"),
    (lambda: performer.patch(torch.nn.Linear(2, 2)), "must be a transformers model"),
    (lambda: performer.patch(bert(), keep_exact=(3,)), "layers from 0 to 2, got 3"),
    (lambda: performer.patch(bert(), layers=[]), "at least one layer"),
    (lambda: performer.patch(bert(), features=0), "features must be a whole number from 1"),
    (lambda: performer.patch(bert(), near=-1), "near must be a whole number from 0"),
    (lambda: performer.patch(bert(), feature_map="linear"), "linear"),
    (lambda: performer.unpatch(bert()), "must be a patched model"),
]


@pytest.mark.parametrize(("call", "words"), REFUSALS, ids=[words[:30] for _, words in REFUSALS])
def test_refuses_by_name(call, words):
    with pytest.raises((ValueError, TypeError, RuntimeError)) as error, torch.no_grad():
        call()
    assert words in str(error.value)
    assert "\n" not in str(error.value).split("\nException raised")[0].strip()


@pytest.mark.parametrize(
    ("entry", "words"),
    [({"feature": 3}, "unknown entry 'feature'"), ([1], "must be a dictionary"),
     ({"features": True}, "features must be a whole number"),
     ({"keep_exact": 3}, "keep_exact must be a list"),
     ({"features": 10**9}, "from 1 to 65536")],
)  # fmt: skip
def test_a_config_is_checked(entry, words):
    model = bert()
    model.config.favor = entry
    model.set_attn_implementation("favor")
    with pytest.raises(ValueError, match=words):
        output(model, tokens())


def test_a_window_that_holds_the_whole_sequence_is_none():
    model, ids = mistral(), tokens(length=50)
    torch.testing.assert_close(
        output(performer.patch(model, near=64), ids), output(performer.unpatch(model), ids),
        rtol=1e-4, atol=1e-4,
    )  # fmt: skip


@pytest.mark.parametrize("batch", [1, 2])
def test_an_own_causal_mask_is_read(batch):
    model, ids = favor(gpt2, features=16), tokens(batch)
    own = torch.ones(90, 90, dtype=torch.bool).tril().expand(batch, 1, -1, -1)
    torch.testing.assert_close(output(model, ids, own), output(model, ids))


def test_the_package_does_not_need_transformers():
    code = """
import sys
sys.modules["transformers"] = None
import performer
try:
    performer.patch
except ImportError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "needs the package transformers, version 5 or later" in run.stdout
    assert run.stdout.count("\n") == 1 and "transformers" not in run.stderr
