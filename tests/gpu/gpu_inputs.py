"""The tensors of a case, the same numbers in every run."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace

import torch
from gpu_errors import rms
from gpu_kernels import DEVICE
from op_cases import Case

import performer
from performer import FavorState


@dataclass
class Inputs:
    """Tensors on the device in the case's dtype."""

    case: Case
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    W: torch.Tensor | None
    grad: torch.Tensor  # of the output
    options: dict
    state: FavorState | None  # float32
    grad_state: tuple  # of kv 2^log2_scale and normalizer 2^log2_scale; empty: no gradient


def offsets_of(length, parts):
    """Bounds of `parts` packed sequences, one of them empty."""
    inner = sorted(length * n // (parts - 1) for n in range(1, parts - 1))
    return [0, 0, *inner, length]


def make_inputs(case):
    generator = torch.Generator(DEVICE).manual_seed(zlib.crc32(str(case).encode()))

    def normal(*shape):
        return torch.randn(*shape, generator=generator, device=DEVICE)

    B, H, Hk = case.batch, case.heads, case.key_heads
    q = case.magnitude * normal(B, H, case.length, case.dim)
    k = case.magnitude * normal(B, Hk, case.key_length, case.dim)
    v = normal(B, Hk, case.key_length, case.values)
    lead = (case.head_parameters,) if case.head_parameters else ()
    W = normal(*lead, case.features, case.dim) if case.features else None
    options = {}
    if case.mask:
        mask = torch.rand(B, case.key_length, generator=generator, device=DEVICE) < 0.7
        mask[-1] &= B == 1  # the last of several has no key at all
        options["key_mask"] = mask
    if case.key_bias:
        options["key_bias"] = normal(B, case.head_parameters or 1, case.key_length)
    if case.biases:
        options["bias_q"], options["bias_k"] = (
            normal(*lead, case.map_features),
            normal(*lead, case.map_features),
        )
    if case.key_projection:
        options["projection_k"] = normal(*lead, case.features, case.dim)
    sequences = B
    if case.packed:
        q_offsets, k_offsets = (offsets_of(n, 4) for n in (case.length, case.key_length))
        options["cu_seqlens_q"] = torch.tensor(q_offsets, dtype=torch.int32, device=DEVICE)
        options["cu_seqlens_k"] = torch.tensor(k_offsets, dtype=torch.int32, device=DEVICE)
        sequences = len(k_offsets) - 1
    grad = normal(B, H, case.length, case.values)
    state, grad_state = None, ()
    q, k, v, grad = (t.to(case.dtype) for t in (q, k, v, grad))
    inputs = Inputs(case, q, k, v, W, grad, options, state, grad_state)
    if case.state:
        inputs.state, inputs.grad_state = earlier_state(inputs, sequences, normal)
    return inputs


def earlier_state(inputs, sequences, normal):
    """The state after 7 keys of which the call knows nothing else, and a gradient for the final."""
    case = inputs.case
    names = ("bias_q", "bias_k", "projection_k")
    options = {name: t.double() for name, t in inputs.options.items() if name in names}
    if case.key_bias:
        options["key_bias"] = normal(sequences, case.head_parameters or 1, 7).double()
    k = normal(sequences, case.key_heads, 7, case.dim).double()
    v = normal(sequences, case.key_heads, 7, case.values).double()
    q = normal(sequences, case.heads, 1, case.dim).double()
    W = None if inputs.W is None else inputs.W.double()
    _, state = performer.favor_attention(q, k, v, W, case.feature_map, return_state=True, **options)
    state = FavorState(state.kv.float(), state.normalizer.float(), state.log2_scale)
    size = 1 / (1 + rms(true_state(state)[1]))  # gradients of tokens stay within float16
    return state, (size * normal(*state.kv.shape), size * normal(*state.normalizer.shape))


def leaves_of(inputs, dtype=None):
    """q, k, v and the state as leaves."""
    tokens = [
        t.detach().to(dtype or t.dtype).requires_grad_() for t in (inputs.q, inputs.k, inputs.v)
    ]
    if inputs.state is None:
        return tokens, None, tokens
    wide = dtype or torch.float32
    kv, normalizer = (t.detach().to(wide).requires_grad_() for t in inputs.state[:2])
    state = FavorState(kv, normalizer, inputs.state.log2_scale)
    return tokens, state, [*tokens, kv, normalizer]


def true_state(state):
    scale = torch.exp2(state.log2_scale.to(state.kv.dtype))
    return state.kv * scale.unsqueeze(-1), state.normalizer * scale


def order_of_dims(inputs, draw):
    generator = torch.Generator().manual_seed(draw)
    order = torch.randperm(inputs.case.dim, generator=generator)
    return order.to(inputs.q.device)


def permuted(inputs, draw):
    """The same call with its dims in another order: the same results, rounded differently."""
    if draw == 0:
        return inputs
    order = order_of_dims(inputs, draw)
    q, k, W = (None if t is None else t[..., order] for t in (inputs.q, inputs.k, inputs.W))
    options = dict(inputs.options)
    if "projection_k" in options:
        options["projection_k"] = options["projection_k"][..., order]
    return replace(inputs, q=q, k=k, W=W, options=options)
