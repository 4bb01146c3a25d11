"""Names and layouts of torch.nn.MultiheadAttention, as FavorAttention takes and shows them."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from performer._own_projection import KeepsProjection

if TYPE_CHECKING:
    from typing_extensions import Self

PARTS = ("q", "k", "v")


_IN_PLACE = ("__setitem__", "__set__", "__iadd__", "__isub__", "__imul__", "__itruediv__")


class JoinedWeight(Tensor):
    """in_proj_weight and in_proj_bias, copies as torch.nn.TransformerEncoder reads them in eval().

    A type of its own, because torch's fused encoder, which would compute softmax attention from
    the weights and pass this layer by, leaves tensors of other types alone; and because what is
    written to a copy would vanish, through a slice or view of it too. What is computed from one is
    a plain tensor.
    """

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.compiler.is_compiling():  # dynamo cannot follow the names of functions
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        writes = name in _IN_PLACE or (name.endswith("_") and not name.endswith("__"))
        targets = [kwargs.get("out")]
        if writes:
            targets += [*args, *kwargs.values()][:1]
        if any(isinstance(target, cls) for target in targets):
            raise RuntimeError(
                f"FavorAttention: in_proj_weight and in_proj_bias are copies, which {name} must "
                f"not write to; write to q_proj, k_proj and v_proj"
            )
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **kwargs)
            given = (*args, *kwargs.values())
            copies = [x for x in given if isinstance(x, cls)]
            return result if name == "as_subclass" else _marked_where_shared(result, copies)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Files hold plain tensors, which load with weights_only=True."""
        return self.as_subclass(Tensor).__reduce_ex__(protocol)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return copy.deepcopy(self.as_subclass(Tensor), memo)


def _marked_where_shared(result: Any, copies: list[JoinedWeight]) -> Any:
    """A slice, .data or .detach() shares the memory of the copy: writing to it vanishes as well."""
    if type(result) in (tuple, list):  # of split, chunk, unbind
        return type(result)(_marked_where_shared(one, copies) for one in result)
    if not isinstance(result, Tensor):
        return result
    alias = torch._C._is_alias_of  # type: ignore[attr-defined]
    return _marked(result) if any(alias(result, one) for one in copies) else result


def _marked(tensor: Tensor) -> Tensor:
    """A tracer's tensors keep the type they have."""
    return tensor.as_subclass(JoinedWeight) if type(tensor) is Tensor else tensor


def joined(tensors: list[Tensor | None]) -> Tensor | None:
    """Of queries, keys and values, one below the other; None where they have no common form."""
    there = [tensor for tensor in tensors if tensor is not None]
    if len(there) < len(PARTS) or len({tensor.shape[1:] for tensor in there}) > 1:
        return None
    return _marked(torch.cat(there))


def freeze_alike(ours: nn.Linear, theirs: nn.Linear) -> None:
    """What did not learn there does not learn here."""
    for mine, other in ((ours.weight, theirs.weight), (ours.bias, theirs.bias)):
        if mine is not None and other is not None:
            mine.requires_grad_(other.requires_grad)


def refuse_what_has_no_counterpart(
    dropout: float, add_bias_kv: bool = False, add_zero_attn: bool = False
) -> None:
    if dropout != 0:
        raise ValueError(
            f"FavorAttention: dropout must be 0, got {dropout}: FAVOR+ forms no attention weights "
            f"that could be dropped; put nn.Dropout after the layer, or pass dropout=0.0"
        )
    for name, value in (("add_bias_kv", add_bias_kv), ("add_zero_attn", add_zero_attn)):
        if value:
            raise ValueError(
                f"FavorAttention: {name} must be False, got {value}: the layer attends to the keys "
                f"it is given and adds none of its own"
            )


def _take_names(layer: MultiheadNames, state: dict[str, Any], prefix: str) -> None:
    """Renames, in place, the entries of a state dict of nn.MultiheadAttention to the layer's.

    Such a dict has no projection: the layer gets its draw 0. Not what its buffers hold, which after
    to_empty() is any numbers, and on the meta device none.
    """
    found: Tensor | None = None
    for name in ("weight", "bias"):
        whole = state.pop(f"{prefix}in_proj_{name}", None)
        if whole is not None:
            found = whole
            rows = _split(layer, f"{prefix}in_proj_{name}", whole)
            for part, share in zip(PARTS, rows, strict=True):
                state[f"{prefix}{part}_proj.{name}"] = share
    for part in PARTS:
        separate = state.pop(f"{prefix}{part}_proj_weight", None)
        if separate is not None:
            found = separate
            state[f"{prefix}{part}_proj.weight"] = separate
    if found is None:
        return
    device = found.device  # assign=True takes the tensors as they are
    projection = layer._draw(0)
    if projection is not None and layer.projection is not None:
        projection = projection.to(device, layer.projection.dtype)
        state.setdefault(f"{prefix}projection", projection)
    for name in ("draw", "calls"):
        state.setdefault(prefix + name, torch.zeros((), dtype=torch.int64, device=device))


