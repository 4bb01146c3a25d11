"""Streaming with a near field: steps, states that are saved, reordered, joined and merged."""

import pytest
import torch
from small_inputs import inputs
from test_state import stream

import performer
from performer import FavorState

NEAR_FIELDS = {"near_keys", "near_values", "near_bias", "near_position"}
L, NEAR = 14, 3
CLOSE = {"rtol": 1e-11, "atol": 1e-12}


def near_call(q, k, v, W, **options):
    return performer.favor_attention(
        q, k, v, W, causal=True, near=NEAR, return_state=True, **options
    )


def part(tensors, begin, end):
    return [t[:, :, begin:end] for t in tensors]


@pytest.fixture
def tokens():
    """(q, k, v, W) of 2 sequences of 14 tokens: nearly five blocks of 3."""
    return inputs("positive", B=2, H=4, Hkv=2, L=L)


@pytest.mark.parametrize("read", [0, 1, 3, 5, 6, 8, 13])
def test_prefill_then_steps_equal_the_batch(tokens, read):
    *qkv, W = tokens
    out, last = near_call(*qkv, W)
    _, state = near_call(*part(qkv, 0, read), W)
    streamed, after = stream(*part(qkv, read, L), W, state, near=NEAR)
    torch.testing.assert_close(streamed, out[:, :, read:], **CLOSE)
    torch.testing.assert_close(after.near_keys, last.near_keys)
    assert torch.equal(after.near_position, torch.full((2,), L))


def test_steps_without_features_are_local_attention():
    *qkv, _ = inputs("positive", L=8)
    W = torch.empty(0, 2, dtype=torch.float64)
    streamed, state = stream(*qkv, W, near=4)
    exact = performer.exact_attention(*qkv, causal=True)
    torch.testing.assert_close(streamed, exact, **CLOSE)  # two blocks are all there is
    assert state.kv.numel() == 0


def test_a_state_is_saved_forked_and_reordered(tokens, tmp_path):
    *qkv, W = tokens
    out, _ = near_call(*qkv, W)
    _, state = near_call(*part(qkv, 0, 8), W)
    torch.save(state.tensors(), tmp_path / "state.pt")
    loaded = FavorState(**torch.load(tmp_path / "state.pt", weights_only=True))
    assert loaded.near == state.near == NEAR
    index = torch.tensor([1, 0, 1])
    tail = [t[index] for t in part(qkv, 8, L)]
    streamed, _ = stream(*tail, W, loaded.reorder(index), near=NEAR)
    torch.testing.assert_close(streamed, out[index, :, 8:], **CLOSE)


def test_states_of_several_lengths_become_one_batch(tokens):
    *qkv, W = tokens
    rows = [[t[n : n + 1] for t in qkv] for n in range(2)]
    states = [near_call(*part(row, 0, read), W)[1] for row, read in zip(rows, (4, 11), strict=True)]
    both = FavorState.concatenate(states)
    assert both.near_position.tolist() == [4, 11]
    token = [torch.cat([rows[0][i][:, :, 4:5], rows[1][i][:, :, 11:12]]) for i in range(3)]
    out, _ = performer.favor_step(*token, W, both, near=NEAR)
    batch, _ = near_call(*qkv, W)
    want = torch.cat([batch[:1, :, 4:5], batch[1:, :, 11:12]])
    torch.testing.assert_close(out, want, **CLOSE)


def test_size_text_and_move(tokens):
    *qkv, W = tokens
    _, state = near_call(*qkv, W)
    assert set(state.tensors()) >= NEAR_FIELDS
    keys = 2 * 2 * 2 * NEAR * 2  # N, Hkv, places, width
    near_bytes = 8 * (2 * keys + 2 * 2 * 2 * NEAR) + 8 * 2
    far_bytes = 8 * (2 * 2 * 3 * 2 + 2 * 2 * 3) + 4 * (2 * 2 * 3) + 8
    assert state.nbytes == far_bytes + near_bytes
    assert "near_keys=[2, 2, 6, 2] float64" in repr(state)
    moved = state.to("meta")
    assert all(tensor.is_meta for tensor in moved.tensors().values())


def test_without_a_near_field_nothing_is_carried(tokens):
    *qkv, W = tokens
    _, state = performer.favor_attention(*qkv, W, causal=True, return_state=True)
    assert not NEAR_FIELDS & set(state.tensors())
    assert state.near == 0
    assert "near" not in repr(state)


