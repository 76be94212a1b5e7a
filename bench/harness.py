"""How every figure in bench/ is taken.

Contestants of a case take turns: in each round every one of them runs for a fixed number of calls, in an order that
moves on by one per round, so that a slow moment of the machine hits all alike. The figure is the median over the
rounds. A ratio is the peer's time over ours: above 1, we are faster.
"""

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

OURS = "nbx"
COPY = "copy"
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NBX_NUM_THREADS")

Call = Callable[[], object]


class Clock(Protocol):
    """Measures seconds per call of `calls` calls in a row."""

    def seconds(self, call: Call, calls: int) -> float: ...


class HostClock:
    """Wall time on the host."""

    def seconds(self, call: Call, calls: int) -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - begin) / calls


@dataclass(frozen=True)
class Case:
    """One row of a table.

    Attributes
    ----------
    contestants
        Name -> a call that does the work; `OURS` and the peers, and `COPY` where a copy of the same bytes is known.
    nbytes
        Bytes that the work must read and write at least; 0 if bandwidth says nothing about it.
    copy_nbytes
        Bytes that the contestant `COPY` reads and writes.
    flops
        Floating-point operations, where that is the figure to look at; 0 otherwise.
    """

    name: str
    size: str
    contestants: dict[str, Call]
    nbytes: int = 0
    copy_nbytes: int = 0
    flops: int = 0


@dataclass
class Row:
    """What was measured for a case: median seconds per call and the spread (quartiles) of each contestant."""

    name: str
    size: str
    threads: int
    seconds: dict[str, float]
    quartiles: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    nbytes: int = 0
    copy_nbytes: int = 0
    flops: int = 0

    def ratio(self, peer: str) -> float:
        return self.seconds[peer] / self.seconds[OURS]

    def share_of_copy(self) -> float | None:
        """Our bytes per second over those of the copy; None without a copy."""
        if COPY not in self.seconds or not self.copy_nbytes:
            return None
        return self.nbytes / self.seconds[OURS] / (self.copy_nbytes / self.seconds[COPY])

    @property
    def peers(self) -> list[str]:
        return [n for n in self.seconds if n not in (OURS, COPY)]


def measure(
    case: Case, clock: Clock, *, threads: int = 0, rounds: int = 15, sample: float = 0.02, pause: float = 0.0
) -> Row:
    """Measure `case`: each of `rounds` samples of a contestant lasts about `sample` seconds, at least one call.

    `pause` seconds and a call lie before each sample: threads of the contestant before it spin for a while after their
    last work, and would take processors from this one.
    """
    calls: dict[str, int] = {}
    for name, call in case.contestants.items():
        call()
        once = min(clock.seconds(call, 1) for _ in range(3))
        calls[name] = max(1, math.ceil(sample / max(once, 1e-7)))
    names = list(case.contestants)
    samples: dict[str, list[float]] = {n: [] for n in names}
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            if pause:
                time.sleep(pause)
                case.contestants[name]()
            samples[name].append(clock.seconds(case.contestants[name], calls[name]))
    medians = {n: statistics.median(s) for n, s in samples.items()}
    quartiles = {n: _quartiles(s) for n, s in samples.items()}
    return Row(case.name, case.size, threads, medians, quartiles, case.nbytes, case.copy_nbytes, case.flops)


def _quartiles(samples: Sequence[float]) -> tuple[float, float]:
    if len(samples) < 2:
        return samples[0], samples[0]
    low, _, high = statistics.quantiles(samples, n=4)
    return low, high


def table(rows: Sequence[Row]) -> str:
    """The rows as text: microseconds, peer over ours, share of the copy's bandwidth or Gflop/s."""
    peers = list(dict.fromkeys(p for r in rows for p in r.peers))
    head = ["case", "size", "threads", f"{OURS} us"]
    head += [f"{p} us" for p in peers] + [f"{p}/{OURS}" for p in peers] + ["of copy", "Gflop/s"]
    body: list[list[str]] = []
    for row in rows:
        cells = [row.name, row.size, str(row.threads or "-"), f"{row.seconds[OURS] * 1e6:,.1f}"]
        cells += [f"{row.seconds[p] * 1e6:,.1f}" if p in row.seconds else "" for p in peers]
        cells += [f"{row.ratio(p):.2f}" if p in row.seconds else "" for p in peers]
        share = row.share_of_copy()
        cells.append("" if share is None else f"{share:.0%}")
        cells.append(f"{row.flops / row.seconds[OURS] / 1e9:.1f}" if row.flops else "")
        body.append(cells)
    used = [i for i in range(len(head)) if any(cells[i] for cells in body)]
    lines = [[cells[i] for i in used] for cells in [head, *body]]
    widths = [max(len(cells[i]) for cells in lines) for i in range(len(used))]
    return "\n".join(
        "  ".join(c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True)))
        for cells in lines
    )


def slower(rows: Sequence[Row], limit: float = 1.0) -> list[str]:
    """What is slower than a peer by more than `limit` allows, as text."""
    return [
        f"{r.name} {r.size} ({r.threads} threads): {p} takes {r.ratio(p):.2f} of our time"
        for r in rows
        for p in r.peers
        if r.ratio(p) < limit
    ]


# Programs


def parser(description: str) -> argparse.ArgumentParser:
    """Options that all programs share."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--threads", default="1,2", help="thread counts, each measured in its own process")
    options.add_argument("--only", default="", help="measure only the cases whose name contains this")
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--json", type=Path, metavar="OUT", help="write the rows and the machine's facts there")
    return options


def per_thread_count(module: str, options: argparse.Namespace, worker: Callable[[int], list[Row]]) -> list[Row] | None:
    """Run `worker` once per thread count, each in a process whose libraries were told before they started.

    Returns the rows of all of them in the first process, None in the others (which hand their rows up).
    """
    if "BENCH_WORKER" in os.environ:
        rows = worker(int(os.environ["BENCH_WORKER"]))
        Path(os.environ["BENCH_ROWS"]).write_text(json.dumps([asdict(r) for r in rows]))
        return None
    rows: list[Row] = []
    for threads in (int(t) for t in options.threads.split(",")):
        handover = Path(os.environ.get("TMPDIR", "/tmp")) / f"nbx-bench-{os.getpid()}.json"
        environment = {**os.environ, **{v: str(threads) for v in THREAD_VARIABLES}}
        environment |= {"BENCH_WORKER": str(threads), "BENCH_ROWS": str(handover)}
        subprocess.run([sys.executable, "-m", module, *sys.argv[1:]], env=environment, check=True)
        rows += [Row(**r) for r in json.loads(handover.read_text())]
        handover.unlink()
    return rows


def report(title: str, rows: Sequence[Row], options: argparse.Namespace, **facts: Any) -> None:
    """Print the table and, where asked, write the JSON."""
    print(f"\n{title}\n{table(rows)}")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        content = {"title": title, "machine": machine(), **facts, "rows": [asdict(r) for r in rows]}
        options.json.write_text(json.dumps(content, indent=1) + "\n")
        print(f"written: {options.json}")


def machine() -> dict[str, Any]:
    """What the figures depend on: processor, versions, commit."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    git = ["git", "-C", str(Path(__file__).parent)]
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    changed = subprocess.run([*git, "status", "--porcelain", "src"], capture_output=True, text=True).stdout.strip()
    packages = ("numpy", "torch", "onnxruntime", "triton", "llvmlite", "cupy-cuda13x", "cuda-bindings", "cuda-core")
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "commit": commit + ("+changes" if changed else ""),
        "versions": {p: v for p in packages if (v := _version(p))},
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
