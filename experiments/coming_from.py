"""How far other packages' Performers are from this one's: the figures of docs/coming-from.md.

python experiments/coming_from.py [--authors FILE]

Wants performer-pytorch and pytorch-fast-transformers importable (PYTHONPATH will do; the second one
compiles itself, for the CPU only where no CUDA compiler is found), and FILE, the authors'
performer/fast_attention/jax/fast_attention.py, with jax, gin-config and absl-py. What is absent is
skipped and named. All draws come from fixed seeds; one thread gives the same digits again.
"""

import argparse
import contextlib
import importlib.util
import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

import performer

B, H, L, D, M = 2, 4, 512, 64, 256
STDS = (0.5, 1.0, 1.5, 2.0, 3.0, 10.0)


def qkv(std: float = 1.0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """[B, H, L, D]; q and k of the given standard deviation."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, B, H, L, D, generator=generator, dtype=torch.float64).unbind()
    return (std * q).to(dtype), (std * k).to(dtype), v.to(dtype)


def projection() -> Tensor:
    return performer.draw_projection(M, D, seed=1)


def rms(x: Tensor) -> float:
    return math.sqrt(x.double().square().mean().item())


def apart(theirs: Tensor, ours: Tensor) -> str:
    """Largest difference in units of the largest output."""
    return f"{((theirs - ours).abs().max() / ours.abs().max()).item():.1e}"


def agreement(name: str, theirs: Callable[..., Tensor], ours: Callable[..., Tensor]) -> None:
    """One row: both precisions, each package in its own arithmetic."""
    cells = []
    for dtype in (torch.float64, torch.float32):
        try:
            tensors = qkv(dtype=dtype)
            cells.append(apart(theirs(*tensors), ours(*tensors)))
        except (RuntimeError, TypeError) as error:
            cells.append("float32 alone" if "Float" in str(error) else type(error).__name__)
    print(f"| {name} | {cells[0]} | {cells[1]} |")


def table(title: str) -> None:
    print(f"\n### {title}\n\n| call | float64 | float32 |\n|---|---|---|")


def ours(*arguments: Any, **options: Any) -> Callable[..., Tensor]:
    return lambda q, k, v: performer.favor_attention(q, k, v, *arguments, **options)


def constants(
    title: str, theirs: Callable[..., Tensor], ratio: Callable[..., Tensor] | None = None
) -> None:
    """What the constants in theirs do as norms grow, in float32, beside the exact ratio of the same
    features, `ratio` of float64 (None: positive features).

    1 in the second column is plain averaging of the values: the constant outweighs the features.
    """
    print(f"\n### {title}, float32\n")
    print("| std of q and k | off by | rows not finite | here |\n|---|---|---|---|")
    call = ratio or ours(projection())
    for std in STDS:
        q, k, v = qkv(std)
        want = call(q, k, v)
        away = want - v.mean(2, keepdim=True)
        low = (q.float(), k.float(), v.float())
        out = theirs(*low).double()
        finite = out.isfinite().all(-1)
        off = f"{rms((out - want)[finite]) / rms(away[finite]):.2g}" if finite.any() else "-"
        lost = 1 - finite.double().mean().item()
        print(f"| {std:g} | {off} | {lost:.0%} | {rms(call(*low) - want) / rms(away):.2g} |")


def directions(name: str, draw: Callable[[int], Tensor]) -> None:
    """Mean estimate of exp(x.y) by positive features over its value; 1 is unbiased.

    x = y of length 1 along (1, ..., 1) and along the first axis; 4,000 blocks W [D, D].
    """
    axes = torch.stack([torch.full((D,), D**-0.5), torch.eye(D)[0]]).double()  # [2, D]
    blocks = torch.stack(
        [torch.exp(2 * (axes @ draw(seed).double().T) - 1).mean(1) for seed in range(4000)]
    ) / math.exp(1)
    error = blocks.std(0) / math.sqrt(len(blocks))
    cells = (f"{m:.2f} ± {e:.2f}" for m, e in zip(blocks.mean(0), error, strict=True))
    print(f"| {name} | {' | '.join(cells)} |")


@contextlib.contextmanager
def eps_of(function: Any, value: float) -> Iterator[None]:
    before = function.__kwdefaults__["eps"]
    function.__kwdefaults__["eps"] = value
    try:
        yield
    finally:
        function.__kwdefaults__["eps"] = before


def with_performer_pytorch() -> None:
    from performer_pytorch import FastAttention, SelfAttention
    from performer_pytorch import performer_pytorch as package

    def fast(**options: Any) -> Any:
        with contextlib.redirect_stdout(None):  # it says that it found no CUDA code
            module = FastAttention(D, M, **options)
        module.projection_matrix.copy_(projection())
        if options.get("causal"):
            module.causal_linear_fn = lambda q, k, v: package.causal_linear_attention_noncuda(
                q, k, v, eps=0.0
            )
        return module

    table("performer-pytorch")
    for causal in (False, True):
        word = "causal" if causal else "bidirectional"
        module = fast(causal=causal)
        ours = performer.from_performer_pytorch(module)
        with eps_of(package.softmax_kernel, 0.0):
            agreement(f"softmax, {word}, its eps at 0", module, ours)
        agreement(f"softmax, {word}, as it is (eps 1e-4)", module, ours)
        for f in (nn.ReLU(), nn.GELU(), torch.exp):
            module = fast(causal=causal, generalized_attention=True, kernel_fn=f)
            name = getattr(f, "__name__", type(f).__name__)
            agreement(f"{name}, {word}", module, performer.from_performer_pytorch(module))
    module = fast(generalized_attention=True)
    relu = performer.FavorSDPA(D, None, M, feature_map="relu")
    relu.projection = projection()
    agreement("ReLU, without scale=D**-0.5 here", module, relu)

    constants("performer-pytorch as it is", fast())
    with eps_of(package.softmax_kernel, 0.0):
        constants("performer-pytorch, its eps at 0", fast())
    padding_of_performer_pytorch(SelfAttention)
    print("\n### Mean estimate of exp(x.y) over its value, |x| = 1, y = x\n")
    print("| projection | x along (1, ..., 1) | x along an axis |\n|---|---|---|")
    directions("performer-pytorch", lambda seed: theirs_of(package, seed))
    directions("orthogonal, here", lambda seed: performer.draw_projection(D, D, seed=seed))
    directions("iid, here", lambda seed: performer.draw_projection(D, D, kind="iid", seed=seed))


def theirs_of(package: Any, seed: int) -> Tensor:
    torch.manual_seed(seed)
    matrix: Tensor = package.gaussian_orthogonal_random_matrix(D, D)
    return matrix


def padding_of_performer_pytorch(kind: Any) -> None:
    """Half of the keys padded: theirs sets their values to 0 and keeps them in the denominator."""
    torch.manual_seed(0)
    theirs = kind(256, heads=H, dim_head=D, nb_features=M, generalized_attention=True).eval()
    ours = performer.from_performer_pytorch(theirs)
    x = torch.randn(B, L, 256)
    mask = torch.arange(L).expand(B, L) < L // 2
    with torch.no_grad():
        alone = ours(x[:, : L // 2])
        padded = {
            "theirs": theirs(x, mask=mask)[:, : L // 2],
            "ours": ours(x, key_mask=mask)[:, : L // 2],
        }
        print("\n### Half of the keys padded, beside the same layer without them\n")
        print("| layer | off by |\n|---|---|")
        for name, out in padded.items():
            print(f"| {name} | {rms(out - alone) / rms(alone):.2g} |")
        print(f"| both without padding | {rms(theirs(x) - ours(x)) / rms(ours(x)):.2g} |")


def with_fast_transformers() -> None:
    from fast_transformers.attention import CausalLinearAttention, LinearAttention
    from fast_transformers.feature_maps import Favor, GeneralizedRandomFeatures
    from fast_transformers.masking import FullMask, LengthMask, TriangularCausalMask

    def theirs(kind: Any, feature_map: Any = None, eps: float = 0.0) -> Callable[..., Tensor]:
        def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            causal = kind is CausalLinearAttention
            module = kind(D, feature_map, eps=eps)
            if feature_map is not None:
                omega = projection()[: M // 2 if feature_map is favor else M].T
                module.feature_map.new_feature_map = lambda device: None
                module.feature_map.omega = omega.to(q.dtype)
            mask = TriangularCausalMask(L) if causal else FullMask(L)
            lengths = LengthMask(torch.full((B,), L))
            tensors = (x.transpose(1, 2).contiguous() for x in (q, k, v))
            return module(*tensors, mask, lengths, lengths).transpose(1, 2)

        return call

    favor, relu = Favor.factory(n_dims=M), GeneralizedRandomFeatures.factory(n_dims=M)
    half = projection()[: M // 2]
    table("pytorch-fast-transformers")
    for kind in (LinearAttention, CausalLinearAttention):
        causal = {"causal": kind is CausalLinearAttention}
        name = kind.__name__
        agreement(f"{name}, its eps at 0", theirs(kind), ours(None, "elu1", **causal))
        agreement(
            f"{name}, as it is (eps 1e-6)", theirs(kind, eps=1e-6), ours(None, "elu1", **causal)
        )
        agreement(
            f"{name} with Favor, its eps at 0",
            theirs(kind, favor),
            ours(half, "hyperbolic", **causal),
        )
        agreement(
            f"{name} with GeneralizedRandomFeatures (ReLU), its eps at 0",
            theirs(kind, relu),
            ours(projection(), "relu", eps=0.0, **causal),
        )

    def as_it_is(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return theirs(LinearAttention, favor, eps=1e-6)(q, k, v)

    constants("pytorch-fast-transformers, Favor as it is", as_it_is, ours(half, "hyperbolic"))


def with_authors(file: Path) -> None:
    import jax

    jax.config.update("jax_enable_x64", True)
    module = load(file)
    numbers = jax.numpy

    def theirs(make: Any, W: Tensor | None, **options: Any) -> Callable[..., Tensor]:
        attend = make(D, nb_features=M, redraw_features=False, **options)
        method = attend.__self__

        def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            if W is not None:
                method.projection_matrix = numbers.asarray(W.to(q.dtype).numpy())
            arrays = (numbers.asarray(x.transpose(1, 2).numpy()) for x in (q, k, v))
            return torch.tensor(attend(*arrays).__array__()).transpose(1, 2)

        return call

    softmax, general = module.make_fast_softmax_attention, module.make_fast_generalized_attention
    W = projection()
    table("the authors' JAX code")
    for causal in (False, True):
        word = "unidirectional" if causal else "bidirectional"
        side = {"unidirectional": causal}
        exact = ours(W, causal=causal)
        agreement(
            f"softmax, {word}, its numerical_stabilizer at 0",
            theirs(softmax, W, numerical_stabilizer=0.0, **side),
            exact,
        )
        agreement(f"softmax, {word}, as it is (1e-6)", theirs(softmax, W, **side), exact)
        agreement(
            f"generalized, {word}, as it is (ReLU, no projection)",
            theirs(general, None, **side),
            ours(None, "relu", causal=causal),
        )
        agreement(
            f"generalized, {word}, features_type ortho (ReLU)",
            theirs(general, W, features_type="ortho", **side),
            ours(W, "relu", causal=causal),
        )
    agreement(
        "softmax, nonnegative_features=False, its numerical_stabilizer at 0",
        theirs(softmax, W, nonnegative_features=False, numerical_stabilizer=0.0),
        ours(W, "trigonometric"),
    )
    constants("the authors' JAX code as it is", theirs(softmax, W))
    constants(
        "the authors' JAX code, numerical_stabilizer at 0",
        theirs(softmax, W, numerical_stabilizer=0.0),
    )


def load(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("authors_fast_attention", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--authors", type=Path, help="their fast_attention.py")
    file = parser.parse_args().authors
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(
        f"performer {performer.__version__}, torch {torch.__version__}; batch {B}, heads {H}, "
        f"length {L}, head width {D}, features {M}; largest difference / largest output"
    )
    parts: list[tuple[str, Callable[[], None] | None]] = [
        ("performer-pytorch", with_performer_pytorch),
        ("pytorch-fast-transformers", with_fast_transformers),
        ("the authors' JAX code", None if file is None else lambda: with_authors(file)),
    ]
    for name, part in parts:
        try:
            if part is None:
                print(f"\n{name}: skipped, --authors does not say where it is")
            else:
                part()
        except ImportError as error:
            print(f"\n{name}: skipped, {error}")


if __name__ == "__main__":
    main()
