"""Plain tensor code on inputs in their dtype, arithmetic in float32, features and output rounded
once: the output to the dtype, the features to the dtype that those of the kernel have."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from gpu_inputs import leaves_of, permuted
from gpu_kernels import DEVICE, composed_backward
from gpu_oracle import Result, gradients, permuted_back, references

from performer import FavorState

RELU_EPS = 1e-3


def take_heads(t, heads, dim=1):
    """Head h of `heads` reads head h // (heads / n) of the n of `t`."""
    return t.repeat_interleave(heads // t.shape[dim], dim)


def by_head(parameter, heads, trailing):
    """[..., rows] -> [heads, ..., rows]."""
    parameter = parameter if parameter.dim() > trailing else parameter.unsqueeze(0)
    return take_heads(parameter, heads, 0)


def log_features(case, x, W, bias, scale):
    """[B, heads, L, M'] without the keys' own terms; relu: the features."""
    u = math.sqrt(scale) * x
    if W is not None:
        u = u @ by_head(W, x.shape[1], 2).transpose(-1, -2)
    if case.feature_map == "relu":
        return torch.relu(u) + RELU_EPS
    if case.feature_map == "hyperbolic":
        u = torch.cat([u, -u], -1)
    return u if bias is None else u + by_head(bias, x.shape[1], 1).unsqueeze(-2)


class Unfused:
    """One dense sequence per batch entry, in float32, by plain tensor code."""

    def __init__(self, inputs, feature_dtype):
        self.inputs, self.case = inputs, inputs.case
        self.feature_dtype = feature_dtype
        self.state_heads = self.case.heads if composed_backward(self.case) else self.case.key_heads

    def round(self, x):
        """Features, once; their gradients too, unless they would leave the range."""
        if self.feature_dtype == torch.float32:
            return x
        rounded = x.to(self.feature_dtype).float()
        return x + (rounded - x).detach() if self.feature_dtype == torch.float16 else rounded

    def keys(self, k, mask, key_bias):
        """Log features of the keys [B, Hs, Lk, M'], -inf where masked (relu: features, 0)."""
        case, options = self.case, self.inputs.options
        scale = self.scale()
        if mask is not None:
            k = k.masked_fill(~mask[:, None, :, None], 0)
        k = take_heads(k.float(), self.state_heads)
        W = options.get("projection_k", self.inputs.W)
        phi = log_features(case, k, W, options.get("bias_k"), scale)
        if case.feature_map in ("positive", "hyperbolic"):
            phi = phi - scale / 2 * k.square().sum(-1, keepdim=True)
        if key_bias is not None:
            phi = phi + take_heads(key_bias, self.state_heads).unsqueeze(-1)
        gone = 0 if case.feature_map == "relu" else -math.inf
        return phi if mask is None else phi.masked_fill(~mask[:, None, :, None], gone)

    def scale(self):
        return 1.0 if self.case.feature_map == "relu" else 1 / math.sqrt(self.case.dim)

    def attend(self, q, k, v, mask=None, key_bias=None, start=None):
        """out [B, H, Lq, Dv] and the final state times its scale."""
        case = self.case
        if mask is not None:
            v = v.masked_fill(~mask[:, None, :, None], 0)
        v = take_heads(v.float(), self.state_heads)
        if (case.dtype, self.feature_dtype) == (torch.float16, torch.bfloat16):
            v = v + (v.bfloat16().float() - v).detach()  # the products' other side is of one dtype
        W, bias = self.inputs.W, self.inputs.options.get("bias_q")
        queries = log_features(case, q.float(), W, bias, self.scale())
        keys = self.keys(k, mask, key_bias)
        if case.causal and case.magnitude > 1:
            return self.row_by_row(queries, keys, v), ()
        if case.feature_map == "relu":
            log = None
            phi_q, phi_k = self.round(queries), self.round(keys)
        else:
            log = self.key_scale(keys, start)
            reached = log > -math.inf
            safe = log.masked_fill(~reached, 0)
            phi_k = self.round(torch.exp(keys - safe.unsqueeze(-2)))
            along = queries + take_heads(safe, case.heads).unsqueeze(-2)
            along = along.masked_fill(~take_heads(reached, case.heads).unsqueeze(-2), -math.inf)
            shift = along.detach().amax(-1, keepdim=True)
            phi_q = self.round(torch.exp(along - shift.masked_fill(shift == -math.inf, 0)))
        kv0, z0 = self.start(start, log)
        kv = phi_k.transpose(-1, -2) @ v + kv0
        z = phi_k.sum(-2) + z0
        if case.causal:
            weights = (phi_q @ take_heads(phi_k, case.heads).transpose(-1, -2)).tril()
            top = weights @ take_heads(v, case.heads)
            bottom = weights.sum(-1, keepdim=True)
            if start is not None:
                top = top + phi_q @ take_heads(kv0, case.heads)
                bottom = bottom + phi_q @ take_heads(z0, case.heads).unsqueeze(-1)
        else:
            top = phi_q @ take_heads(kv, case.heads)
            bottom = phi_q @ take_heads(z, case.heads).unsqueeze(-1)
        if log is not None:
            kv, z = kv * torch.exp(safe).unsqueeze(-1), z * torch.exp(safe)
        return self.divide(top, bottom), (kv, z)

    @staticmethod
    def divide(top, bottom):
        return torch.where(bottom == 0, 0, top / torch.where(bottom == 0, 1, bottom))

    def key_scale(self, keys, start):
        """[B, Hs, M'] the largest log feature of a key; -inf where there is none."""
        if keys.shape[-2]:
            log = keys.detach().amax(-2)
        else:
            log = keys.new_full((*keys.shape[:2], keys.shape[-1]), -math.inf)
        if start is None:
            return log
        return torch.maximum(log, self.start_scale(start))

    @staticmethod
    def start_scale(start):
        log = start.log2_scale.float() * math.log(2)
        return log.masked_fill(start.log2_scale < -(1 << 29), -math.inf)

    def start(self, start, log):
        """S and z of the initial state, in the scales of the call."""
        if start is None:
            return 0, 0
        if log is None:
            return start.kv, start.normalizer
        factor = torch.exp(self.start_scale(start) - log.masked_fill(log == -math.inf, 0))
        return start.kv * factor.unsqueeze(-1), start.normalizer * factor

    def row_by_row(self, queries, keys, v):
        """Causal, at any norm: each row in the scale of its own largest term."""
        case = self.case

        def rounding(log):
            """What rounding a feature multiplies it by."""
            part = torch.exp2((log.detach() / math.log(2)) % 1)
            return self.round(part) / part

        rows, keys = [], take_heads(keys, case.heads)
        round_q, round_k = rounding(queries), rounding(keys)
        v = take_heads(v, case.heads)
        for begin in range(0, queries.shape[-2], 32):
            end = min(begin + 32, queries.shape[-2])
            log = queries[:, :, begin:end, None] + keys[:, :, None, :end]  # [B, H, rows, keys, M']
            later = torch.ones(end - begin, end, dtype=torch.bool, device=DEVICE).triu(begin + 1)
            log = log.masked_fill(later[:, :, None], -math.inf)
            log = log - log.detach().amax((-1, -2), keepdim=True)
            terms = torch.exp(log) * round_q[:, :, begin:end, None] * round_k[:, :, None, :end]
            weights = terms.sum(-1)
            rows.append((weights @ v[:, :, :end]) / weights.sum(-1, keepdim=True))
        return torch.cat(rows, -2)

    def run(self):
        inputs = self.inputs
        (q, k, v), start, leaves = leaves_of(inputs)
        options = inputs.options
        mask, key_bias = options.get("key_mask"), options.get("key_bias")
        if self.case.packed:
            q_bounds, k_bounds = (options[f"cu_seqlens_{x}"].tolist() for x in "qk")
            outs, finals = [], []
            for n in range(len(k_bounds) - 1):
                rows = slice(q_bounds[n], q_bounds[n + 1])
                span = slice(k_bounds[n], k_bounds[n + 1])
                out, final = self.attend(
                    q[:, :, rows],
                    k[:, :, span],
                    v[:, :, span],
                    None if mask is None else mask[:, span],
                    None if key_bias is None else key_bias[:, :, span],
                    None if start is None else FavorState(*(t[n : n + 1] for t in start[:3])),
                )
                outs.append(out)
                finals.append(final)
            out = torch.cat(outs, -2)
            final = tuple(torch.cat(parts) for parts in zip(*finals, strict=True))
        else:
            out, final = self.attend(q, k, v, mask, key_bias, start)
        out = out.to(self.case.dtype)
        grads = gradients(inputs, out, final, leaves)
        return Result(out.detach(), tuple(t.detach() for t in final), grads)


@lru_cache(maxsize=8)
def unfused(case, feature_dtype, draw=0):
    inputs, _ = references(case)
    return permuted_back(Unfused(permuted(inputs, draw), feature_dtype).run(), inputs, draw)
