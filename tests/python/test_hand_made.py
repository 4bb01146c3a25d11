"""Structures put together by hand from tensors that do not fit: a clear error, at whatever use."""

import re

import pytest
import torch
from small_inputs import inputs

import performer

NAN = float("nan")


def test_quality_of_unequal_lengths_has_no_verdict():
    q, k, v, W = inputs("positive", H=4, Hkv=4)
    quality = performer.approximation_quality(q, k, v, W)
    for changes in (
        {"error": quality.error[:1]},
        {"uniform_error": quality.uniform_error[:1]},
        {"suggested_features": quality.suggested_features[:0]},
    ):
        with pytest.raises(RuntimeError, match="must have one value for each head"):
            _ = quality._replace(**changes).verdict
    with pytest.raises(RuntimeError, match="error must be a floating point tensor"):
        _ = quality._replace(error=quality.error[None]).verdict
    with pytest.raises(ValueError, match="zip"):
        str(quality._replace(error=quality.error[:1]))


def test_verdicts_advise_what_exists():
    one = torch.ones(1, dtype=torch.float64)
    for suggested in (300.0, NAN, float("inf")):
        quality = performer.ApproximationQuality(
            one, one, one, error=2 * one, uniform_error=one, suggested_features=suggested * one
        )
        assert "calibrate" not in quality.verdict
        for name in re.findall(r"performer\.(\w+)", quality.verdict):
            assert hasattr(performer, name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "orthogonal"}, "kind must be hadamard or givens, got 'orthogonal'"),
        ({"parts": ()}, "parts must be the 5 tensors"),
    ],
)
def test_projection_of_another_kind_or_number_of_parts(change, message):
    P = performer.draw_structured(8, 4, kind="givens")
    with pytest.raises(ValueError, match=message):
        performer.Projection(**({"kind": P.kind, "dim": P.dim, "parts": P.parts} | change))


@pytest.mark.parametrize("kind", ["hadamard", "givens"])
def test_projection_of_wrong_parts(kind):
    P = performer.draw_structured(8, 4, heads=2, kind=kind)
    x = torch.randn(2, 5, 4)
    assert P(x).shape == (2, 5, 8)
    for i, part in enumerate(P.parts):
        for wrong in (part[0], part[..., :1], part.to(torch.complex64), part.to("meta")):
            parts = (*P.parts[:i], wrong, *P.parts[i + 1 :])
            with pytest.raises(RuntimeError, match="structured projection: "):
                performer.Projection(kind, 4, parts)(x)
    with pytest.raises(RuntimeError, match="structured projection: "):
        performer.Projection(kind, 5, P.parts).dense()


def test_an_order_that_names_no_coordinate():
    P = performer.draw_structured(8, 4, kind="givens")
    scale, signs, order, *angles = P.parts
    with pytest.raises(RuntimeError, match=r"permutation must be in \[0, 4\), got 99"):
        performer.Projection("givens", 4, (scale, signs, order + 96, *angles)).dense()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kv": torch.zeros(1, 2, 3)}, "kv must be"),
        ({"kv": torch.zeros(1, 2, 3, 2)}, r"(kv|normalizer) must be"),
        ({"normalizer": torch.zeros(1, 2, 4, dtype=torch.float64)}, "normalizer must be"),
        ({"log2_scale": torch.zeros(1, 2, 3, dtype=torch.int64)}, "log2_scale must be"),
        (
            {"log2_scale": torch.full((1, 1, 3), 2**31 - 1, dtype=torch.int32)},
            "log2_scale .*in",
        ),
    ],
)
def test_states_of_tensors_that_do_not_fit(changes, message):
    q, k, v, W = inputs("positive")
    _, state = performer.favor_attention(q, k, v, W, return_state=True)
    wrong = state._replace(**changes)
    with pytest.raises(RuntimeError, match=f"merge_states: .*{message}"):
        performer.merge_states(wrong, state)
    with pytest.raises(RuntimeError, match=rf"initial_state\..*{message}"):
        performer.favor_attention(q, k, v, W, initial_state=wrong)


def test_fingerprints_of_other_shapes():
    q, k, v, W = inputs("positive")
    _, state = performer.favor_attention(q, k, v, W, return_state=True)
    for wrong in (state.fingerprint.repeat(2), state.fingerprint.double()):
        with pytest.raises(RuntimeError, match=r"fingerprint must be int64 \[1\]"):
            performer.favor_attention(q, k, v, W, initial_state=state._replace(fingerprint=wrong))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({0: torch.zeros(4)}, "projection must be"),
        ({1: torch.zeros(2, dtype=torch.int64)}, "draw must be one int64 number"),
        ({2: torch.zeros(())}, "calls must be one int64 number"),
        ({3: 0}, "interval must be positive"),
    ],
)
def test_counters_of_the_redraw(change, message):
    W = performer.draw_projection(8, 4, heads=2)
    given = [W, torch.tensor(0), torch.tensor(2), 2, "orthogonal", "chi", 0, 0]
    for index, wrong in change.items():
        given[index] = wrong
    with pytest.raises(ValueError, match=f"advance_draw: {message}"):
        torch.ops.performer.advance_draw(*given)
