"""Fused FAVOR+ on a GPU against fused softmax attention, in one run.

Times are medians of CUDA graph replays (eager beside them), in picoseconds per token-head: one
token of one head. 65,536 tokens of 8 heads unless said.
"""

import argparse
import json
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import performer
from performer.bench import plain

TOKENS, HEADS = 65_536, 8
Run = Callable[[], object]


def milliseconds(run: Run, repeats: int = 7, calls: int = 5, graph: bool = True) -> float:
    """Median time of one call."""
    replay: Run = run
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run()
        run()
    stream.synchronize()
    if graph:
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured, stream=stream):
            for _ in range(calls):
                run()
        replay = captured.replay
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(1 if graph else calls):
            replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / calls)
    return median(times)


def inputs(length: int, dim: int, dtype: torch.dtype) -> list[Tensor]:
    """q, k, v and a gradient for the output: [B, H, L, D]."""
    batch = max(1, TOKENS // length)
    shape = (batch, HEADS, length, dim)
    return [torch.randn(shape, device="cuda", dtype=dtype) for _ in range(4)]


def measure(forward: Callable[..., Tensor], tensors: list[Tensor], graph: bool) -> list[float]:
    """Picoseconds per token-head: forward, and forward with backward."""
    *qkv, grad = tensors
    count = grad.shape[0] * grad.shape[1] * grad.shape[2]
    with torch.no_grad():
        alone = milliseconds(lambda: forward(*qkv), graph=graph)
    leaves = [t.detach().requires_grad_() for t in qkv]
    both = milliseconds(lambda: torch.autograd.grad(forward(*leaves), leaves, grad), graph=graph)
    return [alone * 1e9 / count, both * 1e9 / count]


def softmax(backend: SDPBackend) -> Callable[..., Tensor]:
    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    return run


def ceilings() -> dict[str, float]:
    """bf16 matrix product in TFLOP/s, and copy in TB/s."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = milliseconds(lambda: a @ b)
    source = torch.randn(1 << 30, device="cuda")
    target = torch.empty_like(source)
    copy = milliseconds(lambda: target.copy_(source))
    return {"gemm_tflops": 2 * 8192**3 / product * 1e-9, "copy_tb_s": 8 * 2**30 / copy * 1e-9}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write all figures to this file")
    parser.add_argument("--quick", action="store_true", help="no torch.compile, no softmax at 64k")
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    lines: list[str] = []

    def add(name: str, length: int, dim: int, features: int, figures: list[float]) -> None:
        rows.append({"system": name, "L": length, "d": dim, "m": features, "ps": figures})
        lines.append(
            f"{name:34s} {length:7d} {dim:4d} {features:4d} {figures[0]:9.0f} {figures[1]:9.0f}"
        )
        print(lines[-1], flush=True)

    def favor(dim: int, features: int) -> Callable[..., Tensor]:
        W = performer.draw_projection(features, dim, heads=HEADS).cuda()
        return lambda q, k, v: performer.favor_attention(q, k, v, W)

    found = ceilings()
    half = torch.bfloat16
    for length in (1024, 2048, 4096, 16_384, 65_536):
        tensors = inputs(length, 64, half)
        add("favor bf16, graph", length, 64, 256, measure(favor(64, 256), tensors, True))
        if length in (1024, 4096):
            add("favor bf16, eager", length, 64, 256, measure(favor(64, 256), tensors, False))
        if length <= 16_384 or not options.quick:
            cudnn = softmax(SDPBackend.CUDNN_ATTENTION)
            add("softmax, cuDNN", length, 64, 0, measure(cudnn, tensors, True))
            if length <= 4096:
                flash = softmax(SDPBackend.FLASH_ATTENTION)
                add("softmax, flash", length, 64, 0, measure(flash, tensors, True))
    for dim, features in ((64, 128), (64, 64), (32, 256), (128, 128), (128, 256), (64, 512)):
        tensors = inputs(4096, dim, half)
        add("favor bf16, graph", 4096, dim, features, measure(favor(dim, features), tensors, True))
        print("    " + performer.last_kernel())
    tensors = inputs(4096, 64, torch.float32)
    add("favor fp32, graph", 4096, 64, 256, measure(favor(64, 256), tensors, True))
    if not options.quick:
        W = performer.draw_projection(256, 64).cuda()
        composed = torch.compile(lambda q, k, v: plain.bidirectional(q, k, v, W, "positive"))
        tensors = inputs(4096, 64, half)
        add("composed, torch.compile", 4096, 64, 256, measure(composed, tensors, False))

    device = torch.cuda.get_device_name()
    print(
        f"\n{device}, torch {torch.__version__}; {found['gemm_tflops']:.0f} TFLOP/s bf16 product,"
    )
    print(f"{found['copy_tb_s']:.2f} TB/s copy; picoseconds per token-head, medians")
    print(f"{'system':34s} {'L':>7s} {'d':>4s} {'m':>4s} {'forward':>9s} {'+backward':>9s}")
    print("\n".join(lines))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"device": device, "ceilings": found, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
