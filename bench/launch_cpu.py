"""What a launch on the CPU costs: the bare call, with workers that are awake, with workers that sleep.

``python -m bench.launch_cpu [--json FILE]``. The kernel adds two float32 vectors; NumPy's ``add`` takes turns with it.
Low quantiles show what the machine can do, medians what it did beside everything else that ran.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nbxtensor.compiler.compile import Job, compile_job
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.device import get
from nbxtensor.device.artifact import Options

BLOCK = 4096
SIZES = (1, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24)


@kernel
def add(x, y, z, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    total = tl.load(x + at, mask=inside, other=0.0) + tl.load(y + at, mask=inside, other=0.0)
    tl.store(z + at, total, mask=inside)


def quantiles(seconds: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(seconds, n=50)
    return {"low": cuts[0] * 1e6, "median": statistics.median(seconds) * 1e6}


def timed(call: Callable[[], Any], pause: float = 0.0) -> float:
    if pause:
        time.sleep(pause)
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def measure(device: Any, loaded: Any, n: int, threads: int) -> dict[str, Any]:
    """Microseconds of one size: alone, with all threads, with sleeping workers, and NumPy's."""
    buffers = [device.allocate(4 * n) for _ in range(3)]
    a, b, out = (np.ones(n, np.float32) for _ in range(3))
    for buffer in buffers:
        device.copy_from_host(buffer.ptr, memoryview(a))
    grid = (-(-n // BLOCK), 1, 1)
    args = (*(buffer.ptr for buffer in buffers), n)
    times: dict[str, list[float]] = {"alone": [], "threads": [], "asleep": [], "numpy": []}
    joined = 0
    for _ in range(max(50, min(2000, (1 << 27) // n))):
        device.pool.set_threads(1)
        times["alone"].append(timed(lambda: device.run(loaded, grid, args)))
        times["numpy"].append(timed(lambda: np.add(a, b, out=out)))
        device.pool.set_threads(threads)
        device.run(loaded, grid, args)
        begin = time.perf_counter()
        joined += device.run(loaded, grid, args)
        times["threads"].append(time.perf_counter() - begin)
        times["asleep"].append(timed(lambda: device.run(loaded, grid, args), 0.001))
    calls = len(times["alone"])
    return {"n": n, "joined": joined / calls, **{name: quantiles(values) for name, values in times.items()}}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", type=Path, help="also write the figures to this file")
    options.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    chosen = options.parse_args()
    device: Any = get("cpu")
    pointers = tuple((name, "*fp32") for name in "xyz")
    job = Job(add, (*pointers, ("n", "i64")), (("BLOCK", BLOCK),), Options(), frozenset(), device.target)
    loaded = device.load(compile_job(job))
    rows = [measure(device, loaded, n, chosen.threads) for n in SIZES]
    print(f"microseconds, 2 % quantile / median; {chosen.threads} threads, load {os.getloadavg()[0]:.1f}")
    for row in rows:
        cells = [f"{k} {v['low']:.1f} / {v['median']:.1f}" for k, v in row.items() if isinstance(v, dict)]
        print(f"{row['n']:9d}: {'; '.join(cells)}; workers that helped {row['joined']:.2f}")
    if chosen.json:
        chosen.json.write_text(json.dumps({"threads": chosen.threads, "load": os.getloadavg(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
