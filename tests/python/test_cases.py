"""What the tables of tests/cases cover: lines may be added anywhere, this must stay."""

import itertools

import pytest
from op_cases import (
    ALL_MAPS,
    DTYPES,
    EXPONENTIAL_MAPS,
    FLAGS,
    SOFTMAX_MAPS,
    parse,
    read_cases,
    table_names,
)

FUSED_MAPS = (*EXPONENTIAL_MAPS, "relu")
FUSED_DTYPES = [DTYPES[name] for name in ("fp32", "bf16", "fp16")]
LENGTHS = {0, 1, 2, 63, 64, 65, 1000, 4096}  # around chunks of 64, none, and many chunks
CAUSAL_LENGTHS = {1, 63, 64, 65, 127, 1000, 4096}
BOTH = (False, True)
SIZES = {  # tables grow; a line that goes must be missed
    "causal_lengths": 84,
    "causal_norms": 36,
    "causal_options": 42,
    "every_map": 120,
    "fused": 120,
    "gradients": 120,
    "matrix_units": 42,
    "near": 138,
    "norms": 36,
    "steps": 48,
}


def seen(cases, *names):
    """The values of these fields that stand together somewhere."""
    return {tuple(getattr(case, name) for name in names) for case in cases}


def test_all_tables_are_there():
    assert table_names() == sorted(SIZES)


@pytest.mark.parametrize("table", SIZES)
def test_every_line_is_a_case_and_stands_once(table):
    lines = [str(case) for case in read_cases(table)]
    assert len(set(lines)) == len(lines) >= SIZES[table]


def test_every_part_of_a_line_has_its_place():
    """The same line, and the same places, as in tests/ops/op_cases_test.cpp."""
    case = parse(
        "loglinear-causal-bf16-l7k8d2v3m5-b6h4.2.1-x10-near9-mask-key_bias-biases-key_projection"
        "-packed-strided-query_bias-state-sum"
    )
    assert (case.feature_map, case.causal, case.dtype) == ("loglinear", True, DTYPES["bf16"])
    assert (case.length, case.key_length, case.dim, case.values, case.features) == (7, 8, 2, 3, 5)
    assert (case.batch, case.heads, case.key_heads, case.head_parameters) == (6, 4, 2, 1)
    assert (case.magnitude, case.near) == (10, 9)
    assert all(getattr(case, flag) for flag in FLAGS)


@pytest.mark.parametrize(
    "line",
    [
        "positive-both-fp32-l1k1d2v2m3",
        "positive-both-fp32-l1k1d2v2m3-b1h1.1.0-masc",
        "positive-both-fp32-l1k1d2v2m3-b1h1.1.0-state-mask",
        "positive-both-fp32-l01k1d2v2m3-b1h1.1.0",
    ],
)
def test_another_spelling_is_refused(line):
    with pytest.raises((ValueError, TypeError)):
        parse(line)


def test_every_map_meets_every_direction_dtype_and_length():
    cases = read_cases("every_map")
    every = set(itertools.product(ALL_MAPS, BOTH, DTYPES.values()))
    assert seen(cases, "feature_map", "causal", "dtype") == every
    assert seen(cases, "feature_map", "length") == set(itertools.product(ALL_MAPS, LENGTHS))
    each = set(itertools.product(BOTH, DTYPES.values(), LENGTHS))
    assert seen(cases, "causal", "dtype", "length") == each
    for flag in FLAGS:
        if flag != "query_bias":  # which needs a near field
            assert seen(cases, "causal", flag) == set(itertools.product(BOTH, BOTH))
    assert seen(cases, "dim") == {(n,) for n in (1, 8, 31, 64, 128)}
    assert seen(cases, "heads", "key_heads") == {(1, 1), (2, 2), (2, 1), (4, 2), (4, 4)}


