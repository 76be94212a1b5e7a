"""Sorting and selecting on an NVIDIA GPU against torch (and CuPy where it does the same)."""

import sys
from collections.abc import Iterator
from typing import Any

import nbxtensor as nbx
from bench.harness import OURS, Call, Case, Row, measure, parser, report, slower
from bench.ops_gpu import DEVICE, DeviceClock

SORTED = (
    ("float32", (1048576, 32)),
    ("float32", (131072, 128)),
    ("float32", (65536, 1024)),
    ("bfloat16", (65536, 1024)),
    ("int64", (65536, 1024)),
    ("float32", (4096, 4096)),
    ("float32", (1024, 65536)),
    ("float32", (64, 151936)),
    ("bfloat16", (64, 151936)),
    ("float32", (1, 151936)),
    ("float32", (16, 2048)),
    ("float32", (1, 1 << 20)),
    ("float32", (1, 1 << 24)),
    ("bfloat16", (1, 1 << 24)),
    ("int64", (1, 1 << 24)),
    ("float32", (1, 1 << 27)),
)
SELECTED = (((64, 151936), 50), ((1, 151936), 50), ((65536, 1024), 8), ((4096, 256), 8))


def operand(torch: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    if dtype == "int64":
        return torch.randint(-(2**62), 2**62, shape, device=DEVICE)
    return torch.randn(shape, device=DEVICE).to(getattr(torch, dtype))


def same(torch: Any, case: Case) -> Case:
    """`case` as it is, after values and indices were seen to be torch's."""
    ours, theirs = (case.contestants[n]() for n in (OURS, "stable" if "stable" in case.contestants else "torch"))
    for got, expected in zip(ours, theirs, strict=True):
        if not torch.equal(torch.from_dlpack(got), expected):
            raise SystemExit(f"{case.name} {case.size}: {OURS} and torch differ")
    return case


def cases(torch: Any, only: str) -> Iterator[Case]:
    torch.manual_seed(0)
    for dtype, shape in SORTED:
        if only not in "sort":
            continue
        a = operand(torch, dtype, shape)
        x = nbx.from_dlpack(a)
        calls: dict[str, Call] = {
            OURS: lambda x=x: nbx.sort_with_indices(x),
            "torch": lambda a=a: torch.sort(a, dim=-1),
            "stable": lambda a=a: torch.sort(a, dim=-1, stable=True),
        }
        yield same(torch, Case(f"sort {dtype}", "x".join(map(str, shape)), calls))
    for shape, k in SELECTED:
        if only not in "topk":
            continue
        a = operand(torch, "float32", shape)
        x = nbx.from_dlpack(a)
        calls = {OURS: lambda x=x, k=k: nbx.topk(x, k), "torch": lambda a=a, k=k: torch.topk(a, k)}
        yield same(torch, Case("topk float32", f"{k} of {'x'.join(map(str, shape))}", calls))


def main() -> int:
    chosen = parser(__doc__ or "").parse_args()

    import torch

    torch.set_grad_enabled(False)
    clock = DeviceClock(torch)
    rows: list[Row] = []
    for case in cases(torch, chosen.only):
        rows.append(measure(case, clock, rounds=min(chosen.rounds, 7), sample=0.005))
        print(".", end="", flush=True, file=sys.stderr)
    print(file=sys.stderr)
    report("Sorting on the GPU", rows, chosen, gpu=torch.cuda.get_device_name(0))
    print("\n".join(["", "slower than a peer:", *(slower(rows) or ["nothing"])]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
