"""The shared list of calls, their inputs, and what a fused result is measured against.

exact: the composed operator in float64 on the same device. unfused: plain tensor code on inputs in
their dtype, arithmetic in float32, features and output rounded once: the output to the dtype, the
features to the dtype that those of the kernel have (feature_dtype)."""

from __future__ import annotations

import math
import os
import random
import zlib
from dataclasses import dataclass, replace
from functools import lru_cache

import torch

import performer
from performer import FavorState

DEVICE = os.environ.get("PERFORMER_TEST_DEVICE", "cuda")  # cpu: the logic of a test, no kernel
LENGTHS = (0, 1, 2, 63, 64, 65, 1000, 4096)
DIMS = (1, 8, 31, 32, 64, 128, 256)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
EXPONENTIAL = ("positive", "loglinear", "hyperbolic")
MAPS = (*EXPONENTIAL, "relu")
RELU_EPS = 1e-3


@dataclass(frozen=True)
class Case:
    feature_map: str = "positive"
    causal: bool = False
    dtype: torch.dtype = torch.float32
    batch: int = 2
    heads: int = 2
    key_heads: int = 2
    head_parameters: int = 0  # heads of W and its like; 0: shared
    length: int = 65
    keys: int = -1  # length of k; -1: that of q
    dim: int = 64
    value_dim: int = -1  # -1: dim
    features: int = 64  # rows of W; 0: no W
    mask: bool = False
    key_bias: bool = False
    biases: bool = False
    key_projection: bool = False
    packed: bool = False
    state: bool = False
    magnitude: float = 1

    @property
    def key_length(self):
        return self.length if self.keys < 0 else self.keys

    @property
    def values(self):
        return self.dim if self.value_dim < 0 else self.value_dim

    @property
    def composed_backward(self):
        """Query heads of one key head have key parameters of their own."""
        return self.features > 0 and self.head_parameters == self.heads != self.key_heads

    @property
    def matrix_units(self):
        """Where the Hopper path may serve; whether it does is its own choice."""
        return (
            self.dtype != torch.float32
            and self.feature_map in EXPONENTIAL
            and self.dim == self.values
            and self.dim in (32, 64, 128)
            and (self.causal or not self.packed)
        )

    @property
    def headline(self):
        """Where the Hopper path must serve."""
        total = self.features * (2 if self.feature_map == "hyperbolic" else 1)
        return self.matrix_units and 0 < total <= 256 and self.dim < 128

    @property
    def headline_backward(self):
        """Where the causal backward pass of the Hopper path must serve: not for grouped heads, and
        W of both sides, in three parts for float16, must fit in shared memory."""
        wide = self.features * (2 if self.feature_map == "hyperbolic" else 1) > 128
        parts = self.dtype == torch.float16 and self.key_projection and wide and self.dim > 32
        return self.headline and self.heads == self.key_heads and not parts

    def __str__(self):
        flags = [
            name
            for name in ("mask", "key_bias", "biases", "key_projection", "packed", "state")
            if getattr(self, name)
        ]
        size = f"l{self.length}k{self.key_length}d{self.dim}v{self.values}m{self.features}"
        heads = f"b{self.batch}h{self.heads}.{self.key_heads}.{self.head_parameters}"
        times = [f"x{self.magnitude:g}"] if self.magnitude != 1 else []
        kind = "causal" if self.causal else "both"
        return "-".join([self.feature_map, kind, NAMES[self.dtype], size, heads, *times, *flags])

    def kernel(self, path):
        kind = "causal" if self.causal else "bidirectional"
        return f"cuda/{path}/{NAMES[self.dtype]}/{self.feature_map}/{kind}"

    def feature_dtype(self, kernel):
        """What `kernel` may round features to. Those of the Hopper kernels are bfloat16 for any
        tokens: exponentials leave the range of float16."""
        hopper = kernel.startswith("cuda/hopper/")
        return torch.bfloat16 if hopper and self.dtype == torch.float16 else self.dtype


def legal(case):
    """What a combination of properties must keep so that the call is allowed and small."""
    if case.feature_map == "relu":
        case = replace(case, biases=False, key_projection=False, key_bias=False)
    elif case.features == 0:
        case = replace(case, features=case.dim)
    if case.causal:
        case = replace(case, keys=-1)
    if case.packed or case.length >= 1000:
        case = replace(case, batch=1)
    return case


