"""Running sums on the GPU against torch, and one of more than 2^31 elements, checked as a whole.

``python -m bench.scan_gpu [--rounds N] [--json OUT]``
"""

import math
from typing import Any

import numpy as np

import nbxtensor as nbx
from bench.harness import COPY, OURS, Case, measure, parser, report, slower
from bench.ops_gpu import DEVICE, DeviceClock

SHAPES = (
    ("float32", (16384, 4096), -1), ("float32", (1, 1 << 24), -1), ("float32", (4096, 16384), 0),
    ("float32", (1 << 20, 64), -1), ("float32", (1000, 100_003), -1), ("bfloat16", (16384, 4096), -1),
    ("int8", (1, 1 << 24), -1), ("int64", (4096, 4096), -1), ("float64", (4096, 4096), -1),
)  # fmt: skip


def case(torch: Any, dtype: str, shape: tuple[int, ...], axis: int) -> Case:
    host = np.random.default_rng(0).integers(-3, 4, shape)  # small integers: every order gives the same sums
    a = torch.from_numpy(host).to(DEVICE, getattr(torch, dtype))
    x = nbx.from_dlpack(a)
    target = torch.empty_like(torch.cumsum(a, axis))
    source = torch.empty_like(target)
    got = torch.from_dlpack(nbx.cumulative_sum(x, axis=axis))
    if dtype != "bfloat16" and not torch.equal(got, torch.cumsum(a, axis)):
        raise SystemExit(f"cumulative_sum {dtype} {shape}: {OURS} and torch differ")
    calls = {
        OURS: lambda: nbx.cumulative_sum(x, axis=axis),
        "eager": lambda: torch.cumsum(a, axis),
        COPY: lambda: target.copy_(source),
    }
    nbytes = math.prod(shape) * (a.element_size() + target.element_size())
    return Case(f"cumulative_sum {dtype}", "x".join(map(str, shape)), calls, nbytes, 2 * target.nbytes)


def huge(torch: Any) -> None:
    """2^31 + 1 elements of int8: the last sum, and every difference of neighbours."""
    n = 2**31 + 1
    a = torch.randint(-128, 128, (n,), dtype=torch.int8, device=DEVICE)
    got = torch.from_dlpack(nbx.cumulative_sum(nbx.from_dlpack(a)))
    right = int(got[0]) == int(a[0]) and int(got[-1]) == int(a.sum(dtype=torch.int64))
    for begin in range(1, n, 1 << 28):
        end = min(begin + (1 << 28), n)
        right = right and bool(torch.equal(got[begin:end] - got[begin - 1 : end - 1], a[begin:end].long()))
    print(f"cumulative_sum of {n:,} int8: {'right' if right else 'WRONG'}")
    if not right:
        raise SystemExit(1)


def main() -> int:
    chosen = parser(__doc__ or "").parse_args()
    import torch

    clock = DeviceClock(torch)
    rows = [measure(case(torch, *shape), clock, rounds=chosen.rounds, sample=0.005) for shape in SHAPES]
    report("Running sums on the GPU", rows, chosen, gpu=torch.cuda.get_device_name(0))
    print("\n".join(["", "slower than a peer:", *(slower(rows) or ["nothing"])]))
    torch.cuda.empty_cache()
    huge(torch)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
