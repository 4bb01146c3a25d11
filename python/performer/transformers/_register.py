"""The name "favor" in transformers' registers."""

from __future__ import annotations

import functools
from typing import Any

from transformers import AttentionInterface
from transformers.generation.utils import GenerationMixin
from transformers.masking_utils import AttentionMaskInterface

from performer.transformers._attention import favor_attention_forward
from performer.transformers._cache import FavorCache
from performer.transformers._masks import favor_mask

NAME = "favor"
_MAKES_A_CACHE = "_prepare_cache_for_generation"


def register() -> None:
    """Makes attn_implementation="favor" known; once or more often."""
    AttentionInterface.register(NAME, favor_attention_forward)
    AttentionMaskInterface.register(NAME, favor_mask)
    _let_generate_make_a_cache()


def _let_generate_make_a_cache() -> None:
    """generate makes a cache of keys for models it knows nothing about. Where transformers has no
    such method, the attention function asks for a FavorCache by name."""
    original = getattr(GenerationMixin, _MAKES_A_CACHE, None)
    if original is None or hasattr(original, "favor"):
        return

    @functools.wraps(original)
    def prepare(
        self: Any, generation_config: Any, model_kwargs: dict[str, Any], *rest: Any, **named: Any
    ) -> Any:
        text = self.config.get_text_config(decoder=True)
        chosen = generation_config.cache_implementation not in (None, "dynamic")
        wanted = generation_config.use_cache is not False and not chosen
        missing = model_kwargs.get("past_key_values") is None
        if text._attn_implementation == NAME and wanted and missing:
            model_kwargs["past_key_values"] = FavorCache(self.config)
            return None
        return original(self, generation_config, model_kwargs, *rest, **named)

    prepare.favor = True  # type: ignore[attr-defined]
    setattr(GenerationMixin, _MAKES_A_CACHE, prepare)
