"""Compile every kernel that samples and candidates launch, for every target, and log what came out: ``make sweep``.

Nothing runs on a device. For each kernel and target: it compiles, keeps nothing in stack or scratch memory, needs no
more registers and shared memory than the profile has, and neither its TTIR nor its PTX or AMDGCN has an operation whose
bits depend on the device. ``bench/results/sweep.json`` names, per operator's file and per settings module, the hash of
every kernel source that was compiled and per target that of all jobs (sources, argument types, settings);
`tests/test_sweep.py` checks that these are the present ones. Files whose hashes the log names are left out, unless
``--all`` is given. A sweep that is cut off goes on where it was: beside the log lies what it has found.
"""

import argparse
import contextlib
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tools.candidates import candidate_launches
from tools.journal import Journal
from tools.sweep_log import Outcome, Present, stale, summary, versions, write
from tools.variants import ROOT, TARGETS, Variant, fixed_sample, jobs_hashes, kernel_hashes, launches, variants

from nbxtensor.base.errors import NbxError
from nbxtensor.base.knobs import num_threads, tables_dir
from nbxtensor.compiler.compile import compile_fresh
from nbxtensor.compiler.cuda import assemble, lower_to_ptx
from nbxtensor.compiler.hip import lower_to_amdgcn, resources_of
from nbxtensor.compiler.jobs import Job
from nbxtensor.compiler.limits import shortages
from nbxtensor.compiler.resources import cubin_usage
from nbxtensor.compiler.scan import NARROWED, scan_ptx, scan_ttir
from nbxtensor.compiler.scan_amdgcn import scan_amdgcn
from nbxtensor.compiler.ttir import one_front_end, ttir
from nbxtensor.device.artifact import Resources, Target
from nbxtensor.device.null import NullDevice
from nbxtensor.device.profile import load_profile, target_of
from nbxtensor.tuning.tables import forget as forget_tables

LOG = ROOT / "bench/results/sweep.json"
KEEP_ONE = {
    "cumulative_tile_kernel",
    "tile_sort_kernel",
    "radix_sort_scatter_kernel",
    "matmul_outer_kernel",
    "reduce_kernel",
}
"""Kernels of which ptxas may keep one register (8 bytes) in memory: docs/targets.md."""
ALL, SOME = "every variant", "one of each kernel with each function"


@dataclass(frozen=True, slots=True)
class Task:
    """One kernel and the targets to compile it for; only the target of the job differs."""

    job: Job
    targets: tuple[Target, ...]

    @property
    def key(self) -> str:
        """Hash of everything that the outcomes depend on: sources, targets, compilers."""
        return hashlib.sha256("".join(replace(self.job, target=t).key for t in self.targets).encode()).hexdigest()


def _compile(job: Job, text: str) -> tuple[Resources, list[str]]:
    """Resources of a job, and the forbidden operations in its machine code."""
    if job.target.kind == "cuda":
        ptx = lower_to_ptx(job)
        registers, stack = cubin_usage(assemble(ptx, job.target.arch), ptx.symbol)
        found = [str(f) for f in scan_ptx(ptx.text, text) if not NARROWED.search(f.text)]
        return Resources(registers, stack, ptx.shared_bytes), found
    if job.target.kind == "hip":
        amdgcn = lower_to_amdgcn(job)
        found = [str(f) for f in scan_amdgcn(amdgcn.text, text) if not NARROWED.search(f.text)]
        return resources_of(amdgcn), found
    return compile_fresh(job).resources, []


def check(job: Job, text: str) -> Outcome:
    """Compile a job, whose TTIR is `text`, and hold the result against the profile of its target."""
    arch = job.target.arch
    profile = load_profile(arch)
    try:
        found, problems = _compile(job, text)
    except NbxError as error:
        return Outcome(arch, problems=(f"does not compile: {error}",))
    except Exception as error:  # whatever a compiler raises is a finding about the kernel
        return Outcome(arch, problems=(f"does not compile: {type(error).__name__}: {error}",))
    if profile.warp_size > 1:
        if found.stack_bytes > (8 if job.target.kind == "cuda" and job.fn.name in KEEP_ONE else 0):
            problems.append(f"{found.stack_bytes} bytes of stack per thread")
        problems += shortages(found, profile)
    return Outcome(arch, found.registers, found.stack_bytes, found.shared_bytes, tuple(problems))


