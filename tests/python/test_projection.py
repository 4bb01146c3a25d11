"""Random projections as Python draws them; tests/ops has the mathematics."""

import pytest
import torch

import performer

KINDS = ["iid", "orthogonal", "simplex", "hadamard", "givens"]


@pytest.mark.parametrize("norm", ["chi", "sqrt_d"])
@pytest.mark.parametrize("kind", KINDS)
def test_entries_are_exact_in_both_16_bit_types(kind, norm):
    for dim in (1, 2, 7, 32, 80):
        W = performer.draw_projection(40, dim, heads=3, kind=kind, norm=norm)
        assert torch.equal(W, W.bfloat16().float()) and torch.equal(W, W.half().float())
        free = performer.draw_projection(40, dim, heads=3, kind=kind, norm=norm, rounding="none")
        torch.testing.assert_close(W, free, rtol=1 / 256, atol=2**-25)


def test_the_option_is_the_last_argument_and_bf16_without_it():
    W = performer.draw_projection(8, 4, 2, "iid", "chi", 3, 1, 2)
    assert torch.equal(W, performer.draw_projection(8, 4, 2, "iid", "chi", 3, 1, 2, "bf16"))
    op = torch.ops.performer.draw_projection
    assert torch.equal(W, op(8, 4, 2, "iid", "chi", 3, 1, 2))
    with pytest.raises(RuntimeError, match="rounding must be bf16 or none, got .fp16"):
        performer.draw_projection(8, 4, rounding="fp16")


@pytest.mark.parametrize("kind", ["hadamard", "givens"])
def test_structured_forms_are_not_rounded(kind):
    P = performer.draw_structured(40, 31, heads=2, kind=kind)
    free = performer.draw_projection(40, 31, heads=2, kind=kind, rounding="none")
    assert torch.equal(P.dense(), free)
    assert not torch.equal(P.dense(), performer.draw_projection(40, 31, heads=2, kind=kind))
