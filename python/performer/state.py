"""The streaming state of FAVOR+ attention: what the keys seen so far leave behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class FavorState(NamedTuple):
    """Plain tensors, O(M' Dv) numbers per sequence and head, whatever the length read so far:

        kv * 2^log2_scale = sum_j phi(k_j) v_j^T,    normalizer * 2^log2_scale = sum_j phi(k_j),

    and with a near field of b tokens a block 2 b keys and values, which are not in the sums yet.

    A tuple, so torch.compile, torch.export and autograd see through it. Steps return new states
    and never write to old ones: keeping a state is a fork.

    Example:
        >>> _, state = performer.favor_attention(q, k, v, W, causal=True, return_state=True)
        >>> torch.save(state.tensors(), "state.pt")
        >>> state = performer.FavorState(**torch.load("state.pt", weights_only=True))
        >>> beams = state.reorder(torch.tensor([2, 0, 0]))
    """

    kv: Tensor  # [N, Hs, M', Dv] float32 or float64
    normalizer: Tensor  # [N, Hs, M']
    log2_scale: Tensor  # [N, Hs, M'] int32
    fingerprint: Tensor | None = None  # int64 [1]: W, map and scale; None: not checked
    # With a near field of b tokens a block, what the next token sees exactly: the block before its
    # own in places 0 ... b - 1, what there is of its own from place b on.
    near_keys: Tensor | None = None  # [N, Hkv, 2b, D] in the dtype of kv
    near_values: Tensor | None = None  # [N, Hkv, 2b, Dv]
    near_bias: Tensor | None = None  # [N, Hs, 2b] key_bias; -inf: no key here
    near_position: Tensor | None = None  # int64 [N]: tokens since the first real one

    def reorder(self, index: Tensor) -> FavorState:
        """The sequences `index` (int64 [N']), in that order, repeats allowed: beams, forks."""
        fits = index.dtype in (torch.int64, torch.int32) and index.dim() <= 1
        nothing = self.kv.shape[0] == 0 and index.numel() > 0
        if not fits or nothing or index.device != self.kv.device:
            raise _index_error(self.kv, index)
        try:  # first the part that is never empty: for others the error is of another type
            normalizer = self.normalizer.index_select(0, index)
        except IndexError as error:
            raise _index_error(self.kv, index) from error
        chosen = self._each(lambda tensor: tensor.index_select(0, index))
        return chosen._replace(normalizer=normalizer)

    def to(self, device: torch.device | str) -> FavorState:
        """The state on `device`."""
        moved = self._each(lambda tensor: tensor.to(device))
        fingerprint = None if self.fingerprint is None else self.fingerprint.to(device)
        return moved._replace(fingerprint=fingerprint)

    @property
    def near(self) -> int:
        """Tokens of a block of the near field; 0: there is none."""
        return 0 if self.near_keys is None else self.near_keys.shape[2] // 2

    def _each(self, change: Callable[[Tensor], Tensor]) -> FavorState:
        """change(tensor) for all that have a row for each sequence; what is absent stays so."""
        changed = {name: change(tensor) for name, tensor in by_sequence(self).items()}
        return self._replace(**changed)

    def __repr__(self) -> str:
        """Shapes, not numbers: a state of a few heads already has millions."""
        parts = ", ".join(f"{name}={describe(x)}" for name, x in self.tensors().items())
        return f"FavorState({parts}, device={self.kv.device}, {self.nbytes:,} bytes)"

    @property
    def nbytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors().values())

    def tensors(self) -> dict[str, Tensor]:
        """For torch.save or safetensors; `FavorState(**tensors)` is the way back."""
        return {name: tensor for name, tensor in self._asdict().items() if tensor is not None}

    @staticmethod
    def concatenate(states: Sequence[FavorState]) -> FavorState:
        """One batch out of the sequences of several states of the same W, map and scale."""
        if not states:
            raise ValueError("FavorState.concatenate: states must not be empty")
        for state in states[1:]:
            _check_same_form(states[0], state)
            check_same_features("FavorState.concatenate", states[0], state)
        parts = [by_sequence(state) for state in states]
        joined = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        return states[0]._replace(**joined)


def by_sequence(state: FavorState) -> dict[str, Tensor]:
    """The tensors that have a row for each sequence: all but the fingerprint."""
    return {name: tensor for name, tensor in state.tensors().items() if name != "fingerprint"}


def describe(tensor: Tensor) -> str:
    """Shape and dtype, such as [2, 8, 256, 64] float32."""
    return f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def _index_error(kv: Tensor, index: Tensor) -> IndexError:
    """Made where it is raised alone: sizes in its text would be constants of compiled code."""
    return IndexError(
        f"FavorState.reorder: index must be int64 [N'] of sequences below {kv.shape[0]} "
        f"on {kv.device}, got {describe(index)} on {index.device}"
    )


def _check_same_form(first: FavorState, other: FavorState) -> None:
    if first.near != other.near:
        raise ValueError(
            f"FavorState.concatenate: the states must have one near field, got near={first.near} "
            f"and {other.near}"
        )
    for name, one in by_sequence(first).items():
        two = getattr(other, name)
        same = one.dtype == two.dtype and one.device == two.device
        if not same or one.shape[1:] != two.shape[1:]:
            raise ValueError(
                f"FavorState.concatenate: the states must agree but for the number of sequences, "
                f"got {name} {describe(one)} on {one.device} and {describe(two)} on {two.device}"
            )


def check_same_features(op: str, first: FavorState, second: FavorState) -> None:
    """Sums of different features must not be added."""
    compare_fingerprints(
        f"{op}: the states must come from the same projection, map and scale",
        (first.fingerprint, second.fingerprint),
    )


def compare_fingerprints(message: str, pair: tuple[Tensor | None, Tensor | None]) -> None:
    """Raises with `message` unless both are equal; a missing one is not checked."""
    one, other = pair
    if one is None or other is None:
        return
    for fingerprint in (one, other):
        if fingerprint.dtype != torch.int64 or fingerprint.shape != (1,):
            op = message.split(":")[0]
            raise ValueError(f"{op}: fingerprint must be int64 [1], got {describe(fingerprint)}")
    same = (one == other).all()
    if torch.compiler.is_compiling():
        torch._assert_async(same, message)
    elif not same.is_meta and not bool(same):
        raise ValueError(f"{message}, got fingerprints {one.item()} and {other.item()}")