def run(task: Task) -> list[Outcome]:
    """Everything about one kernel; runs in a process of its own pool."""
    with one_front_end():
        return _run(task)


def _run(task: Task) -> list[Outcome]:
    job = task.job
    try:
        text = ttir(job.fn, dict(job.signature), dict(job.constants), job.options, job.divisible)
    except NbxError as error:
        return [Outcome(t.arch, problems=(f"has no TTIR: {error}",)) for t in task.targets]
    forbidden = tuple(str(f) for f in scan_ttir(text))
    done = [check(replace(job, target=target), text) for target in task.targets]
    return [replace(o, problems=(*forbidden, *o.problems)) for o in done]


def _quiet() -> None:
    """MLIR writes whole modules to standard error when a pass fails; the message is enough."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_quiet)


def _alone(task: Task) -> list[Outcome]:
    """Run a task in a process that nothing else depends on, target by target: compilers may abort."""
    outcomes: list[Outcome] = []
    for target in task.targets:
        with _pool(1) as pool:
            try:
                outcomes += pool.submit(run, Task(task.job, (target,))).result()
            except BrokenProcessPool:
                outcomes.append(Outcome(target.arch, problems=("does not compile: the compiler crashed",)))
    return outcomes


def outcomes(
    tasks: Sequence[Task], workers: int, done: Callable[[], None], journal: Journal | None = None
) -> list[list[Outcome]]:
    """Run the tasks that `journal` does not know side by side; `done` is called after each."""
    journal = journal or Journal(None)
    results: dict[int, list[Outcome]] = {}

    def settle(index: int, found: list[Outcome]) -> None:
        results[index] = found
        journal.add(tasks[index].key, [asdict(o) for o in found])
        done()

    for index, task in enumerate(tasks):
        known = journal.get(task.key)
        if known is not None:
            results[index] = [Outcome(**{**o, "problems": tuple(o["problems"])}) for o in known]
            done()
    waiting = iter(sorted(set(range(len(tasks))) - set(results)))
    pool = _pool(workers)
    running: dict[Future[list[Outcome]], int] = {}
    try:
        while True:
            for index in waiting:
                running[pool.submit(run, tasks[index])] = index
                if len(running) > workers:
                    break
            if not running:
                return [results[i] for i in range(len(tasks))]
            ready, _ = wait(running, return_when=FIRST_COMPLETED)
            if any(isinstance(f.exception(), BrokenProcessPool) for f in ready):
                lost, running = sorted(running.values()), {}
                pool.shutdown(cancel_futures=True)
                pool = _pool(workers)
                for index in lost:
                    settle(index, _alone(tasks[index]))
                continue
            for future in ready:
                settle(running.pop(future), future.result())
    finally:
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def as_delivered() -> Generator[None]:
    """Choices as they are on any machine: two threads, and no certificates but those of the package."""
    with num_threads.override("2"), tables_dir.override(str(ROOT / "no-tables")):
        forget_tables()
        try:
            yield
        finally:
            forget_tables()


def collect(
    targets: Sequence[str], wanted: Callable[[str], bool]
) -> tuple[dict[str, dict[str, Variant]], dict[str, Present]]:
    """Variants per target, and what the log has to name per operator's file and per settings module."""
    found: dict[str, dict[str, Variant]] = {}
    present: dict[str, Present] = {}
    for arch in targets:
        with as_delivered():
            launched = [*launches(arch, wanted=wanted), *candidate_launches(NullDevice(target_of(arch)), wanted)]
        found[arch] = variants(launched)
        for file, kernels in kernel_hashes(launched).items():
            present.setdefault(file, Present()).kernels.update(kernels)
        for file, jobs in jobs_hashes(launched).items():
            present[file].jobs[arch] = jobs
    return found, present


def tasks_of(found: dict[str, list[Variant]]) -> tuple[list[Task], list[list[Variant]]]:
    """One task per kernel, with all targets that want the same job; and the variants in the order of its targets."""
    groups: dict[str, list[tuple[Target, Variant]]] = {}
    base = Target("none", "none")
    for arch, several in found.items():
        for variant in several:
            same = replace(variant.job, target=base).identity
            groups.setdefault(same, []).append((target_of(arch), variant))
    tasks = [Task(group[0][1].job, tuple(t for t, _ in group)) for group in groups.values()]
    return tasks, [[v for _, v in group] for group in groups.values()]


