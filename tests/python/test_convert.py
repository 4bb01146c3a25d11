"""performer.convert: features that are fitted to a model, saved with it and loaded again."""

import pytest
import torch
import transformers
from small_transformers import CAUSAL, ENCODERS, bert, esm, gpt2, llama, padding, tokens

import performer
from performer.transformers import _fit
from performer.transformers._texts import batches, pad, tokenize

ALL = {**ENCODERS, **CAUSAL}
TEXTS = [row.tolist() for row in tokens(48, 40, seed=11)]
QUICK = {"length": 40, "batch": 8, "progress": False}


def hidden(model, ids, mask):
    with torch.no_grad():
        seen = model(ids, attention_mask=mask, output_hidden_states=True).hidden_states
    return torch.stack(seen[1:])[:, mask.bool()]


def error(make, near=0, **options):
    """Of the hidden states on other tokens, relative to the exact model's."""
    ids, mask = tokens(8, 40, seed=12), padding(8, 40, pads=8)
    model = make()
    exact = hidden(model, ids, mask)
    converted = hidden(performer.convert(model, TEXTS, 16, near, **QUICK, **options), ids, mask)
    return float((converted - exact).square().mean() / exact.square().mean())


def test_features_beside_a_near_field_are_fitted_too():
    given = {"near": 4}
    calibrated = error(llama, fit=("calibrate",), **given)
    attention = error(llama, fit=("calibrate", "attention"), steps=20, **given)
    whole = error(llama, fit=("calibrate", "attention", "model"), steps=20, **given)
    assert whole < attention < 0.9 * calibrated < 0.9 * error(llama, fit=("calibrate",))


@pytest.mark.parametrize("make", [bert, llama])
def test_every_stage_comes_closer(make):
    plain = error(make, fit=())
    calibrated = error(make, fit=("calibrate",))
    attention = error(make, fit=("calibrate", "attention"), steps=40)
    whole = error(make, fit=("calibrate", "attention", "model"), steps=40)
    weights = error(make, fit=("calibrate", "attention", "model", "weights"), steps=40)
    assert calibrated < plain and attention < 0.9 * calibrated
    assert whole < 0.99 * attention and weights < whole


@pytest.mark.parametrize("near", [0, 4])
def test_rows_are_numbers_of_both_16_bit_types(near):
    model = performer.convert(llama(), TEXTS, 16, near, fit=("calibrate",), **QUICK)
    for layer in model.model.layers:
        favor = layer.self_attn.favor
        for rows in (favor.query_weight, favor.key_weight):
            assert torch.equal(rows.bfloat16().float(), rows)
            assert torch.equal(rows.half().float(), rows)
        assert not torch.equal(favor.key_form.bfloat16().float(), favor.key_form)


def test_small_numbers_of_a_row_lie_on_the_grid_of_float16():
    model = performer.convert(llama(), TEXTS, 16, fit=("calibrate",), **QUICK)
    favor = model.model.layers[0].self_attn.favor
    with torch.no_grad():
        favor.query_weight.view(-1)[:3] = torch.tensor([3.3, -1.7, 2.0**8 + 1]) * 2.0**-24
    favor.round_rows()
    assert (favor.query_weight.view(-1)[:3] * 2.0**24).tolist() == [3, -2, 256]


def test_plain_features_are_those_of_patch():
    ids, mask = tokens(), padding()
    made = performer.convert(bert(), TEXTS, 16, fit=(), **QUICK)
    drawn = performer.patch(bert(), 16)
    torch.testing.assert_close(
        hidden(made, ids, mask), hidden(drawn, ids, mask), rtol=0.05, atol=0.05
    )


@pytest.mark.parametrize("name", ALL)
def test_a_folder_keeps_them(name, tmp_path):
    model = performer.convert(ALL[name](), TEXTS, 16, fit=("calibrate",), keep_exact=(1,), **QUICK)
    model.save_pretrained(tmp_path)
    again = performer.from_pretrained(tmp_path)
    assert type(again) is type(model)
    ids, mask = tokens(), padding()
    assert torch.equal(hidden(again, ids, mask), hidden(model, ids, mask))
    exact = type(model).from_pretrained(tmp_path)  # transformers alone: the exact model
    original = ALL[name]()
    torch.testing.assert_close(hidden(exact, ids, mask), hidden(original, ids, mask))


def test_from_pretrained_takes_options(tmp_path):
    model = performer.convert(llama(), TEXTS, 16, fit=("calibrate",), **QUICK)
    model.save_pretrained(tmp_path)
    half = performer.from_pretrained(tmp_path, transformers.AutoModel, dtype=torch.bfloat16)
    assert type(half) is transformers.LlamaModel
    assert half.layers[0].self_attn.q_proj.weight.dtype == torch.bfloat16
    for name, value in model.model.layers[2].self_attn.favor.named_parameters():
        assert torch.equal(half.layers[2].self_attn.favor.get_parameter(name), value)
    assert half(tokens()).last_hidden_state.isfinite().all()


