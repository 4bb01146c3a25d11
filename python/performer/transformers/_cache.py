"""FavorCache: what generate keeps between tokens, of one size whatever the length."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicLayer

from performer.state import FavorState
from performer.transformers._options import read_options

_MARK = "_favor_memory"  # of a layer, on the keys that its update returns


class FavorCacheLayer(CacheLayerMixin):
    """The state of one layer. `update` hands the new keys on, marked, and the attention function
    takes the state from here and puts the next one back."""

    is_sliding = False
    is_compileable = False
    is_croppable = False
    supports_early_init = False

    def __init__(self) -> None:
        super().__init__()
        self.state: FavorState | None = None
        self.seen = 0  # tokens
        self._waits = False  # keys were handed on whose state has not come back

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        if self._waits:
            raise ValueError(
                'FavorCache: the keys of the step before did not reach attn_implementation="favor";'
                " is it the attention of this model, and does the model pass them on unchanged?"
            )
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.seen += key_states.shape[-2]
        self._waits = True
        marked = key_states.view_as(key_states)  # the mark must not stay on the caller's tensor
        setattr(marked, _MARK, self)
        return marked, value_states

    def take(self) -> FavorState | None:
        return self.state

    def put(self, state: FavorState) -> None:
        self.state = FavorState(**{name: part.detach() for name, part in state.tensors().items()})
        self._waits = False

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return query_length, self.seen

    def get_seq_length(self) -> int:
        return self.seen

    def get_max_length(self) -> int:
        return -1  # none

    def reset(self) -> None:
        self.state, self.seen, self._waits = None, 0, False

    def reorder_cache(self, beam_idx: Tensor) -> None:
        if self.state is not None:
            self.state = self.state.reorder(beam_idx.to(self.state.kv.device))

    def batch_select_indices(self, indices: Tensor) -> None:
        self.reorder_cache(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.state is not None:
            rows = torch.arange(self.state.kv.shape[0], device=self.state.kv.device)
            self.state = self.state.reorder(rows.repeat_interleave(repeats))

    def crop(self, tokens_to_remove: int) -> None:
        raise ValueError(
            "FavorCache: tokens cannot be taken out of a sum again, so assisted generation and "
            "cropping are not possible"
        )

    def offload(self) -> None:
        """A state is small; it stays."""

    def prefetch(self) -> None:
        """It is there."""


class FavorCache(Cache):
    """past_key_values of a causal model with attn_implementation="favor".

    Memory and time per token do not grow with the length: each layer keeps a FavorState. Layers of
    config.favor["keep_exact"] keep keys and values, as exact attention must. `generate` makes one
    by itself for such models.

    Example:
        >>> model.generate(ids, past_key_values=performer.FavorCache(model.config))
    """

    def __init__(self, config: Any) -> None:
        text = config.get_text_config(decoder=True)
        kept = read_options(text).keep_exact
        layers = range(text.num_hidden_layers)
        super().__init__([DynamicLayer() if i in kept else FavorCacheLayer() for i in layers])

    @property
    def nbytes(self) -> int:
        """Of the states; keys and values of exact layers are not counted."""
        states = [layer.state for layer in self.layers if isinstance(layer, FavorCacheLayer)]
        return sum(state.nbytes for state in states if state is not None)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return int(self.layers[layer_idx].get_seq_length())

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Of all keys: the layers take from the mask what they need."""
        return query_length, self.get_seq_length(layer_idx)


def memory_of(key: Tensor) -> FavorCacheLayer | None:
    """The layer of a FavorCache that handed these keys on."""
    layer = getattr(key, _MARK, None)
    return layer if isinstance(layer, FavorCacheLayer) else None
