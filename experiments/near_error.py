"""What a near field does to the error of FAVOR+: every size of it and of m, on the same W.

python experiments/near_error.py [--file FILE] [--both] [--draws 3]

FILE is a .safetensors or .npz with q, k and v, [heads, length, dim] or with a batch before, the
queries and keys with their positions turned into them. Without it, keys and queries are random with
the structure of rotary heads: a shared direction, turned by the position, makes near tokens weigh
most, from hardly (the first head) to sharply (the last). The error is |out - exact| / |exact| of
each head; the tables show means over heads and draws of W, and the worst head.
"""

import argparse
import json
from pathlib import Path

import torch
from torch import Tensor

import performer

BLOCKS = (0, 32, 64, 128)
FEATURES = (0, 64, 256)  # 0: the near field alone
DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def turned(x: Tensor) -> Tensor:
    """Rotary positions: [H, L, D]."""
    length, half = x.shape[1], x.shape[2] // 2
    frequency = 10000.0 ** (-torch.arange(half, dtype=x.dtype) / half)
    angle = torch.arange(length, dtype=x.dtype)[:, None] * frequency
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)


def rotary_heads(heads: int, length: int, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)

    def normal(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator, dtype=torch.float64)

    strength = torch.linspace(0.2, 1.2, heads, dtype=torch.float64)[:, None, None]
    direction = strength * normal(heads, 1, dim)
    topic = normal(heads, length // 64 + 1, dim).repeat_interleave(64, 1)[:, :length]
    q = turned(direction + 0.3 * topic + 0.3 * normal(heads, length, dim))
    k = turned(direction + 0.3 * topic + 0.3 * normal(heads, length, dim))
    return q[None], k[None], normal(1, heads, length, dim)


def read_safetensors(path: Path) -> dict[str, Tensor]:
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8:start]).items():
        if name in ("q", "k", "v"):
            begin, end = (start + offset for offset in entry["data_offsets"])
            flat = torch.frombuffer(bytearray(data[begin:end]), dtype=DTYPES[entry["dtype"]])
            tensors[name] = flat.view(entry["shape"])
    return tensors


def read_npz(path: Path) -> dict[str, Tensor]:
    import numpy

    with numpy.load(path) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in ("q", "k", "v")}


def read(path: Path) -> tuple[Tensor, Tensor, Tensor]:
    tensors = read_npz(path) if path.suffix == ".npz" else read_safetensors(path)
    q, k, v = (tensors[name].double() for name in ("q", "k", "v"))
    return (q[None], k[None], v[None]) if q.dim() == 3 else (q, k, v)


def errors(
    qkv: tuple[Tensor, Tensor, Tensor], features: int, near: int, causal: bool, draws: int
) -> Tensor:
    """Of each draw and head, [draws, H]."""
    q, k, v = qkv
    exact = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    found = []
    for draw in range(draws):
        # Of zero features there is one draw.
        W = performer.draw_projection(max(features, 1), q.shape[-1], q.shape[1], draw=draw)
        W = W.double()[:, :features]
        out = performer.favor_attention(q, k, v, W, causal=causal, near=near)
        difference = (out - exact).transpose(0, 1).flatten(1).norm(dim=-1)
        found.append(difference / exact.transpose(0, 1).flatten(1).norm(dim=-1))
    return torch.stack(found)


def table(qkv: tuple[Tensor, Tensor, Tensor], causal: bool, draws: int) -> None:
    batch, heads, length, dim = qkv[0].shape
    print(
        f"\n### {'causal' if causal else 'bidirectional'}, {batch * heads} heads of {dim}, ", end=""
    )
    print(f"{length} tokens: mean over heads (worst head)\n")
    print("| near | " + " | ".join(f"m = {m}" if m else "near alone" for m in FEATURES) + " |")
    print("|---" * (len(FEATURES) + 1) + "|")
    means: dict[int, list[float]] = {m: [] for m in FEATURES}
    for near in BLOCKS:
        cells = []
        for m in FEATURES:
            if near == 0 and m == 0:
                cells.append("–")
                continue
            error = errors(qkv, m, near, causal, draws if m else 1).mean(0)
            means[m].append(error.mean().item())
            cells.append(f"{error.mean().item():.4f} ({error.max().item():.3f})")
        print(f"| {near} | " + " | ".join(cells) + " |", flush=True)
    falls = all(
        b < a for column in means.values() for a, b in zip(column, column[1:], strict=False)
    )
    print(
        f"\nThe mean over heads {'falls' if falls else 'does NOT fall'} with near in each column."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--file", type=Path, help="q, k and v as .safetensors or .npz")
    parser.add_argument("--both", action="store_true", help="bidirectional attention, too")
    parser.add_argument("--draws", type=int, default=3, help="of W (default 3)")
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--dim", type=int, default=32)
    options = parser.parse_args()
    qkv = (
        read(options.file)
        if options.file
        else rotary_heads(options.heads, options.length, options.dim)
    )
    for causal in (True, False) if options.both else (True,):
        table(qkv, causal, options.draws)


if __name__ == "__main__":
    main()
