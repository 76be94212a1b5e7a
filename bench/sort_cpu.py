"""Sorting and selecting on the CPU against NumPy (``kind="stable"``; its default beside it) and torch."""

import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bench.harness import OURS, Call, Case, HostClock, Row, measure, parser, per_thread_count, report, slower

SHAPES = ((1000, 1000), (64, 151936), (1, 10_000_000))
SELECTED = (((1000, 1000), 10), ((1000, 1000), 200), ((64, 151936), 50), ((1, 151936), 50), ((1, 10_000_000), 100))
DTYPES = ("float32", "int32")
DEFAULT = "numpy default"


def operand(random: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    if dtype == "float32":
        return random.standard_normal(shape, np.float32)
    return random.integers(-(2**31), 2**31, shape, np.int32)


def same(case: Case, expected: np.ndarray) -> Case:
    """`case` as it is, after our result was seen to be right."""
    if not np.array_equal(np.asarray(case.contestants[OURS]()), expected):
        raise SystemExit(f"{case.name} {case.size}: the result of {OURS} is wrong")
    return case


def cases(nbx: Any, torch: Any, only: str) -> Iterator[Case]:
    random = np.random.default_rng(0)
    for dtype in DTYPES:
        for shape in SHAPES:
            if only not in "sort argsort":
                continue
            host = operand(random, dtype, shape)
            x, a = nbx.asarray(host), torch.from_numpy(host)
            size = "x".join(map(str, shape))
            calls: dict[str, Call] = {
                OURS: lambda x=x: nbx.sort(x),
                "torch": lambda a=a: torch.sort(a, dim=-1, stable=True)[0],
                "numpy": lambda host=host: np.sort(host, kind="stable"),
                DEFAULT: lambda host=host: np.sort(host),
            }
            yield same(Case(f"sort {dtype}", size, calls), np.sort(host))
            calls = {
                OURS: lambda x=x: nbx.argsort(x),
                "torch": lambda a=a: torch.argsort(a, dim=-1, stable=True),
                "numpy": lambda host=host: np.argsort(host, kind="stable"),
                DEFAULT: lambda host=host: np.argsort(host),
            }
            yield same(Case(f"argsort {dtype}", size, calls), np.argsort(host, kind="stable"))
        for shape, k in SELECTED:
            if only not in "topk":
                continue
            host = operand(random, dtype, shape)
            x, a = nbx.asarray(host), torch.from_numpy(host)
            size = f"{k} of {'x'.join(map(str, shape))}"
            calls = {OURS: lambda x=x, k=k: nbx.topk(x, k)[0], "torch": lambda a=a, k=k: torch.topk(a, k)[0]}
            yield same(Case(f"topk {dtype}", size, calls), np.sort(host)[:, ::-1][:, :k])


def rounds_for(case: Case, rounds: int) -> int:
    """Fewer rounds for rows that take seconds."""
    elements = math.prod(int(n) for n in case.size.split(" of ")[-1].split("x"))
    return max(3, min(rounds, 10**8 // elements))


def worker(only: str, rounds: int) -> Callable[[int], list[Row]]:
    def run(threads: int) -> list[Row]:
        import torch

        import nbxtensor as nbx

        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        rows: list[Row] = []
        for case in cases(nbx, torch, only):
            rows.append(measure(case, HostClock(), threads=threads, rounds=rounds_for(case, rounds)))
            print(".", end="", flush=True, file=sys.stderr)
        print(file=sys.stderr)
        return rows

    return run


def main() -> int:
    options = parser(__doc__ or "").parse_args()
    rows = per_thread_count("bench.sort_cpu", options, worker(options.only, options.rounds))
    if rows is not None:
        report("Sorting on the CPU", rows, options)
        behind = [line for line in slower(rows) if DEFAULT not in line]
        print("\n".join(["", "slower than a peer (NumPy's default sort apart):", *(behind or ["nothing"])]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