def test_random_features_come_back_too(tmp_path):
    model = performer.patch(esm(), 16, seed=4)
    model.save_pretrained(tmp_path)
    again = performer.from_pretrained(tmp_path)
    ids, mask = tokens(), padding()
    assert torch.equal(hidden(again, ids, mask), hidden(model, ids, mask))


@pytest.mark.parametrize("make", [gpt2, llama])
@pytest.mark.parametrize("near", [0, 8])
def test_generation_equals_recomputing(make, near):
    model = performer.convert(make(), TEXTS, 16, near=near, fit=("calibrate",), **QUICK).double()
    ids, mask = tokens(length=20), padding(length=20, pads=6, left=True)
    given = {"attention_mask": mask, "max_new_tokens": 20, "pad_token_id": 0, "do_sample": False}
    assert torch.equal(model.generate(ids, **given), model.generate(ids, use_cache=False, **given))


def test_nothing_else_changes():
    model = bert().train()
    model.embeddings.word_embeddings.weight.requires_grad_(False)
    ids, mask = tokens(), padding()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    flags = {name: value.requires_grad for name, value in model.named_parameters()}
    performer.convert(model, TEXTS, 16, steps=2, **QUICK)
    assert model.training
    for name, value in before.items():
        assert torch.equal(model.state_dict()[name], value)
    assert all(p.requires_grad == flags.get(n, True) for n, p in model.named_parameters())
    assert all(p.grad is None for p in model.parameters())
    assert model.config.favor["fitted"] is True
    performer.unpatch(model)
    assert set(model.state_dict()) == set(before)
    assert torch.equal(hidden(model.eval(), ids, mask), hidden(bert(), ids, mask))
    assert model.config._attn_implementation == "sdpa"


def test_all_weights_learn_from_the_model_as_it_was(monkeypatch):
    model, teachers, original = bert(), [], _fit.exact_output

    def watched(work, batch):
        teachers.append(work.module is model)
        return original(work, batch)

    monkeypatch.setattr(_fit, "exact_output", watched)
    performer.convert(model, TEXTS, 16, fit=("calibrate", "weights"), steps=3, **QUICK)
    for (name, now), then in zip(model.state_dict().items(), bert().state_dict().values()):  # noqa: B905
        if name.endswith("attention.self.value.weight"):
            assert not torch.equal(now, then)
    assert teachers[-3:] == [False] * 3


def test_a_failure_gives_the_model_back():
    model, ids, mask = bert(), tokens(), padding()

    def fail(line):
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        performer.convert(model, TEXTS, 16, steps=2, **{**QUICK, "progress": fail})
    assert not hasattr(model.config, "favor") and not any("favor" in n for n in model.state_dict())
    assert torch.equal(hidden(model, ids, mask), hidden(bert(), ids, mask))


def test_texts_become_batches():
    def tokenizer(text, truncation, max_length):
        return {"input_ids": [ord(letter) for letter in text][:max_length]}

    rows = tokenize(["abcdef", "", "gh"], tokenizer, 4)
    assert rows == [[97, 98, 99, 100], [103, 104]]
    batch = pad(rows)
    assert batch.tokens.tolist() == [[97, 98, 99, 100], [103, 104, 0, 0]]
    assert batch.real.sum(1).tolist() == [4, 2]
    many = [[i, i] for i in range(10)]
    stream = batches(many, 3, seed=0)
    seen = [int(row[0]) for _ in range(4) for row in next(stream).tokens]
    assert sorted(seen) == list(range(10)) and seen != sorted(seen)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"texts": ["words"]}, "a tokenizer is needed"),
        ({"texts": []}, "at least one text of two tokens"),
        ({"fit": ("calibrated",)}, "fit must be of calibrate, attention, model, weights"),
        ({"steps": {"attention": 0}}, "steps must be at least 1"),
        ({"steps": {"first": 3}}, "got 'first': 3"),
        ({"keep_exact": (0, 1, 2)}, "at least one layer"),
    ],
)
def test_refuses_by_name(options, words):
    given = {"texts": TEXTS, **QUICK, **options}
    with pytest.raises(ValueError, match=words):
        performer.convert(bert(), **given)


def test_from_pretrained_refuses_by_name(tmp_path):
    bert().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"has no config\.favor"):
        performer.from_pretrained(tmp_path)
    performer.convert(bert(), TEXTS, 16, fit=(), **QUICK).save_pretrained(tmp_path)
    alone = transformers.BertModel.from_pretrained(tmp_path, attn_implementation="favor")
    with pytest.raises(ValueError, match=r"load it by performer\.from_pretrained"):
        alone(tokens())
