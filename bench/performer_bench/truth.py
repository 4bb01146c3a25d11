"""What each system should have computed, in float64 and by another formula: rows of the attention
matrix itself."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from performer_bench.case import Attention, Case, Inputs, draw_inputs, make_gradient_call
from performer_bench.plain import EPS, MAPS

ROWS = 32  # checked of every head, the first and the last among them
CHECKED, CHECKED_HEADS = 1024, 2  # tokens of a longer case; heads, of the first sequence
MOST, MOST_GRADIENT = 0.03, 0.06  # relative; a 16-bit system beyond computes something else


def weights(q: Tensor, k: Tensor, W: Tensor | None, kernel: str) -> Tensor:
    """phi(q) . phi(k) up to a factor per row; W None: exp(q . k / sqrt(D)).

    q: [..., R, D], k: [..., L, D], W: [..., M, D] -> [..., R, L]
    """
    root = q.shape[-1] ** -0.25
    x, y = root * q, root * k
    if W is None:
        u = x @ y.mT
        return torch.exp(u - u.detach().amax(-1, keepdim=True))
    u_q, u_k = x @ W.mT, y @ W.mT
    if kernel != "positive":
        f = MAPS[kernel]
        return (f(u_q) + EPS) @ (f(u_k) + EPS).mT
    u_k = u_k - 0.5 * y.square().sum(-1, keepdim=True)
    phi_q = torch.exp(u_q - u_q.detach().amax(-1, keepdim=True))
    return phi_q @ torch.exp(u_k - u_k.detach().amax((-1, -2), keepdim=True)).mT


def attend(A: Tensor, v: Tensor, later: Tensor | None) -> Tensor:
    """A: [..., R, L], v: [..., L, D]; later: bool [R, L], of keys that a row must not see."""
    if later is not None:
        A = A.masked_fill(later, 0)
    return A @ v / A.sum(-1, keepdim=True)


def checked_rows(length: int) -> Tensor:
    return torch.linspace(0, length - 1, min(ROWS, length), dtype=torch.float64).long()


def exact_rows(
    qkv: tuple[Tensor, Tensor, Tensor], W: Tensor | None, kernel: str, causal: bool
) -> Tensor:
    """The checked rows, [B, H, R, D] float64; q, k, v: [B, H, L, D], W: [M, D]."""
    q, k, v = (x.flatten(0, 1) for x in qkv)
    length = q.shape[1]
    rows = checked_rows(length)
    later = torch.arange(length) > rows[:, None] if causal else None  # [R, L]
    W = None if W is None else W.double()
    out = [
        attend(weights(x, y.double(), W, kernel), values.double(), later)
        for x, y, values in zip(q[:, rows].double(), k, v, strict=True)  # a head, for memory
    ]
    return torch.stack(out).unflatten(0, qkv[0].shape[:2])


def relative_error(out: Tensor, exact: Tensor, v: Tensor) -> float:
    """RMS of out - exact over the checked rows, relative to the RMS of v; out: [B, H, L, D]."""
    difference = out[:, :, checked_rows(out.shape[2])].double() - exact
    return float(difference.square().mean().sqrt() / v.double().square().mean().sqrt())


def exact_results(case: Case, inputs: Inputs, W: Tensor | None) -> list[Tensor]:
    """Output and gradients of q, k, v, of the first heads: [1, CHECKED_HEADS, L, D] float64."""
    q, k, v, grad = (
        x[:1, :CHECKED_HEADS].double() for x in (inputs.q, inputs.k, inputs.v, inputs.grad)
    )
    if W is not None:
        W = (W if W.dim() == 2 else W[:CHECKED_HEADS]).double()
    positions = torch.arange(case.length, device=q.device)
    later = positions > positions[:, None] if case.causal else None
    leaves = [x.requires_grad_() for x in (q, k, v)]
    out = attend(weights(q, k, W, case.kernel), v, later)
    return [out.detach(), *torch.autograd.grad(out, leaves, grad)]


def errors(attention: Attention, case: Case, inputs: Inputs) -> tuple[float, float]:
    """Relative to the truth's norm: of the output, and the largest of the gradients of q, k, v."""
    with attention.context():
        results = [attention.layout(x) for x in make_gradient_call(attention, inputs)()]
    pairs = zip(results, exact_results(case, inputs, attention.W), strict=True)
    out, *gradients = (
        float((ours[:1, :CHECKED_HEADS].double() - want).norm() / want.norm())
        for ours, want in pairs
    )
    return out, max(gradients)


@dataclass(frozen=True)
class Verdict:
    error: float  # of the output
    gradient_error: float | None = None  # the largest of dq, dk, dv
    wrong: bool = False  # it computes something else, and is not timed


class Problem:
    """A case with its inputs, and the answers that it has in float64."""

    def __init__(self, case: Case, device: str = "cpu") -> None:
        self.case = case
        self.inputs = draw_inputs(case, device)
        self._truths: dict[Tensor | None, Tensor] = {}  # by projection, which most systems share

    def error(self, attention: Attention, out: Tensor) -> float:
        W, v = attention.W, self.inputs.v
        if W not in self._truths:
            qkv = (self.inputs.q, self.inputs.k, v)
            self._truths[W] = exact_rows(qkv, W, self.case.kernel, self.case.causal)
        return relative_error(attention.layout(out), self._truths[W], v)


class RowCheck:
    """Some rows of the very output that was timed: the CPU's calls take too long for one more."""

    def verdict(self, name: str, attention: Attention, problem: Problem, out: Tensor) -> Verdict:
        return Verdict(problem.error(attention, out))


class GradientCheck:
    """The output and all gradients of a system, once for all cases of the same widths.

    At the timed shape, unless it is long: nothing is compiled for the check alone.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Verdict] = {}

    def verdict(self, name: str, attention: Attention, problem: Problem, out: Tensor) -> Verdict:
        case, inputs = problem.case, problem.inputs
        key = (name, case.dim, case.features, case.heads, case.causal, case.kernel, case.dtype)
        if key not in self._known:
            if case.length > 4 * CHECKED:
                case = replace(case, batch=1, length=CHECKED)
                inputs = draw_inputs(case, inputs.q.device.type)
            error, gradient_error = errors(attention, case, inputs)
            # Not `>`: a result that is not a number is wrong too.
            right = error <= MOST and gradient_error <= MOST_GRADIENT
            self._known[key] = Verdict(error, gradient_error, not right)
        return self._known[key]