def test_a_state_of_another_near_field_is_refused(tokens):
    *qkv, W = tokens
    _, far = performer.favor_attention(*qkv, W, causal=True, return_state=True)
    _, near = near_call(*qkv, W)
    token = part(qkv, 0, 1)
    with pytest.raises(RuntimeError, match="made without a near field: it has no near_keys"):
        performer.favor_step(*token, W, far, near=NEAR)
    with pytest.raises(RuntimeError, match="belongs to a state with a near field, got near=0"):
        performer.favor_step(*token, W, near)
    with pytest.raises(RuntimeError, match=r"near_keys must be Double \[2, 2, 8, 2\] for near=4"):
        performer.favor_step(*token, W, near, near=4)
    for pair in ((far, near), (near, far)):
        with pytest.raises(ValueError, match="one near field, got near="):
            FavorState.concatenate(pair)


class TestMergeStates:
    @pytest.mark.parametrize("cut", [0, 3, 6, 12])
    def test_whole_blocks_and_what_follows_are_the_whole(self, tokens, cut):
        *qkv, W = tokens
        _, whole = near_call(*qkv, W)
        _, earlier = near_call(*part(qkv, 0, cut), W)
        _, later = near_call(*part(qkv, cut, L), W)
        merged = performer.merge_states(earlier, later, W)
        assert torch.equal(merged.fingerprint, whole.fingerprint)
        for name in ("near_keys", "near_values", "near_bias", "near_position"):
            torch.testing.assert_close(getattr(merged, name), getattr(whole, name), **CLOSE)
        q, k, v = part(qkv, 0, 1)
        want, _ = performer.favor_step(q, k, v, W, whole, near=NEAR)
        got, _ = performer.favor_step(q, k, v, W, merged, near=NEAR)
        torch.testing.assert_close(got, want, **CLOSE)

    def test_with_parameters_of_the_keys(self, tokens):
        *qkv, W = tokens
        options = {"scale": 0.7, "projection_k": 0.5 * W, "bias_k": torch.randn(3).double()}
        _, whole = near_call(*qkv, W, **options)
        _, earlier = near_call(*part(qkv, 0, 6), W, **options)
        _, later = near_call(*part(qkv, 6, L), W, **options)
        merged = performer.merge_states(earlier, later, W, **options)
        token = part(qkv, 0, 1)
        want, _ = performer.favor_step(*token, W, whole, near=NEAR, **options)
        got, _ = performer.favor_step(*token, W, merged, near=NEAR, **options)
        torch.testing.assert_close(got, want, **CLOSE)

    def test_what_would_give_another_state_is_refused(self, tokens):
        *qkv, W = tokens
        _, earlier = near_call(*part(qkv, 0, 6), W)
        _, later = near_call(*part(qkv, 6, L), W)
        _, ragged = near_call(*part(qkv, 0, 5), W)
        _, far = performer.favor_attention(*qkv, W, causal=True, return_state=True)
        merge = performer.merge_states
        with pytest.raises(ValueError, match="states with near=3 need W"):
            merge(earlier, later)
        with pytest.raises(RuntimeError, match="whole block of 3 tokens, got near_position 5"):
            merge(ragged, later, W)
        with pytest.raises(ValueError, match="W, feature_map, scale, .* must be those"):
            merge(earlier, later, 2 * W)
        with pytest.raises(ValueError, match="W, feature_map, scale, .* must be those"):
            merge(earlier, later, W, scale=0.3)
        with pytest.raises(TypeError, match="must be the name of a softmax map"):
            merge(earlier, later, W, feature_map=torch.exp)
        bare = far._replace(fingerprint=None)
        with pytest.raises(ValueError, match="one near field, got near=3 and near=0"):
            merge(earlier, bare, W)

    def test_gradients_reach_the_keys_of_both(self, tokens):
        *qkv, W = tokens
        _, earlier = near_call(*part(qkv, 0, 6), W)
        _, later = near_call(*part(qkv, 6, L), W)
        names = ("near_keys", "near_values", "near_bias")

        def merged(*tensors):
            sides = zip((earlier, later), (tensors[:3], tensors[3:]), strict=True)
            states = [s._replace(**dict(zip(names, t, strict=True))) for s, t in sides]
            state = performer.merge_states(*states, W)
            factor = torch.exp2(state.log2_scale.double())
            return state.kv * factor[..., None], state.normalizer * factor, state.near_values

        given = [
            getattr(s, name).clone().requires_grad_() for s in (earlier, later) for name in names
        ]
        torch.autograd.gradcheck(merged, given, masked=True)