def spread_cases(repeats):
    """Every map with every dtype and direction, all else spread over them."""
    cases = []
    for repeat in range(repeats):
        for feature_map in MAPS:
            for dtype in DTYPES:
                for causal in (False, True):
                    n = len(cases)
                    pick = random.Random(n)
                    dim = DIMS[n % len(DIMS)]
                    key_heads, heads = pick.choice([(1, 1), (2, 2), (1, 2), (2, 4)])
                    case = Case(
                        feature_map,
                        causal,
                        dtype,
                        heads=heads,
                        key_heads=key_heads,
                        head_parameters=pick.choice([0, key_heads, key_heads, heads]),
                        length=LENGTHS[(n + repeat) % len(LENGTHS)],
                        keys=pick.choice([-1, -1, 37, 300]),
                        dim=dim,
                        value_dim=pick.choice([-1, -1, 5, 64]),
                        features=(max(1, dim // 2), dim, 2 * dim, 256, 512, 0)[n % 6],
                        mask=pick.random() < 0.35,
                        key_bias=pick.random() < 0.35,
                        biases=pick.random() < 0.35,
                        key_projection=pick.random() < 0.3,
                        packed=pick.random() < 0.3,
                        state=pick.random() < 0.3,
                    )
                    cases.append(legal(case))
    return cases


def wide_cases():
    """16-bit types in the sizes that matrix units like."""
    cases = []
    for n, length in enumerate((1, 64, 127, 128, 129, 1000, 4096)):
        for dim in (64, 128):
            for features in (64, 256, 512):
                dtype = (torch.bfloat16, torch.float16)[(n + features // 64) % 2]
                options = (dim + features + n) % 5
                cases.append(
                    legal(
                        Case(
                            EXPONENTIAL[(n + features // 128) % 3],
                            causal=n % 2 == 1,
                            dtype=dtype,
                            heads=4,
                            key_heads=2 if options == 3 else 4,
                            head_parameters=0 if options == 2 else 2 if options == 3 else 4,
                            length=length,
                            keys=-1 if options != 1 else 200,
                            dim=dim,
                            features=features,
                            mask=options == 0,
                            key_bias=options == 4,
                            biases=options == 1,
                            state=options == 2,
                            packed=options == 4 and n % 2 == 0,
                        )
                    )
                )
    return cases


CASES = [*spread_cases(5), *wide_cases()]
MAGNITUDES = [
    Case(
        feature_map,
        causal,
        dtype,
        batch=16 if magnitude == 100 else 8,  # where keys rarely tie, few rows make the error
        heads=4,
        key_heads=4,
        length=130,
        dim=64,
        features=64,
        magnitude=magnitude,
    )
    for feature_map in EXPONENTIAL
    for causal in (False, True)
    for dtype in (torch.float32, torch.bfloat16)
    for magnitude in (10, 100, 1000)
]


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
    total = case.features * (2 if case.feature_map == "hyperbolic" else 1)
    W = normal(*lead, case.features, case.dim) if case.features else None
    options = {}
    if case.mask:
        mask = torch.rand(B, case.key_length, generator=generator, device=DEVICE) < 0.7
        mask[-1] &= B == 1  # the last of several has no key at all
        options["key_mask"] = mask
    if case.key_bias:
        options["key_bias"] = normal(B, case.head_parameters or 1, case.key_length)
    if case.biases:
        options["bias_q"], options["bias_k"] = normal(*lead, total), normal(*lead, total)
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


@dataclass
class Result:
    out: torch.Tensor
    state: tuple  # kv 2^log2_scale, normalizer 2^log2_scale
    grads: list  # of q, k, v and of the state, as far as there is one
    kernels: tuple = ("", "")  # of the forward pass, of the backward pass


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
        self.state_heads = self.case.heads if self.case.composed_backward else self.case.key_heads

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


@lru_cache(maxsize=2)
def references(case):
    """inputs, exact: kept for the other path of the same case."""
    inputs = make_inputs(case)
    return inputs, run_operator(inputs, torch.float64)


@lru_cache(maxsize=8)
def unfused(case, feature_dtype, draw=0):
    inputs, _ = references(case)
    return permuted_back(Unfused(permuted(inputs, draw), feature_dtype).run(), inputs, draw)


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


def permuted_back(result, inputs, draw):
    """Gradients of q and k with the dims in the order of the case."""
    if draw == 0:
        return result
    back = order_of_dims(inputs, draw).argsort()
    dq, dk, *others = result.grads
    return replace(result, grads=[dq[..., back], dk[..., back], *others])


def rms(t):
    return float(t.double().square().mean().sqrt()) if t.numel() else 0.0


def rms_error(got, want):
    return rms(got.double() - want.double())


def mean_error(got, want):
    """Over all draws: results `got`, one of each."""
    return math.sqrt(sum(rms_error(t, want) ** 2 for t in got) / len(got))


def exponent_error(inputs):
    """A feature's relative error is its exponent's absolute one: the unit roundoff of float32 times
    the size of the terms of w . k. One feature may be all of a state."""
    case, W = inputs.case, inputs.options.get("projection_k", inputs.W)
    if case.feature_map == "relu" or not inputs.k.numel():
        return 0.0
    k = inputs.k.float()
    if case.mask:
        k = k.masked_fill(~inputs.options["key_mask"][:, None, :, None], 0)
    largest = float(W.norm(dim=-1).max() * k.norm(dim=-1).max())
    return 0.5 * unit(torch.float32) * case.dim**-0.25 * largest


def unit(dtype):
    return torch.finfo(dtype).eps
