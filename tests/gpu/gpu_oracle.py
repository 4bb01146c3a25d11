"""The operator with its gradients, and the same in float64: what fused results are held against."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from gpu_inputs import leaves_of, make_inputs, order_of_dims, true_state

import performer


@dataclass
class Result:
    out: torch.Tensor
    state: tuple  # kv 2^log2_scale, normalizer 2^log2_scale
    grads: list  # of q, k, v and of the state, as far as there is one
    kernels: tuple = ("", "")  # of the forward pass, of the backward pass


def gradients(inputs, out, state, leaves):
    loss = (out * inputs.grad.to(out.dtype)).sum(
        dtype=torch.promote_types(out.dtype, torch.float32)
    )
    for ours, theirs in zip(state, inputs.grad_state, strict=False):
        loss = loss + (ours * theirs.to(ours.dtype)).sum()
    grads = torch.autograd.grad(loss, leaves, allow_unused=True)
    return [torch.zeros_like(t) if g is None else g for g, t in zip(grads, leaves, strict=True)]


def run_operator(inputs, dtype=None):
    """The operator, its gradients, and the kernels that ran: in this thread, which knows them."""
    (q, k, v), start, leaves = leaves_of(inputs, dtype)
    convert = {} if dtype is None else {"dtype": dtype}
    options = {
        name: t.to(**convert) if convert and t.is_floating_point() else t
        for name, t in inputs.options.items()
    }
    W = inputs.W.to(dtype) if dtype is not None and inputs.W is not None else inputs.W
    with torch.autograd.set_multithreading_enabled(False):
        out, state = performer.favor_attention(
            q,
            k,
            v,
            W,
            inputs.case.feature_map,
            causal=inputs.case.causal,
            initial_state=start,
            return_state=True,
            **options,
        )
        forward = performer.last_kernel()
        final = true_state(state)
        grads = gradients(inputs, out, final, leaves)
    names = (forward, performer.last_kernel())
    return Result(out.detach(), tuple(t.detach() for t in final), grads, names)


@lru_cache(maxsize=2)
def references(case):
    """inputs, exact: kept for the other path of the same case."""
    inputs = make_inputs(case)
    return inputs, run_operator(inputs, torch.float64)


def permuted_back(result, inputs, draw):
    """Gradients of q and k with the dims in the order of the case."""
    if draw == 0:
        return result
    back = order_of_dims(inputs, draw).argsort()
    dq, dk, *others = result.grads
    return replace(result, grads=[dq[..., back], dk[..., back], *others])
