"""`config.favor`: what a model says about its attention, kept by save_pretrained."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from performer._near import MAPS_OF_NEAR

FIELD = "favor"  # the name of the config field, and of the features in an attention module
CAUSAL_NEAR = 64  # rotary heads look at exact earlier positions, which features alone cannot follow

_MOST_FEATURES = 1 << 16
_MOST_NEAR = 1 << 12


@dataclass(frozen=True)
class Options:
    """The entries of `model.config.favor`; every one may be left out.

    near None is 64 for causal layers and 0 for others; keep_exact names layers that keep exact
    attention; fitted says that the checkpoint holds features of its own for the other layers.
    """

    features: int = 64
    near: int | None = None
    seed: int = 0
    feature_map: str = "positive"
    keep_exact: tuple[int, ...] = ()
    fitted: bool = False

    def __post_init__(self) -> None:
        _check_whole("features", self.features, 0 if self.near else 1, _MOST_FEATURES)
        if self.near is not None:
            _check_whole("near", self.near, 0, _MOST_NEAR)
        _check_whole("seed", self.seed, 0, 2**63 - 1)
        if not isinstance(self.feature_map, str):
            raise ValueError(
                f"config.favor: feature_map must be the name of a map, got {self.feature_map!r}"
            )
        for layer in self.keep_exact:
            _check_whole("keep_exact", layer, 0, _MOST_FEATURES)
        if not isinstance(self.fitted, bool):
            raise ValueError(f"config.favor: fitted must be true or false, got {self.fitted!r}")

    def near_of(self, causal: bool) -> int:
        if self.near is not None:
            return self.near
        return CAUSAL_NEAR if causal and self.feature_map in MAPS_OF_NEAR else 0

    def as_config(self) -> dict[str, Any]:
        """For a JSON file."""
        return {**asdict(self), "keep_exact": list(self.keep_exact)}


def read_options(config: Any) -> Options:
    """The options of a transformers config; defaults where it says nothing."""
    given = getattr(config, FIELD, None)
    if given is None:
        return Options()
    if not isinstance(given, dict):
        raise ValueError(
            f"config.favor must be a dictionary such as {{'features': 64}}, got {given!r}"
        )
    known = [field.name for field in fields(Options)]
    for name in given:
        if name not in known:
            raise ValueError(f"config.favor: unknown entry {name!r}; there are {', '.join(known)}")
    entries = dict(given)
    kept = entries.get("keep_exact", ())
    if not isinstance(kept, (list, tuple)):
        raise ValueError(f"config.favor: keep_exact must be a list of layers, got {kept!r}")
    return Options(**{**entries, "keep_exact": tuple(kept)})


def _check_whole(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(
            f"config.favor: {name} must be a whole number from {least} to {most}, got {value!r}"
        )
