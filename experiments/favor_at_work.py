"""FAVOR+ at work: time and memory against exact attention, error by number of features, a picture.

Run by `make attention`; it writes its picture to build/demo/attention_maps.png.
"""

import multiprocessing
import os
import resource
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import torch

import performer

LENGTHS = (256, 1024, 4096, 16384, 65536)
EXPLICIT_UP_TO = 16384  # the L x L matrix of a longer sequence does not fit beside other programs
HEADS, DIM, FEATURES = 1, 64, 256
MIB = 2**20


def draw_inputs(length: int, std: float = 1.0, heads: int = HEADS) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(length)
    q, k, v = (torch.randn(1, heads, length, DIM, generator=generator) for _ in range(3))
    return std * q, std * k, v


def fused_exact(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def explicit_exact(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) / DIM**0.5, -1) @ v


def favor(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return performer.favor_attention(q, k, v, performer.draw_projection(FEATURES, DIM))


def measure(attention: Callable[..., torch.Tensor], length: int) -> tuple[float, float]:
    """Seconds of the best call and MiB of peak memory beyond the inputs, in a new process."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def child() -> None:
        inputs = draw_inputs(length)
        attention(*draw_inputs(256))  # warm-up
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        seconds = []
        for _ in range(3 if length <= 4096 else 1):
            start = time.perf_counter()
            attention(*inputs)
            seconds.append(time.perf_counter() - start)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        sender.send((min(seconds), (after - before) * 1024 / MIB))
        os._exit(0)

    process = context.Process(target=child)
    process.start()
    sender.close()
    result: tuple[float, float] = receiver.recv()
    process.join()
    return result


def show_costs() -> None:
    print(
        f"\nForward pass, {HEADS} head, d = {DIM}, m = {FEATURES} features, float32, "
        f"{os.cpu_count()} CPU cores"
    )
    print(
        f"{'L':>7}  {'exact, L x L matrix':>24}  {'exact, fused':>20}  {'FAVOR+':>20}  "
        f"{'against fused':>13}"
    )
    for length in LENGTHS:
        if length <= EXPLICIT_UP_TO:
            seconds, memory = measure(explicit_exact, length)
            explicit = f"{1e3 * seconds:9.1f} ms {memory:7.0f} MiB"
        else:
            explicit = f"not run: {length**2 * 4 / 2**30:.0f} GiB"
        exact_seconds, exact_memory = measure(fused_exact, length)
        favor_seconds, favor_memory = measure(favor, length)
        print(
            f"{length:>7}  {explicit:>24}  {1e3 * exact_seconds:8.1f} ms {exact_memory:4.0f} MiB  "
            f"{1e3 * favor_seconds:8.1f} ms {favor_memory:4.0f} MiB  "
            f"{exact_seconds / favor_seconds:11.1f} x",
            flush=True,
        )


def relative_error(estimate: torch.Tensor, exact: torch.Tensor) -> float:
    return float((estimate - exact).norm() / exact.norm())


def patterned_inputs(length: int, heads: int = 1) -> tuple[torch.Tensor, ...]:
    """Queries, keys and values with something to see: neighbours, a period, three landmarks."""
    generator = torch.Generator().manual_seed(7)
    phase = 2 * torch.pi * torch.arange(length)[:, None] / length
    waves = torch.cat([f(n * phase) for n in (1, 2, 3, 8) for f in (torch.sin, torch.cos)], 1)
    directions = torch.linalg.qr(torch.randn(heads, DIM, 16, generator=generator)).Q
    x = 1.3 * waves @ directions[..., :8].transpose(-1, -2)  # [heads, L, D]
    landmark = 2.0 * directions[..., 8][:, None]
    keys = x.clone()
    keys[:, [length // 5, length // 2, 4 * length // 5]] += landmark
    values = waves @ torch.randn(heads, 8, DIM, generator=generator)
    return tuple(t[None] for t in (x + landmark, keys, values))


def show_errors() -> None:
    length, heads, draws = 1024, 4, 8
    q, k, v = patterned_inputs(length, heads)
    exact = fused_exact(q, k, v)
    columns = (
        ("positive, orthogonal", "positive", "orthogonal"),
        ("positive, iid", "positive", "iid"),
        ("hyperbolic", "hyperbolic", "orthogonal"),
        ("trigonometric", "trigonometric", "orthogonal"),
    )
    averaging = relative_error(v.mean(2, keepdim=True).expand_as(v), exact)
    print(
        f"\nRelative error of the output, L = {length}, the patterns of the picture below, "
        f"mean of {draws} draws\n(plain averaging: {averaging:.3f})"
    )
    print(f"{'m':>7}" + "".join(f"{name:>23}" for name, _, _ in columns))
    for m in (16, 64, 256, 1024):
        row = f"{m:>7}"
        for _, feature_map, kind in columns:
            total = 0.0
            for seed in range(draws):
                W = performer.draw_projection(m, DIM, heads=heads, kind=kind, seed=seed)
                estimate = performer.favor_attention(q, k, v, W, feature_map=feature_map)
                total += relative_error(estimate, exact)
            row += f"{total / draws:>23.3f}"
        print(row, flush=True)


def write_png(path: Path, pixels: torch.Tensor) -> None:
    """An 8-bit RGB picture [height, width, 3]."""
    height, width, _ = pixels.shape
    rows = pixels.to(torch.uint8).numpy()
    raw = b"".join(b"\0" + rows[y].tobytes() for y in range(height))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(raw, 9))
        + chunk(b"IEND", b"")
    )


def colour(weights: torch.Tensor, largest: float) -> torch.Tensor:
    """Dark blue over green to yellow, by the square root of the weight: [L, L] -> [L, L, 3]."""
    stops = torch.tensor([[12, 8, 64], [38, 110, 142], [86, 190, 110], [253, 231, 60]]).float()
    level = (weights / largest).clamp(0, 1).sqrt() * (len(stops) - 1)
    low = level.floor().long().clamp(max=len(stops) - 2)
    part = (level - low)[..., None]
    return stops[low] * (1 - part) + stops[low + 1] * part


def draw_picture(path: Path) -> None:
    length, zoom, gap = 160, 3, 24
    q, k, _ = patterned_inputs(length)
    exact = performer.exact_attention_map(q, k)[0, 0]
    estimate = performer.attention_map(q, k, performer.draw_projection(1024, DIM))[0, 0]
    largest = float(exact.max())
    maps = [
        colour(a, largest).repeat_interleave(zoom, 0).repeat_interleave(zoom, 1)
        for a in (exact, estimate)
    ]
    space = torch.full((length * zoom, gap, 3), 255.0)
    write_png(path, torch.cat([maps[0], space, maps[1]], 1))
    error = float((estimate - exact).norm() / exact.norm())
    print(
        f"\nPicture of the two attention maps, exact on the left, FAVOR+ with 1024 features on "
        f"the right\n(relative difference {error:.2f}): {path}"
    )


def main() -> None:
    root = Path(__file__).resolve().parent.parent
    print(
        f"Performer {performer.__version__}: attention of linear cost by positive orthogonal "
        "random features"
    )
    show_costs()
    show_errors()
    draw_picture(root / "build" / "demo" / "attention_maps.png")
    print(f"\nDemo finished; the attention of these runs was '{performer.last_kernel()}'.")


if __name__ == "__main__":
    main()
