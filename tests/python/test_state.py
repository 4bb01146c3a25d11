"""Streaming and FavorState: step by step equals the batch; states are saved, forked, reordered."""

import copy

import pytest
import torch
from op_cases import ALL_MAPS
from small_inputs import inputs

import performer
from performer import FavorState


def stream(q, k, v, W, state=None, **options):
    outs = []
    for t in range(q.shape[2]):
        now = slice(t, t + 1)
        out, state = performer.favor_step(
            q[:, :, now], k[:, :, now], v[:, :, now], W, state, **options
        )
        outs.append(out)
    return torch.cat(outs, 2), state


def summed(state):
    """The sums that a state stands for, whatever its scales."""
    factor = torch.exp2(state.log2_scale.double())
    return state.kv * factor[..., None], state.normalizer * factor


@pytest.fixture
def prefilled():
    """(q, k, v, W) of 2 sequences of 12, outputs of all of them, and the state after 8."""
    q, k, v, W = inputs("positive", B=2, H=2, Hkv=2, L=12)
    out = performer.favor_attention(q, k, v, W, causal=True)
    head = (t[:, :, :8] for t in (q, k, v))
    _, state = performer.favor_attention(*head, W, causal=True, return_state=True)
    return (q, k, v, W), out, state


@pytest.mark.parametrize("feature_map", ALL_MAPS)
def test_steps_equal_the_batch(feature_map):
    q, k, v, W = inputs(feature_map, B=2, H=4, Hkv=2, L=9)
    out, state = performer.favor_attention(q, k, v, W, feature_map, causal=True, return_state=True)
    streamed, last = stream(q, k, v, W, feature_map=feature_map)
    torch.testing.assert_close(streamed, out, rtol=1e-11, atol=1e-12)
    for got, want in zip(summed(last), summed(state), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-12)
    assert torch.equal(last.fingerprint, state.fingerprint)


def test_prefill_then_steps_equal_the_batch_at_large_norms(prefilled):
    """Later keys raise the scales far above the prefilled ones."""
    (q, k, v, W), _, _ = prefilled
    k = k * torch.logspace(0, 2, 12, dtype=k.dtype)[:, None]
    out = performer.favor_attention(q, k, v, W, causal=True)
    head = (t[:, :, :8] for t in (q, k, v))
    tail = (t[:, :, 8:] for t in (q, k, v))
    _, state = performer.favor_attention(*head, W, causal=True, return_state=True)
    streamed, _ = stream(*tail, W, state)
    torch.testing.assert_close(streamed, out[:, :, 8:], rtol=1e-10, atol=1e-12)


def test_step_with_mask_and_biases_equals_the_batch():
    q, k, v, W = inputs("positive", B=2, L=6)
    key_mask = torch.rand(2, 6) < 0.6
    bias = torch.randn(3, dtype=torch.float64)
    options = {"causal": True, "bias_q": bias, "bias_k": -bias, "projection_k": 0.5 * W}
    out = performer.favor_attention(q, k, v, W, key_mask=key_mask, **options)
    state, outs = None, []
    for t in range(6):
        token = [tensor[:, :, t : t + 1] for tensor in (q, k, v)]
        step, state = performer.favor_step(
            *token, W, state, key_mask=key_mask[:, t : t + 1], **options
        )
        outs.append(step)
    torch.testing.assert_close(torch.cat(outs, 2), out, rtol=1e-11, atol=1e-12)


def test_a_step_does_not_write_to_its_state(prefilled):
    (q, k, v, W), out, state = prefilled
    before = {name: tensor.clone() for name, tensor in state.tensors().items()}
    tail = [t[:, :, 8:] for t in (q, k, v)]
    first, _ = stream(*tail, W, state)
    second, _ = stream(*tail, W, state)  # a fork of the same state
    assert all(torch.equal(tensor, getattr(state, name)) for name, tensor in before.items())
    assert torch.equal(first, second)
    torch.testing.assert_close(first, out[:, :, 8:], rtol=1e-11, atol=1e-12)


def test_save_and_load_without_pickled_code(prefilled, tmp_path):
    (q, k, v, W), out, state = prefilled
    torch.save(state.tensors(), tmp_path / "state.pt")
    loaded = FavorState(**torch.load(tmp_path / "state.pt", weights_only=True))
    assert all(torch.equal(tensor, getattr(loaded, n)) for n, tensor in state.tensors().items())
    streamed, _ = stream(*(t[:, :, 8:] for t in (q, k, v)), W, loaded)
    torch.testing.assert_close(streamed, out[:, :, 8:], rtol=1e-11, atol=1e-12)


def test_state_without_fingerprint_is_accepted_unchecked(prefilled):
    (q, k, v, W), _, state = prefilled
    bare = FavorState(state.kv, state.normalizer, state.log2_scale)
    assert set(bare.tensors()) == {"kv", "normalizer", "log2_scale"}
    performer.favor_attention(q, k, v, 2 * W, initial_state=bare)
    merged = performer.merge_states(bare, state)
    assert torch.equal(merged.fingerprint, state.fingerprint)


