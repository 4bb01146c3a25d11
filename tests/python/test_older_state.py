"""States that an older version has saved go on: tests/fixtures says how they were made."""

from pathlib import Path

import pytest
import torch

import performer
from performer import FavorState

OLDER = Path(__file__).parents[1] / "fixtures/2c2be99"


@pytest.fixture
def saved():
    """The state, and the next token with what the older version made of it."""
    state = FavorState(**torch.load(OLDER / "state.pt", weights_only=True))
    return state, torch.load(OLDER / "step.pt", weights_only=True)


def test_a_step_gives_what_it_gave(saved):
    state, then = saved
    out, after = performer.favor_step(then["q"], then["k"], then["v"], then["W"], state)
    close = {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(out, then["out"], **close)
    assert torch.equal(after.fingerprint, then["fingerprint"])
    for name in ("kv", "normalizer"):
        scales = [torch.exp2(s.float()) for s in (after.log2_scale, then["log2_scale"])]
        ours, theirs = (
            t * (s.unsqueeze(-1) if name == "kv" else s)
            for t, s in zip((getattr(after, name), then[name]), scales, strict=True)
        )
        torch.testing.assert_close(ours, theirs, **close)


def test_another_projection_is_still_refused(saved):
    state, then = saved
    with pytest.raises(RuntimeError, match="initial_state was made with another W"):
        performer.favor_step(then["q"], then["k"], then["v"], then["W"] + 1, state)