def test_gradients_are_taken_of_every_map_direction_mask_and_sum():
    cases = read_cases("gradients")
    every = set(itertools.product(ALL_MAPS, BOTH, BOTH, BOTH))
    assert seen(cases, "feature_map", "causal", "mask", "sum") == every
    assert {case.dtype for case in cases} == {DTYPES["fp64"]}
    assert seen(cases, "causal", "length") == set(itertools.product(BOTH, (1, 7, 65, 130)))


def test_the_fused_maps_meet_every_direction_dtype_and_size():
    cases = read_cases("fused")
    every = set(itertools.product(FUSED_MAPS, BOTH, FUSED_DTYPES))
    assert seen(cases, "feature_map", "causal", "dtype") == every
    assert {case.length for case in cases} == LENGTHS
    assert {case.dim for case in cases} == {1, 8, 31, 32, 64, 128, 256}
    for flag in ("mask", "key_bias", "biases", "key_projection", "packed", "state"):
        together = seen(cases, "causal", "dtype", flag)
        assert together == set(itertools.product(BOTH, FUSED_DTYPES, BOTH))
    assert any(case.heads == case.head_parameters != case.key_heads for case in cases)


def test_matrix_units_meet_their_widths_in_both_directions():
    cases = read_cases("matrix_units")
    assert {case.dtype for case in cases} == {DTYPES["bf16"], DTYPES["fp16"]}
    assert {case.feature_map for case in cases} == set(EXPONENTIAL_MAPS)
    sizes = set(itertools.product(BOTH, (64, 128), (64, 256, 512)))
    assert seen(cases, "causal", "dim", "features") == sizes


@pytest.mark.parametrize(
    ("table", "magnitudes", "directions", "dtypes"),
    [
        ("norms", (10, 100, 1000), BOTH, FUSED_DTYPES[:2]),
        ("causal_norms", (3, 10, 100, 1000), (True,), FUSED_DTYPES),
    ],
)
def test_every_norm_is_met(table, magnitudes, directions, dtypes):
    together = seen(read_cases(table), "feature_map", "causal", "dtype", "magnitude")
    assert together == set(itertools.product(EXPONENTIAL_MAPS, directions, dtypes, magnitudes))


def test_every_causal_length_is_met():
    together = seen(read_cases("causal_lengths"), "feature_map", "dtype", "length")
    assert together == set(itertools.product(FUSED_MAPS, FUSED_DTYPES, CAUSAL_LENGTHS))


def test_every_causal_option_is_met_by_every_dtype():
    cases = read_cases("causal_options")
    assert all(case.causal for case in cases)
    for flag in ("mask", "key_bias", "biases", "key_projection", "packed", "state"):
        assert seen(cases, "dtype", flag) == set(itertools.product(FUSED_DTYPES, BOTH))
    assert {case.dim for case in cases} == {32, 64, 128}
    assert {case.features for case in cases} >= {33, 65, 128, 200, 256}


def test_the_near_field_meets_every_map_block_and_option():
    cases = read_cases("near")
    blocks = (1, 7, 64, 128)
    assert seen(cases, "feature_map", "near") == set(itertools.product(SOFTMAX_MAPS, blocks))
    assert seen(cases, "causal", "near") == set(itertools.product(BOTH, blocks))
    assert seen(cases, "near", "dtype") == set(itertools.product(blocks, DTYPES.values()))
    for flag in FLAGS:
        assert seen(cases, flag) == {(True,), (False,)}
    for near in (7, 64, 128):  # on both sides of a border
        lengths = {case.length for case in cases if case.near == near}
        assert lengths >= {near - 1, near, near + 1}


def test_steps_are_of_one_token_behind_a_state():
    cases = read_cases("steps")
    assert seen(cases, "length", "state", "causal") == {(1, True, True)}
    every = set(itertools.product(FUSED_MAPS, FUSED_DTYPES))
    assert seen(cases, "feature_map", "dtype") == every
    assert {case.batch for case in cases} >= {1, 2, 3, 40}
