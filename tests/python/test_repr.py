"""What the package's values print: shapes and ranges, never walls of numbers."""

import pytest
import torch

import performer


def state(features=256, dim=64, dtype=torch.float32):
    q, k, v = torch.randn(3, 2, 8, 5, dim, dtype=dtype).unbind()
    W = performer.draw_projection(features, dim)
    return performer.favor_attention(q, k, v, W, return_state=True)[1]


def test_a_state_prints_its_shapes_and_bytes():
    nbytes = 4 * (2 * 8 * 256 * 64 + 2 * 2 * 8 * 256) + 8
    assert repr(state()) == str(state()) == (
        "FavorState(kv=[2, 8, 256, 64] float32, normalizer=[2, 8, 256] float32, "
        f"log2_scale=[2, 8, 256] int32, fingerprint=[1] int64, device=cpu, {nbytes:,} bytes)"
    )  # fmt: skip
    meta = performer.FavorState(*(torch.empty(2, 3, 4, device="meta") for _ in range(3)))
    assert "device=meta" in repr(meta) and "fingerprint" not in repr(meta)


@pytest.mark.parametrize("kind", ["hadamard", "givens"])
def test_a_projection_prints_its_shape(kind):
    P = performer.draw_structured(256, 64, heads=8, kind=kind)
    assert repr(P) == (
        f"Projection({kind}, [8, 256, 64] from {P.numel:,} numbers, device=cpu)"
    )  # fmt: skip


def test_a_quality_prints_ranges_over_the_heads():
    q, k, v = torch.randn(3, 1, 32, 50, 8).unbind()
    quality = performer.approximation_quality(q, k, v, performer.draw_projection(64, 8))
    text = repr(quality)
    assert text.startswith("ApproximationQuality(heads=32, squared_sum=") and len(text) < 300
    assert f"error={quality.error.min():.4g}...{quality.error.max():.4g}" in text
    assert len(str(quality).splitlines()) == 1 + 32 + 1
    none = performer.ApproximationQuality(*(torch.empty(0) for _ in quality))
    assert "error=none" in repr(none)
    meta = performer.ApproximationQuality(*(torch.empty(3, device="meta") for _ in quality))
    assert "error=meta" in repr(meta) and str(meta) == repr(meta)
    holes = quality._replace(error=torch.tensor([0.5, float("nan"), 0.25]))
    assert "error=0.25...0.5 and 1 nan" in repr(holes)


def test_modules_print_their_options_and_maps():
    assert len(repr(performer.FavorSDPA(8, 2)).splitlines()) == 1
    assert len(repr(performer.MultiheadAttention(8, 2)).splitlines()) == 7
