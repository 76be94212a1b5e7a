"""Compiling many jobs: order, duplicates, failures, kills, Ctrl-C, several processes at once."""

import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from compile_kernels import broken_kernel, deadly_kernel, fill_kernel
from nbxtensor.base.errors import CompileError
from nbxtensor.compiler import compile as compiler
from nbxtensor.compiler.compile import compile_job, compile_many
from nbxtensor.compiler.jobs import Job
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.compiler.store import ArtifactStore
from nbxtensor.device.artifact import Artifact, Options, Target

HERE = Path(__file__).parent


def job(value: int = 0, **changes: object) -> Job:
    base = Job(
        fill_kernel,
        (("out_ptr", "*fp32"),),
        (("VALUE", value), ("BLOCK", 128)),
        Options(),
        frozenset(),
        Target("cuda", "sm_90"),
    )
    return replace(base, **changes)


def values(artifacts: list[Artifact]) -> list[object]:
    return [a.constants["VALUE"] for a in artifacts]


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "cache")


def test_in_order_without_duplicates(store: ArtifactStore):
    seen: list[tuple[int, int, str]] = []
    jobs = [job(v) for v in (3, 1, 2, 1, 4, 5, 3)]
    done = compile_many(jobs, lambda *a: seen.append(a), workers=2, store=store)
    assert values(done) == [3, 1, 2, 1, 4, 5, 3]
    assert [s[:2] for s in seen] == [(n, 5) for n in range(1, 6)]
    assert seen[0][2] == "compile_kernels.fill_kernel"
    assert len(store.entries()) == 5
    assert done[0] == compile_job(job(3), store)
    again: list[object] = []
    assert compile_many(jobs, lambda *a: again.append(a), store=store) == done
    assert again == []
    assert compile_many([], store=store) == []


def test_equal_jobs_with_other_constants_are_kept_apart(store: ArtifactStore):
    """1 == 1.0 == True in Python, not in a kernel."""
    jobs = [job(1), replace(job(1), constants=(("VALUE", 1.0), ("BLOCK", 128)))]
    assert jobs[0] == jobs[1]
    done = compile_many(jobs, store=store)
    assert [type(v) for v in values(done)] == [int, float]


def test_workers_and_this_process_give_the_same_bytes(store: ArtifactStore, tmp_path: Path):
    jobs = [job(v) for v in range(3)]
    parallel = compile_many(jobs, workers=2, store=store)
    assert compile_many(jobs, workers=1, store=ArtifactStore(tmp_path / "other")) == parallel


def test_a_failing_job_raises_its_error(store: ArtifactStore):
    bad = job(7, fn=broken_kernel)
    with pytest.raises(CompileError, match=r"(?s)broken_kernel.*no_such_name"):
        compile_many([job(1), job(2), bad, job(3), job(4)], workers=2, store=store)
    assert values(compile_many([job(v) for v in range(1, 5)], workers=2, store=store)) == [1, 2, 3, 4]


def test_a_worker_that_dies_is_named_and_the_rest_goes_on(store: ArtifactStore):
    with pytest.raises(CompileError, match=r"deadly_kernel was killed by SIGKILL"):
        compile_many([job(0, fn=deadly_kernel), job(1), job(2)], workers=2, store=store)
    assert len(compile_many([job(v) for v in range(4)], workers=2, store=store)) == 4


def test_jobs_that_only_this_process_knows(store: ArtifactStore):
    @kernel
    def local_kernel(out_ptr, VALUE: tl.constexpr, BLOCK: tl.constexpr):
        tl.store(out_ptr, VALUE)

    jobs = [job(v, fn=local_kernel) for v in range(2)] + [job(v) for v in range(2)]
    assert values(compile_many(jobs, workers=2, store=store)) == [0, 1, 0, 1]


def test_a_callback_that_raises_stops_the_workers(store: ArtifactStore):
    class StopError(Exception):
        pass

    def stop(*_: object) -> None:
        raise StopError

    with pytest.raises(StopError):
        compile_many([job(v) for v in range(6)], stop, workers=2, store=store)
    assert _children() == []
    assert len(compile_many([job(v) for v in range(6)], workers=2, store=store)) == 6


def _children() -> list[str]:
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [pid for pid in found if "nbxtensor.compiler.worker" in Path(f"/proc/{pid}/cmdline").read_text()]


def test_few_jobs_start_no_process(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subprocess, "Popen", None)
    monkeypatch.setattr(compiler, "compile_fresh", lambda j: _fake(j))
    assert values(compile_many([job(1), job(2)], workers=2, store=store)) == [1, 2]


def test_a_worker_makes_the_key_from_the_sources_that_it_has():
    """A file that changed since this process read it must not be stored under the key of what it was."""
    one = job(1)
    assert len(one.key) == 64
    there = pickle.loads(pickle.dumps(one))
    assert there == one
    assert not {"key", "identity"} & set(vars(there))
    assert there.key == one.key


def _fake(asked: Job) -> Artifact:
    artifact = Artifact(asked.key, asked.target, "s", (), dict(asked.constants), asked.options, None, "test", b"binary")
    return replace(artifact, resources=compiler.Resources(1, 0, 0))


def test_a_job_is_compiled_once_by_two_processes(tmp_path: Path):
    """The second finds the first at work, waits, and takes what it published."""
    store = ArtifactStore(tmp_path)
    with store.locked(job(1).key, 0.0):
        assert compiler.compile_unless_busy(job(1), store, 0.05) is None
        store.put(_fake(job(1)))
        assert compiler.compile_unless_busy(job(1), store, 0.05) == _fake(job(1))


_MANY = """
import sys
sys.path[:0] = {paths!r}
from pathlib import Path
from test_compile_many import job
from nbxtensor.compiler.compile import compile_many
from nbxtensor.compiler.store import ArtifactStore
count = int(sys.argv[2])
def progress(done, total, name):
    print(done, flush=True)
try:
    compile_many([job(v) for v in range(count)], progress, workers=2, store=ArtifactStore(Path(sys.argv[1])))
except KeyboardInterrupt:
    print("interrupted")
    sys.exit(130)
"""


def _start(root: Path, count: int) -> subprocess.Popen[str]:
    code = _MANY.format(paths=[str(HERE.parent / "src"), str(HERE)])
    command = [sys.executable, "-c", code, str(root), str(count)]
    scratch = {**os.environ, "TMPDIR": str(root.parent)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=scratch, start_new_session=True)


def test_ctrl_c_leaves_nothing_half_written(tmp_path: Path):
    root = tmp_path / "cache"
    child = _start(root, 60)
    assert child.stdout.readline() == "1\n"
    os.killpg(child.pid, signal.SIGINT)
    output, _ = child.communicate(timeout=60)
    assert child.returncode == 130, output
    assert not list((root / "v1").glob(".tmp-*"))
    assert not [p for p in tmp_path.iterdir() if p != root], "temporary files stayed behind"
    store = ArtifactStore(root)
    assert all(store.read(e) is not None for e in store.entries())
    assert len(store.entries()) < 60


def test_a_killed_parent_takes_its_workers_along(tmp_path: Path):
    child = _start(tmp_path / "cache", 200)
    assert child.stdout.readline() == "1\n"
    child.kill()
    child.wait()
    child.stdout.close()
    deadline = time.monotonic() + 20
    while (left := _workers_of(str(tmp_path))) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


def _workers_of(place: str) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_text()
            except OSError:
                continue
            if "nbxtensor.compiler.worker" in words and place in words:
                found.append(int(entry.name))
    return found
