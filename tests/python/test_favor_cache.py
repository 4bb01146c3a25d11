"""FavorCache: generate costs the same for every token, and gives what recomputing gives."""

import pytest
import torch
import transformers
from small_transformers import CAUSAL, llama, padding, tokens

import performer
from performer.transformers import FavorCache

WAYS = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True, "top_k": 8},
    "beams": {"num_beams": 3, "do_sample": False},
    "several": {"num_beams": 4, "num_return_sequences": 2, "do_sample": False},
}


def generate(model, ids, mask, **options):
    torch.manual_seed(1)
    return model.generate(ids, attention_mask=mask, max_new_tokens=40, pad_token_id=0, **options)


@pytest.mark.parametrize("near", [0, 16])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CAUSAL)
def test_generate_equals_recomputing(name, way, near):
    model = performer.patch(CAUSAL[name](), features=16, near=near).double()
    ids, mask = tokens(length=30), padding(length=30, pads=11, left=True)
    fast = generate(model, ids, mask, **WAYS[way])
    full = generate(model, ids, mask, use_cache=False, **WAYS[way])
    assert torch.equal(fast, full)


@pytest.mark.parametrize("keep", [(), (0,), (1, 2)])
@pytest.mark.parametrize("parts", [(1,) * 60, (40, 20), (25, 1, 1, 33)])
def test_logits_of_pieces_are_those_of_the_whole(parts, keep):
    model = performer.patch(llama(), features=16, near=8, keep_exact=keep)
    ids, mask = tokens(length=60), padding(length=60, pads=9, left=True)
    positions = (mask.cumsum(-1) - 1).clamp_min(0)
    cache, logits, first = FavorCache(model.config), [], 0
    with torch.no_grad():
        whole = model(ids, attention_mask=mask, position_ids=positions).logits
        for count in parts:
            part = slice(first, first + count)
            first += count
            logits.append(
                model(
                    ids[:, part], attention_mask=mask[:, :first], position_ids=positions[:, part],
                    past_key_values=cache,
                ).logits
            )  # fmt: skip
    steps, real = torch.cat(logits, 1), mask.bool()
    torch.testing.assert_close(steps[real], whole[real], rtol=1e-3, atol=1e-3)
    best = whole.topk(2).values
    clear = real & (best[..., 0] - best[..., 1] > 1e-4)
    assert torch.equal(steps.argmax(-1)[clear], whole.argmax(-1)[clear])


def test_the_cache_does_not_grow():
    model, sizes = performer.patch(llama(), features=16, near=8), []
    cache = FavorCache(model.config)
    with torch.no_grad():
        for _ in range(4):
            model(tokens(length=50), past_key_values=cache)
            sizes.append(cache.nbytes)
    assert sizes == sizes[:1] * 4 and cache.get_seq_length() == 200
    assert not any(layer.keys is not None for layer in cache.layers)
    cache.reset()
    assert cache.nbytes == 0 and cache.get_seq_length() == 0


def test_beams_take_their_own_states():
    model = performer.patch(llama(), features=16, near=8)
    ids, one, two = tokens(3, 30), FavorCache(model.config), FavorCache(model.config)
    order, last = torch.tensor([2, 0, 0]), tokens(3, 1, seed=8)
    with torch.no_grad():
        model(ids, past_key_values=one)
        one.reorder_cache(order)
        model(ids[order], past_key_values=two)
        seen = model(last, past_key_values=one).logits
        torch.testing.assert_close(seen, model(last, past_key_values=two).logits)
        one.batch_repeat_interleave(2)
        assert model(last.repeat_interleave(2, 0), past_key_values=one).logits.shape[0] == 6


def test_refuses_what_a_sum_cannot_do():
    model = performer.patch(llama())
    cache = FavorCache(model.config)
    model(tokens(), past_key_values=cache)
    with pytest.raises(ValueError, match="cannot be taken out of a sum"):
        cache.crop(3)
    exact, cache = llama(), FavorCache(model.config)
    exact(tokens(), past_key_values=cache)
    with pytest.raises(ValueError, match="did not reach attn_implementation"):
        exact(tokens(length=1), past_key_values=cache)


def test_other_models_keep_their_own_cache():
    performer.transformers.register()
    result = llama().generate(
        tokens(length=5), max_new_tokens=3, return_dict_in_generate=True, pad_token_id=0
    )
    assert isinstance(result.past_key_values, transformers.DynamicCache)