@contextlib.contextmanager
def progress(total: int) -> Generator[Callable[[], None]]:
    """A bar on standard error where someone sees it and rich is there."""
    try:
        if not sys.stderr.isatty():
            raise ImportError
        from rich import progress as parts
        from rich.console import Console
    except ImportError:
        yield lambda: None
        return
    columns = (
        parts.TextColumn("kernels"),
        parts.BarColumn(),
        parts.MofNCompleteColumn(),
        parts.TimeElapsedColumn(),
        parts.TimeRemainingColumn(),
    )
    with parts.Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("compiling", total=total)
        yield lambda: bar.advance(task)


def by_target(found: Iterable[Outcome]) -> list[str]:
    """One line for each target: how many were compiled, how many have problems, the most that one needs."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in found:
        groups.setdefault(outcome.arch, []).append(outcome)
    return [
        f"{arch}: {len(group)} compiled, {sum(bool(o.problems) for o in group)} with problems, at most "
        f"{max(o.registers for o in group)} registers, {max(o.shared_bytes for o in group)} bytes of shared memory"
        for arch, group in sorted(groups.items())
    ]


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default=",".join(TARGETS), help="architectures, separated by commas")
    parser.add_argument("--only", default="", help="operator files whose path contains this")
    parser.add_argument("--sample", type=int, metavar="N", help="about N kernels for each target, evenly chosen")
    parser.add_argument("--fixed", action="store_true", help=f"only {SOME}: minutes instead of half an hour")
    parser.add_argument("--least", action="store_true", help="only one of each kernel; nothing is logged by default")
    parser.add_argument("--all", action="store_true", help="every variant, also what the log covers already")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--log", type=Path, help=f"default: {LOG.relative_to(ROOT)}, if all targets and kernels are done"
    )
    return parser.parse_args(arguments)


def chosen(found: dict[str, Variant], options: argparse.Namespace) -> list[Variant]:
    """The variants to compile for one target."""
    if options.fixed or options.least:
        return fixed_sample(found, whole=not options.least)
    every = list(found.values())
    step = max(1, len(every) // options.sample) if options.sample else 1
    return every[::step]


def main(arguments: Sequence[str] | None = None) -> int:
    options = options_of(arguments)
    targets = options.targets.split(",")
    whole = set(targets) >= set(TARGETS) and not options.sample and not options.least
    path: Path | None = options.log or (LOG if whole else None)
    log: dict[str, Any] = json.loads(path.read_text()) if path and path.exists() else {}
    if log.get("versions") != versions():
        log = {}
    found, present = collect(targets, lambda file: options.only in file)
    if log and not options.all:
        left = set(stale(log, present, None if options.fixed else ALL))
        print(f"{len(present) - len(left)} of {len(present)} files are in the log already")
        present = {f: one for f, one in present.items() if f in left}
        found = {a: {k: v for k, v in several.items() if v.files & left} for a, several in found.items()}
        for several in found.values():
            for variant in several.values():
                variant.files &= left
    tasks, wanted = tasks_of({arch: chosen(several, options) for arch, several in found.items()})
    print(
        f"{sum(len(t.targets) for t in tasks)} compiles of {len(tasks)} kernels for {len(targets)} targets", flush=True
    )
    start = time.monotonic()
    with Journal(path and path.with_suffix(".partial")) as journal:
        with progress(len(tasks)) as done:
            results = outcomes(tasks, options.workers, done, journal)
        pairs = [(v, o) for vs, os_ in zip(wanted, results, strict=True) for v, o in zip(vs, os_, strict=True)]
        files = summary(iter(pairs), present, SOME if options.fixed else ALL)
        problems = sorted({p for entry in files.values() for p in entry["problems"]})
        print("\n".join([*problems, *by_target(o for _, o in pairs)]))
        print(f"{len(pairs)} compiled, {len(problems)} problems, {time.monotonic() - start:.0f} s")
        if path:
            old = log.get("files", {}) if not options.all or options.only else {}
            keep = {f: e for f, e in old.items() if (ROOT / f).exists()}
            write(path, {"versions": versions(), "files": dict(sorted({**keep, **files}.items()))})
            print(f"written: {path}")
    return int(bool(problems))


if __name__ == "__main__":
    raise SystemExit(main())
