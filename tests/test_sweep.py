"""Every kernel compiles for every target: the log of `make sweep` is current, and a small part is compiled here."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from tools import sweep
from tools.candidates import SPACES
from tools.journal import Journal
from tools.sweep import Outcome, Task, check, collect, outcomes, run
from tools.sweep_log import Present, stale, summary
from tools.variants import ROOT, TARGETS, fixed_sample, functions_of, launches, variants

from compile_kernels import spilling_kernel
from nbxtensor.compiler.cuda import lower_to_ptx
from nbxtensor.compiler.jobs import Job
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.compiler.ttir import one_front_end, ttir
from nbxtensor.device.artifact import Options, Target
from nbxtensor.device.profile import load_profile, target_of


@kernel
def careless_kernel(x_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(x_ptr + i, tl.exp(tl.load(x_ptr + i)))


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

KEPT = {
    "src/nbxtensor/kernel/scan_settings.py": {"sm_75": 8, "sm_80": 8, "sm_86": 8, "sm_89": 8},
    "src/nbxtensor/ops/cumulative.py": {"sm_90": 8},
    "src/nbxtensor/ops/linear.py": {"sm_80": 8, "sm_86": 8, "sm_89": 8},
    "src/nbxtensor/ops/matmul.py": {"sm_80": 8, "sm_86": 8, "sm_89": 8},
    "src/nbxtensor/ops/max.py": {"sm_80": 8},
    "src/nbxtensor/ops/sort/functions.py": {"sm_100": 8, "sm_120": 8, "sm_90": 8},
}
"""Bytes of stack that the log has, and that docs/targets.md explains; there are no others."""


def test_the_log_names_the_present_kernels() -> None:
    _, present = collect(TARGETS, lambda file: True)
    left = "\n".join(f"{file}: {why}" for file, why in stale(log(), present).items())
    assert not left, f"bench/results/sweep.json is not current: run `make sweep` and commit it\n{left}"


def test_the_log_has_no_problems() -> None:
    files = log()["files"]
    assert [p for entry in files.values() for p in entry["problems"]] == []
    for file, entry in files.items():
        for arch, figures in entry["targets"].items():
            profile = load_profile(arch)
            assert figures["failed"] == 0, file
            if profile.warp_size > 1:
                assert figures["stack"] == KEPT.get(file, {}).get(arch, 0), f"{file} on {arch}"
                assert figures["registers"] <= profile.registers_per_thread, file
                assert figures["shared"] <= profile.shared_bytes, file


def test_what_makes_the_log_stale() -> None:
    present = {
        "a.py": Present({"m.one": "1", "m.two": "2"}, {"sm_90": "7", "gfx942": "8"}),
        "b.py": Present({"m.one": "1"}, {"sm_90": "9"}),
    }
    files = summary(iter(()), present, sweep.SOME)
    assert stale({"files": files}, present) == {}
    assert stale({}, present) == {"a.py": "new", "b.py": "new"}
    assert stale({"files": files}, {**present, "c.py": Present()}) == {"c.py": "new"}
    kernel = Present({"m.one": "1", "m.two": "3"}, present["a.py"].jobs)
    assert stale({"files": files}, {**present, "a.py": kernel}) == {"a.py": "other kernels: two"}
    setting = Present(present["a.py"].kernels, {"sm_90": "0", "gfx942": "8"})
    assert stale({"files": files}, {**present, "a.py": setting}) == {"a.py": "other settings or arguments on sm_90"}
    target = Present(present["b.py"].kernels, {"sm_90": "9", "sm_999": "1"})
    assert stale({"files": files}, {"b.py": target}) == {"b.py": "other settings or arguments on sm_999"}


PLANTED = (
    ("kernel/pointwise_settings.py", "(4096, 8), (2048, 8)", "(4096, 4), (2048, 8)"),
    ("kernel/reduce_settings.py", "(kept, min(16, 2 * warps))", "(kept, min(16, 4 * warps))"),
    ("kernel/scan_settings.py", "return split + whole if", "return split if"),
    ("ops/_softmax_settings.py", "[staged, Setting(1, 16,", "[staged, Setting(1, 8,"),
    ("ops/sort/settings.py", "[tile(best), tile(best // 2), tile(best, 0)", "[tile(best), tile(best // 2)"),
)
"""A change of a candidate that is not the first, in each settings module."""


def test_a_changed_candidate_makes_the_log_stale(tmp_path: Path) -> None:
    files = [f"src/nbxtensor/{name}" for name, _, _ in PLANTED]
    assert (
        sorted(SPACES)
        == files
        == sorted(
            str(p.relative_to(ROOT))
            for part in ("kernel", "ops")
            for p in (ROOT / "src/nbxtensor" / part).rglob("*settings.py")
        )
    )
    _, before = collect(["sm_90"], lambda file: file in files)
    known = {"files": summary(iter(()), before, sweep.SOME)}
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))

    def reasons() -> dict[str, str]:
        path = os.pathsep.join(map(str, (tmp_path / "src", ROOT / "tests", ROOT)))
        command = [sys.executable, "-c", ASK, json.dumps(known), *files]
        return json.loads(subprocess.check_output(command, env={**os.environ, "PYTHONPATH": path}))

    for name, _, _ in PLANTED:
        with (tmp_path / "src/nbxtensor" / name).open("a") as module:
            module.write("\n\n# a comment\nUNUSED = 0\n")
    assert reasons() == {}
    for name, before_, after in PLANTED:
        module = tmp_path / "src/nbxtensor" / name
        text = module.read_text()
        assert text.count(before_) == 1, name
        module.write_text(text.replace(before_, after))
    assert reasons() == dict.fromkeys(files, "other settings or arguments on every target")


ASK = """
import json, sys
from tools.sweep import collect, stale
_, present = collect(["sm_90"], lambda file: file in sys.argv[2:])
print(json.dumps(stale(json.loads(sys.argv[1]), present)))
"""


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
    present = {"a.py": Present({"m.one": "1"}, {"sm_90": "1"})}
    log = {"files": summary(iter(()), present, sweep.SOME)}
    assert stale(log, present) == {}
    assert stale(log, present, sweep.ALL) == {"a.py": f"the log has {sweep.SOME}"}


def crash_on_sm_70(task: Task) -> list[Outcome]:
    if task.targets[0].arch == "sm_70":
        os.abort()
    return [Outcome(task.targets[0].arch)]