def _split(layer: MultiheadNames, name: str, whole: Tensor) -> tuple[Tensor, ...]:
    rows = [linear.out_features for linear in (layer.q_proj, layer.k_proj, layer.v_proj)]
    if whole.dim() == 0 or whole.shape[0] != sum(rows):
        raise RuntimeError(
            f"FavorAttention: {name} must have {sum(rows)} rows ({rows} for queries, keys and "
            f"values), got {list(whole.shape)}"
        )
    return whole.split(rows)


class MultiheadNames(KeepsProjection):
    """What nn.MultiheadAttention has and others ask for: its weights by name, in and out."""

    q_proj: nn.Linear
    k_proj: nn.Linear
    v_proj: nn.Linear
    # torch.nn.TransformerEncoderLayer would compute softmax attention from in_proj_weight if True.
    _qkv_same_embed_dim = False
    bias_k = bias_v = None
    add_zero_attn = False
    out_proj: nn.Linear

    @classmethod
    def from_multihead(
        cls,
        mha: nn.MultiheadAttention,
        num_features: int | None = 256,
        *,
        dropout: float | None = None,
        **options: Any,
    ) -> Self:
        """A layer with the weights, layout, device and mode of `mha`; what is frozen stays frozen.

        options: those of the constructor, such as causal, seed, and layer, the number that gives
        each layer a projection of its own. A dropout of `mha` other than 0 is refused unless
        dropout=0.0 says that it may go.

        Example:
            >>> for n, block in enumerate(encoder.layers):
            ...     block.self_attn = MultiheadAttention.from_multihead(
            ...         block.self_attn, layer=n, dropout=0.0
            ...     )
        """
        if not isinstance(mha, nn.MultiheadAttention):
            converted = ", which is converted already" if isinstance(mha, MultiheadNames) else ""
            raise TypeError(
                f"{cls.__name__}.from_multihead: mha must be a torch.nn.MultiheadAttention, got a "
                f"{type(mha).__name__}{converted}"
            )
        layer = cls(num_features=num_features, **{**_options_of(mha, dropout), **options})
        layer.load_state_dict(mha.state_dict())
        for part in PARTS:
            linear = getattr(layer, f"{part}_proj")
            separate = getattr(mha, f"{part}_proj_weight")
            weight = mha.in_proj_weight if separate is None else separate
            linear.weight.requires_grad_(weight.requires_grad)
            if linear.bias is not None:
                linear.bias.requires_grad_(mha.in_proj_bias.requires_grad)
        freeze_alike(layer.out_proj, mha.out_proj)
        layer.train(mha.training)
        return layer

    @property
    def in_proj_weight(self) -> Tensor | None:
        """[E + 2 Hkv D, E] as in nn.MultiheadAttention, a copy; None where kdim or vdim differ."""
        return joined([part.weight for part in (self.q_proj, self.k_proj, self.v_proj)])

    @property
    def in_proj_bias(self) -> Tensor | None:
        """[E + 2 Hkv D] as in nn.MultiheadAttention, a copy; None without biases."""
        return joined([part.bias for part in (self.q_proj, self.k_proj, self.v_proj)])

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *arguments: Any
    ) -> None:
        _take_names(self, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *arguments)


def _options_of(mha: nn.MultiheadAttention, dropout: float | None) -> dict[str, Any]:
    """Keyword arguments of FavorAttention for a layer of the shape of `mha`."""
    return {
        "embed_dim": mha.embed_dim,
        "num_heads": mha.num_heads,
        "kdim": mha.kdim,
        "vdim": mha.vdim,
        "bias": mha.in_proj_bias is not None,
        "batch_first": mha.batch_first,
        "dropout": mha.dropout if dropout is None else dropout,
        "add_bias_kv": mha.bias_k is not None,
        "add_zero_attn": mha.add_zero_attn,
        "device": mha.out_proj.weight.device,
        "dtype": mha.out_proj.weight.dtype,
    }
