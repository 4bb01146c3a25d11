"""Causal means causal: whatever comes after t, outputs up to t keep their bits."""

import pytest
import torch
from gpu_bounds import check_kernels
from gpu_inputs import make_inputs
from gpu_kernels import DTYPES, MAPS
from op_cases import NAMES, Case

import performer

TYPES = pytest.mark.parametrize("dtype", DTYPES, ids=NAMES.get)
EVERY_MAP = pytest.mark.parametrize("feature_map", MAPS)
# Within the first chunk of 64, at its edges, within later ones and at theirs.
PLACES = (1, 30, 63, 64, 65, 100, 127, 128, 129, 191, 192, 299)
LATER = ("x 1e4", "inf", "-inf", "nan", "mask")


def make_case(feature_map, dtype, heads, length, **options):
    """Every term the map has."""
    loglinear, exponential = feature_map == "loglinear", feature_map != "relu"
    return Case(
        feature_map,
        causal=True,
        dtype=dtype,
        heads=heads,
        key_heads=heads,
        head_parameters=heads if heads > 1 else 0,
        length=length,
        features=64 if feature_map == "hyperbolic" else 128,
        mask=True,
        key_bias=exponential,
        biases=loglinear,
        key_projection=loglinear,
        **options,
    )


def changed(inputs, t, kind):
    """q, k, v and options with everything from t on of another kind."""

    def later(x, dim):
        x = x.clone()
        part = x.narrow(dim, t, x.shape[dim] - t)
        part.copy_(part * 1e4 if kind == "x 1e4" else torch.full_like(part, float(kind)))
        return x

    tokens, options = [inputs.q, inputs.k, inputs.v], dict(inputs.options)
    if kind == "mask":
        mask = inputs.options["key_mask"].clone()
        mask[:, t:] = ~mask[:, t:]
        return tokens, {**options, "key_mask": mask}
    options["key_mask"] = inputs.options["key_mask"].clone()
    options["key_mask"][:, t:] = True  # so that all of it counts
    if "key_bias" in options:
        options["key_bias"] = later(options["key_bias"], 2)
    return [later(x, 2) for x in tokens], options


def attend(inputs, tokens, options):
    with torch.no_grad():
        return performer.favor_attention(
            *tokens,
            inputs.W,
            inputs.case.feature_map,
            causal=True,
            initial_state=inputs.state,
            **options,
        )


def differences(inputs, places, kinds):
    """(t, kind) of which outputs before t changed."""
    before = attend(inputs, [inputs.q, inputs.k, inputs.v], inputs.options)
    found = []
    for t in places:
        for kind in kinds:
            after = attend(inputs, *changed(inputs, t, kind))
            found.append((after[:, :, :t] != before[:, :, :t]).any())
    assert torch.isfinite(before).all()
    flags = torch.stack(found).tolist()
    pairs = [(t, kind) for t in places for kind in kinds]
    return [pair for pair, flag in zip(pairs, flags, strict=True) if flag]


@EVERY_MAP
@TYPES
@pytest.mark.parametrize("heads", [1, 4])
def test_outputs_up_to_t_keep_their_bits(feature_map, dtype, heads, path):
    inputs = make_inputs(make_case(feature_map, dtype, heads, 300))
    assert not differences(inputs, PLACES, LATER)
    check_kernels(inputs.case, path, (performer.last_kernel(),), backward=False)


@EVERY_MAP
@TYPES
@pytest.mark.parametrize("outlier", [False, True])
def test_in_chunks_that_are_cut_twice(feature_map, dtype, outlier, path):
    """The first keys are masked, one may outweigh those before it; later ones are not finite."""
    inputs = make_inputs(make_case(feature_map, dtype, 2, 130))
    inputs.options["key_mask"][:, :5] = False
    inputs.options["key_mask"][:, 5:12] = True
    if outlier and "key_bias" in inputs.options:
        inputs.options["key_bias"][..., 10] += 200
    assert not differences(inputs, (12, 30, 63), LATER)
    check_kernels(inputs.case, path, (performer.last_kernel(),), backward=False)


@EVERY_MAP
@TYPES
def test_also_behind_a_state(feature_map, dtype, path):
    inputs = make_inputs(make_case(feature_map, dtype, 2, 130, state=True))
    assert not differences(inputs, (1, 63, 64, 65, 128), LATER)
    check_kernels(inputs.case, path, (performer.last_kernel(),), backward=False)


@TYPES
@pytest.mark.parametrize("heads", [1, 8])
def test_at_every_border_of_chunks(dtype, heads, path):
    """A long sequence is walked in segments of whole chunks, each by a block of its own."""
    inputs = make_inputs(make_case("positive", dtype, heads, 4096))
    places = [t for border in range(64, 4096, 64) for t in (border, border + 1)]
    assert not differences(inputs, places, ("nan",))
    check_kernels(inputs.case, path, (performer.last_kernel(),), backward=False)


@TYPES
@pytest.mark.parametrize("feature_map", ["positive", "loglinear"])
def test_in_packed_sequences(feature_map, dtype, path):
    """Later sequences come after t too, and earlier ones are none of a sequence's business."""
    case = make_case(feature_map, dtype, 2, 400, packed=True, batch=1)
    inputs = make_inputs(case)
    bounds = inputs.options["cu_seqlens_k"].tolist()
    places = sorted({t + n for t in bounds for n in (-1, 0, 1, 64) if 0 < t + n < 400})
    assert not differences(inputs, places, LATER)
    check_kernels(case, path, (performer.last_kernel(),), backward=False)
    first, last = bounds[-2], bounds[-1]
    poisoned = [x.clone() for x in (inputs.q, inputs.k, inputs.v)]
    for x in poisoned:
        x[:, :, :first] = float("nan")
    alone = attend(inputs, poisoned, inputs.options)[:, :, first:last]
    whole = attend(inputs, [inputs.q, inputs.k, inputs.v], inputs.options)[:, :, first:last]
    assert torch.equal(alone, whole)


@TYPES
def test_a_column_of_nan_stays_in_its_column(dtype, path):
    case = make_case("positive", dtype, 2, 200)
    inputs = make_inputs(case)
    before = attend(inputs, [inputs.q, inputs.k, inputs.v], inputs.options)
    v = inputs.v.clone()
    v[:, :, 70, 5] = float("nan")
    after = attend(inputs, [inputs.q, inputs.k, v], inputs.options)
    others = [n for n in range(case.dim) if n != 5]
    assert torch.equal(after[:, :, :70], before[:, :, :70])
    # From there on a chunk may have been cut, which rounds otherwise.
    torch.testing.assert_close(after[..., others], before[..., others], rtol=0.02, atol=0.02)
