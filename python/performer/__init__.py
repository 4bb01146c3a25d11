"""FAVOR+ attention ("Rethinking Attention with Performers"): softmax attention at linear cost."""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from performer._library import load as _load_library

# The modules below name operators that exist only once the library is loaded.
__version__ = _load_library().version

from performer._run.load import load  # noqa: E402
from performer.analysis import (  # noqa: E402
    ApproximationQuality,
    approximation_quality,
    attention_map,
    exact_attention,
    exact_attention_map,
    fit_oprf,
    oprf,
)
from performer.attention import favor_attention, favor_step, features  # noqa: E402
from performer.coming_from import from_performer_pytorch  # noqa: E402
from performer.diagnostics import last_kernel  # noqa: E402
from performer.merge import merge_states  # noqa: E402
from performer.module import FavorAttention  # noqa: E402
from performer.multihead import MultiheadAttention  # noqa: E402
from performer.projection import Projection, draw_projection, draw_structured  # noqa: E402
from performer.sdpa import FavorSDPA, scaled_dot_product_attention  # noqa: E402
from performer.state import FavorState  # noqa: E402

if _TYPE_CHECKING:
    from performer.transformers import FavorCache as FavorCache
    from performer.transformers import convert as convert
    from performer.transformers import from_pretrained as from_pretrained
    from performer.transformers import patch as patch
    from performer.transformers import unpatch as unpatch

# Of the package transformers, which is imported when one of these is used; not in __all__, so that
# `import *` works without it.
_OF_TRANSFORMERS = ("FavorCache", "convert", "from_pretrained", "patch", "unpatch")


def __getattr__(name: str) -> _Any:
    if name not in _OF_TRANSFORMERS:
        raise AttributeError(f"module 'performer' has no attribute {name!r}")
    import performer.transformers

    return getattr(performer.transformers, name)


__all__ = [
    "ApproximationQuality",
    "FavorAttention",
    "FavorSDPA",
    "FavorState",
    "MultiheadAttention",
    "Projection",
    "__version__",
    "approximation_quality",
    "attention_map",
    "draw_projection",
    "draw_structured",
    "exact_attention",
    "exact_attention_map",
    "favor_attention",
    "favor_step",
    "features",
    "fit_oprf",
    "from_performer_pytorch",
    "last_kernel",
    "load",
    "merge_states",
    "oprf",
    "scaled_dot_product_attention",
]
