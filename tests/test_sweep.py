"""Every kernel compiles for every target: the log of `make sweep` is current, and a small part is compiled here."""

import json
import os
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from tools import sweep
from tools.journal import Journal
from tools.sweep import Outcome, Task, check, collect, outcomes, run, stale
from tools.variants import TARGETS, fixed_sample, functions_of, launches, variants

from nbxtensor.compiler.cuda import lower_to_ptx
from nbxtensor.compiler.jobs import Job
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.compiler.ttir import one_front_end, ttir
from nbxtensor.device.artifact import Options, Target
from nbxtensor.device.profile import load_profile, target_of

CLASSES = ("sm_90", "gfx942", "x86-64-v3")
"""Targets on which operators choose different kernels."""


@kernel
def careless_kernel(x_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(x_ptr + i, tl.exp(tl.load(x_ptr + i)))


@kernel
def spilling_kernel(x_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x_ptr + i)
    w = tl.load(x_ptr + N + i)
    for _ in range(10):
        total = tl.max(v * w, axis=0)
        v = tl.fma(v, w, total)
        w = tl.fma(w, v, total)
    tl.store(x_ptr + i, v + w)


@kernel
def wrong_kernel(x_ptr, N: tl.constexpr):
    tl.store(x_ptr, tl.no_such_function(N))


def job(fn, arch: str = "sm_90", n: int = 128, warps: int = 1) -> Job:
    target = target_of(arch)
    return Job(fn, (("x_ptr", "*fp32"),), (("N", n),), Options(num_warps=warps), frozenset(), target)


def problems(one: Job) -> str:
    (outcome,) = run(Task(one, (one.target,)))
    return "\n".join(outcome.problems)


def log() -> dict[str, Any]:
    return json.loads(sweep.LOG.read_text())


# The log


def test_the_log_names_the_present_kernels() -> None:
    _, hashes = collect(CLASSES, lambda file: True)
    left = stale(log(), hashes)
    assert not left, f"bench/results/sweep.json is not current for {', '.join(left)}: run `make sweep` and commit it"


def test_the_log_has_no_problems() -> None:
    files = log()["files"]
    assert [p for entry in files.values() for p in entry["problems"]] == []
    for file, entry in files.items():
        for arch, figures in entry["targets"].items():
            profile = load_profile(arch)
            assert figures["failed"] == 0, file
            if profile.warp_size > 1:
                assert figures["stack"] == 0, file
                assert figures["registers"] <= profile.registers_per_thread, file
                assert figures["shared"] <= profile.shared_bytes, file


def test_a_changed_kernel_makes_the_log_stale() -> None:
    hashes = {"a.py": {"one": "1", "two": "2"}, "b.py": {"one": "1"}}
    entry = {"targets": {arch: {} for arch in TARGETS}}
    files = {"a.py": {"kernels": {"one": "1", "two": "2"}, **entry}, "b.py": {"kernels": {"one": "1"}, **entry}}
    assert stale({"files": files}, hashes) == []
    assert stale({}, hashes) == ["a.py", "b.py"]
    assert stale({"files": files}, {**hashes, "c.py": {}}) == ["c.py"]
    assert stale({"files": files}, {**hashes, "a.py": {"one": "1", "two": "3"}}) == ["a.py"]
    assert stale({"files": files}, hashes, [*TARGETS, "sm_999"]) == ["a.py", "b.py"]


# What is compiled


@pytest.mark.parametrize(
    "arch", ["gfx942", *(pytest.param(a, marks=pytest.mark.slow) for a in ("gfx1100", "sm_70", "x86-64-v4"))]
)
def test_one_of_each_kernel_compiles(arch: str) -> None:
    sample = fixed_sample(variants(launches(arch)), whole=False)
    assert len(sample) > 10
    found = [f"{v.label}: {p}" for v in sample for p in run(Task(v.job, (v.job.target,)))[0].problems]
    assert not found, "\n".join(found)


def test_the_fixed_sample_covers_every_kernel_and_file() -> None:
    found = variants(launches("gfx942"))
    sample = fixed_sample(found)

    def names(some: Any) -> set[tuple[str, ...]]:
        return {tuple(fn.name for fn in functions_of(v.job)) for v in some}

    assert names(sample) == names(found.values())
    assert {f for v in sample for f in v.files} == {f for v in found.values() for f in v.files}
    assert len(sample) < len(found) / 3


def test_the_largest_tile_stands_for_a_variant() -> None:
    jobs = [job(careless_kernel, n=n, warps=w) for n, w in ((128, 1), (1024, 8), (512, 1))]
    (only,) = variants(("case", "file.py", j) for j in jobs).values()
    assert dict(only.job.constants)["N"] == 512
    other = replace(jobs[0], signature=(("x_ptr", "*bf16"),))
    assert len(variants(("case", "file.py", j) for j in (*jobs, other))) == 2


@kernel
def dot_kernel(x_ptr, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + at)
    tl.store(x_ptr + at, tl.dot(x, x, input_precision="ieee"))


def test_a_kernel_passes_the_front_end_once_for_all_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.compiler import ASTSource

    made: list[int] = []
    make = ASTSource.make_ir
    monkeypatch.setattr(ASTSource, "make_ir", lambda *a: made.append(1) or make(*a))
    jobs = [job(careless_kernel, arch) for arch in ("sm_75", "sm_90", "sm_75")]
    apart = [lower_to_ptx(one).text for one in jobs]
    assert len(made) == 3
    with one_front_end():
        assert [lower_to_ptx(one).text for one in jobs] == apart
        assert len(made) == 4
        lower_to_ptx(job(careless_kernel, n=64))
        assert len(made) == 5
        for _ in range(2):
            lower_to_ptx(job(dot_kernel, n=16))
        assert len(made) == 7


# What is found


@pytest.mark.parametrize("arch", ["sm_90", "gfx942", "x86-64-v3"])
def test_forbidden_operations_are_found(arch: str) -> None:
    assert "math.exp differs between devices" in problems(job(careless_kernel, arch))


@pytest.mark.parametrize("arch", ["sm_90", "gfx942"])
def test_stack_memory_is_found(arch: str) -> None:
    assert "bytes of stack per thread" in problems(job(spilling_kernel, arch, 16_384))


def test_kernels_that_do_not_compile_are_found() -> None:
    assert "has no TTIR" in problems(job(wrong_kernel))
    one = job(careless_kernel)
    text = ttir(one.fn, dict(one.signature), dict(one.constants), one.options)
    assert "does not compile" in "".join(check(replace(one, target=Target("tpu", "sm_90")), text).problems)


def test_a_compiler_that_crashes_is_a_problem_of_that_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    good = job(careless_kernel)
    monkeypatch.setattr(sweep, "run", crash_on_sm_70)
    tasks = [Task(good, (target_of("sm_90"),)), Task(good, (target_of("sm_70"),)), Task(good, (target_of("sm_80"),))]
    ended: list[int] = []
    results = outcomes(tasks, 2, lambda: ended.append(1))
    assert [[o.arch for o in one] for one in results] == [["sm_90"], ["sm_70"], ["sm_80"]]
    assert [bool(one[0].problems) for one in results] == [False, True, False]
    assert len(ended) == 3


def test_a_sweep_that_was_cut_off_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [Task(job(careless_kernel, n=n), (target_of("sm_90"),)) for n in (64, 128)]
    path = tmp_path / "log.partial"
    first = Outcome("sm_90", 7, problems=("one", "two"))
    with suppress(KeyboardInterrupt), Journal(path) as journal:
        journal.add(tasks[0].key, [asdict(first)])
        raise KeyboardInterrupt
    path.write_text(path.read_text() + '["half of')
    monkeypatch.setattr(sweep, "run", crash_on_sm_70)
    with Journal(path) as journal:
        results = outcomes(tasks, 1, lambda: None, journal)
        assert len(path.read_text().splitlines()) == 2
    assert results == [[first], [Outcome("sm_90")]]
    assert not path.exists()
    assert len({t.key for t in tasks}) == 2


def test_a_fixed_sample_does_not_stand_for_everything() -> None:
    hashes = {"a.py": {"one": "1"}}
    log = {"files": {"a.py": {"extent": sweep.SOME, "kernels": {"one": "1"}, "targets": {a: {} for a in TARGETS}}}}
    assert stale(log, hashes) == []
    assert stale(log, hashes, extent=sweep.ALL) == ["a.py"]


def crash_on_sm_70(task: Task) -> list[Outcome]:
    if task.targets[0].arch == "sm_70":
        os.abort()
    return [Outcome(task.targets[0].arch)]
