"""What starting costs: the import beyond NumPy's, and a first model run with an empty and a warm kernel cache."""

import os
import statistics
import subprocess
import sys
import tempfile
import time

from bench.harness import OURS, Row, parser, report

IMPORT = "import time, {first}; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
HEAVY = "import sys, nbxtensor; print(*sorted({'triton', 'llvmlite', 'onnx', 'cuda', 'torch'} & set(sys.modules)))"


def python(*arguments: str, **variables: str) -> tuple[str, float]:
    """Output and seconds of a fresh interpreter; bytecode is cached as in an installation."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | variables
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], env=environment, check=True, capture_output=True, text=True)
    return done.stdout, time.perf_counter() - begin


def import_row(runs: int) -> Row:
    """Seconds of ``import nbxtensor`` once numpy is there, beside those of ``import numpy``."""
    programs = {
        OURS: IMPORT.format(first="numpy", module="nbxtensor"),
        "numpy": IMPORT.format(first="sys", module="numpy"),
    }
    samples: dict[str, list[float]] = {name: [] for name in programs}
    for program in programs.values():
        python("-c", program)
    for _ in range(runs):
        for name, program in programs.items():
            samples[name].append(float(python("-c", program)[0]))
    return Row("import", f"{runs} runs", 0, {name: statistics.median(s) for name, s in samples.items()})


def first_run_rows(runs: int) -> list[Row]:
    """Seconds from the start of the process to the end of a first MiniLM run of [1, 128]."""
    command = ["-m", "bench.models_cpu", "--first-run"]
    with tempfile.TemporaryDirectory() as folder:
        empty = python(*command, NBX_CACHE_DIR=folder)[1]
        warm = [python(*command, NBX_CACHE_DIR=folder)[1] for _ in range(runs)]
    threads = len(os.sched_getaffinity(0))
    return [
        Row("MiniLM first run", "empty cache", threads, {OURS: empty}),
        Row("MiniLM first run", "warm cache", threads, {OURS: statistics.median(warm)}),
    ]


def main() -> int:
    options = parser(__doc__ or "").parse_args()
    heavy = python("-c", HEAVY)[0].split()
    rows = [import_row(20), *first_run_rows(5)]
    report("Starting", rows, options, loaded_by_import=heavy)
    print(f"heavy packages that the import loads: {', '.join(heavy) or 'none'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