def test_reorder_repeats_and_permutes_sequences(prefilled):
    (q, k, v, W), out, state = prefilled
    index = torch.tensor([1, 0, 1])
    tail = [t[index, :, 8:] for t in (q, k, v)]
    streamed, _ = stream(*tail, W, state.reorder(index))
    torch.testing.assert_close(streamed, out[index, :, 8:], rtol=1e-11, atol=1e-12)


def test_concatenate_batches_states(prefilled):
    (q, k, v, W), out, state = prefilled
    rows = [state.reorder(torch.tensor([n])) for n in (1, 0)]
    both = FavorState.concatenate(rows)
    assert torch.equal(both.kv, state.kv.flip(0))
    streamed, _ = stream(*(t[:, :, 8:].flip(0) for t in (q, k, v)), W, both)
    torch.testing.assert_close(streamed, out[:, :, 8:].flip(0), rtol=1e-11, atol=1e-12)
    _, other = performer.favor_attention(q, k, v, 2 * W, return_state=True)
    with pytest.raises(ValueError, match="same projection, map and scale, got fingerprints"):
        FavorState.concatenate([state, other])
    with pytest.raises(ValueError, match="must not be empty"):
        FavorState.concatenate([])


def test_size_copy_and_move(prefilled):
    _, _, state = prefilled
    assert state.nbytes == 8 * (2 * 2 * 3 * 2 + 2 * 2 * 3) + 4 * (2 * 2 * 3) + 8
    copied = copy.deepcopy(state)
    assert copied.kv is not state.kv and torch.equal(copied.kv, state.kv)
    moved = state.to("meta")
    assert moved.kv.is_meta and moved.log2_scale.is_meta and moved.fingerprint.is_meta


class TestMergeStates:
    def chunks(self, feature_map, cuts=(0, 3, 4, 9)):
        q, k, v, W = inputs(feature_map, B=2, L=9)
        k = k * torch.logspace(0, 1, 9, dtype=k.dtype)[:, None]

        def state(a, b):
            part = (t[:, :, a:b] for t in (q, k, v))
            return performer.favor_attention(*part, W, feature_map, return_state=True)[1]

        return [state(a, b) for a, b in zip(cuts, cuts[1:], strict=False)], state(0, 9)

    @pytest.mark.parametrize("feature_map", ["positive", "trigonometric", "relu"])
    def test_chunks_merge_to_the_whole_in_any_grouping(self, feature_map):
        (a, b, c), whole = self.chunks(feature_map)
        merge = performer.merge_states
        for merged in (merge(merge(a, b), c), merge(a, merge(b, c))):
            for got, want in zip(summed(merged), summed(whole), strict=True):
                torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-13)
            assert torch.equal(merged.fingerprint, whole.fingerprint)

    def test_the_empty_state_is_the_identity(self):
        (empty, whole), _ = self.chunks("positive", cuts=(0, 0, 9))
        assert (empty.log2_scale == -(2**30)).all() and not empty.kv.any()
        for merged in (
            performer.merge_states(empty, whole),
            performer.merge_states(whole, empty),
        ):
            assert torch.equal(merged.kv, whole.kv)
            assert torch.equal(merged.log2_scale, whole.log2_scale)

    def test_other_features_are_refused(self):
        (a, *_), _ = self.chunks("positive")
        (b, *_), _ = self.chunks("loglinear")
        with pytest.raises(ValueError, match="same projection, map and scale, got fingerprints"):
            performer.merge_states(a, b)


def test_a_state_notices_any_changed_value_of_the_projection():
    W = performer.draw_projection(256, 64, heads=8)
    x = torch.randn(1, 8, 4, 64)
    _, state = performer.favor_attention(x, x, x, W, return_state=True)
    for index in (1, 12345, W.numel() - 1):
        other = W.clone()
        other.view(-1)[index] += 1e-3
        with pytest.raises(RuntimeError, match="another W"):
            performer.favor_attention(x, x, x, other, initial_state=state)


def test_a_shared_projection_may_have_a_head_axis_of_one():
    W = performer.draw_projection(32, 16)
    x = torch.randn(1, 2, 4, 16)
    _, state = performer.favor_attention(x, x, x, W, return_state=True)
    performer.favor_attention(x, x, x, W[None], initial_state=state)


def test_states_and_callables_follow_the_device():
    with torch._subclasses.FakeTensorMode():
        q, W = torch.empty(1, 2, 5, 16, device="cuda"), torch.empty(2, 32, 16, device="cuda")
        _, state = performer.favor_attention(q, q, q, W, torch.relu, return_state=True)
        assert state.fingerprint.device.type == "cuda"
        assert state.to("cpu").fingerprint.device.type == "cpu"
