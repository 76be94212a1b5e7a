"""Launches on the CPU: arguments, grids, workers, threads, forks, the floating-point environment."""

import ctypes
import importlib.util
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from cpu_kernels import COUNT, SIGNATURE, artifact, cells, compile_ir
from nbxtensor.base import knobs
from nbxtensor.base.errors import ArgumentError, LaunchError
from nbxtensor.device import cpu_pool_code, get
from nbxtensor.device.cpu import CpuDevice, set_num_threads


@pytest.fixture
def cpu():
    device = get("cpu")
    before = device.pool.threads
    yield device
    device.pool.set_threads(before)


@pytest.fixture(scope="module")
def counter():
    return get("cpu").load(artifact(compile_ir(COUNT), "count", "*i64", "i64"))


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("grid", [(1, 1, 1), (7, 1, 1), (3, 5, 2), (1000, 1, 1)])
def test_every_program_runs_once(cpu, counter, threads, grid):
    cpu.pool.set_threads(threads)
    total = int(np.prod(grid))
    data = cells(total)
    for _ in range(20):
        counter.forget()
        cpu.launch(counter, grid, (data.ctypes.data, 1))
    assert (data[:, 0] == 20).all()


def test_the_number_of_threads_is_shown(cpu):
    for threads, shown in ((1, "1 thread)"), (2, "2 threads)")):
        cpu.pool.set_threads(threads)
        assert shown in repr(cpu)


def test_arguments_reach_the_kernel(cpu):
    """Each kind of argument arrives in its slot, and the grid's sides in order."""
    lines = [
        f"%s{i} = getelementptr i64, ptr %args, i64 {i}\n%v{i} = load i64, ptr %s{i}\n"
        f"%d{i} = getelementptr i64, ptr %ptr, i64 {i}\nstore i64 %v{i}, ptr %d{i}"
        for i in range(7)
    ]
    sides = [
        f"%e{i} = getelementptr i64, ptr %ptr, i64 {7 + i}\nstore i64 %g{c}, ptr %e{i}" for i, c in enumerate("xyz")
    ]
    text = f"define void @k({SIGNATURE}) {{\n%p = load i64, ptr %args\n%ptr = inttoptr i64 %p to ptr\n" + "\n".join(
        [*lines, *sides, "ret void\n}"]
    )
    loaded = cpu.load(artifact(compile_ir(text), "k", "*fp32", "i64", "i32", "i1", "fp32", "fp64", "u64"))
    out = np.zeros(10, np.int64)
    cpu.launch(loaded, (2, 3, 4), (out.ctypes.data, -5, -6, True, -0.1, -0.1, 2**64 - 1))
    assert out[:4].tolist() == [out.ctypes.data, -5, -6, 1]
    assert out[4:5].view(np.float32)[0] == np.float32(-0.1)
    assert out[5:6].view(np.float64)[0] == -0.1
    assert out[6] == -1
    assert out[7:].tolist() == [2, 3, 4]


@pytest.mark.parametrize("grid", [(0, 1, 1), (5, 0, 1), (1, 1, 0)])
def test_an_empty_grid_runs_nothing(cpu, counter, grid):
    data = cells(1)
    cpu.launch(counter, grid, (data.ctypes.data, 1))
    assert not data.any()


@pytest.mark.parametrize("args", [(), (1,), (1, 2, 3), (1, "a"), (1, 0.5), (1, 2**70), (-1, 1)])
def test_bad_arguments_are_named_and_nothing_sticks(cpu, counter, args):
    with pytest.raises(LaunchError, match=r"kernel count.*allowed: \*i64, i64"):
        cpu.launch(counter, (1, 1, 1), args)
    data = cells(1)
    cpu.launch(counter, (1, 1, 1), (data.ctypes.data, 1))
    assert data[0, 0] == 1


def test_a_negative_grid_is_refused(cpu, counter):
    for grid in [(-1, 1, 1), (-1, -1, 1)]:
        with pytest.raises(LaunchError, match="negative"):
            cpu.launch(counter, grid, (0, 1))


def worker_joins(cpu, kernel) -> bool:
    """Whether a worker helps with a long launch; on a busy machine it may take a few until one is given a processor."""
    data = cells(64)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if cpu.run(kernel, (64, 1, 1), (data.ctypes.data, 30_000)):
            return True
    return False


def test_workers_join_large_launches_and_not_small_ones(cpu, counter):
    cpu.pool.set_threads(2)
    data = cells(64)
    assert worker_joins(cpu, counter)
    for _ in range(5):
        cpu.launch(counter, (64, 1, 1), (data.ctypes.data, 1))
    small = [cpu.run(counter, (64, 1, 1), (data.ctypes.data, 1)) for _ in range(50)]
    assert sum(small) <= 5


def test_threads_launch_at_once(cpu, counter):
    """Eight Python threads share the device; every launch is complete on return."""
    cpu.pool.set_threads(2)
    faults: list[object] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(200):
            n = int(rng.integers(1, 200))
            data = cells(n)
            cpu.launch(counter, (n, 1, 1), (data.ctypes.data, 50))
            if not (data[:, 0] == 50).all():
                faults.append(data)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults


MXCSR = f"""
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
define void @read({SIGNATURE}) {{
  %p = load i64, ptr %args
  %ptr = inttoptr i64 %p to ptr
  %slot = mul i64 %start, 8
  %a = getelementptr i64, ptr %ptr, i64 %slot
  call void @llvm.x86.sse.stmxcsr(ptr %a)
  ret void
}}
define void @swap({SIGNATURE}) {{
  %old = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %old)
  %p = load i64, ptr %args
  %ptr = inttoptr i64 %p to ptr
  call void @llvm.x86.sse.ldmxcsr(ptr %ptr)
  %v = load i32, ptr %old
  store i32 %v, ptr %ptr
  ret void
}}
"""


def test_flush_to_zero_of_the_caller_is_off_in_kernels_and_kept_outside(cpu):
    """A library that turned flush-to-zero on changes no result and finds its setting again."""
    cpu.pool.set_threads(2)
    binary = compile_ir(MXCSR)
    read = cpu.load(artifact(binary, "read", "*i64"))
    swap = cpu.load(artifact(binary, "swap", "*i64"))
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 5)(swap.address)
    word = np.array([0x1F80 | 0x8040], np.int64)
    argument = np.array([word.ctypes.data], np.int64)
    call(argument.ctypes.data, 0, 1, 1, 1, 1)
    try:
        tiny = np.float32(1e-40)
        data = cells(2)
        for _ in range(50):
            read.forget()
            cpu.launch(read, (2, 1, 1), (data.ctypes.data,))
            assert (data[:, 0] & 0xFFC0 == 0x1F80).all()
        flushed = np.add(tiny, tiny)
    finally:
        call(argument.ctypes.data, 0, 1, 1, 1, 1)
    assert word[0] & 0x8040 == 0x8040
    assert flushed == 0.0


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_a_pool_of_its_own(cpu, counter):
    cpu.pool.set_threads(2)
    data = cells(64)
    for _ in range(5):
        cpu.launch(counter, (64, 1, 1), (data.ctypes.data, 20_000))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            data[:] = 0
            cpu.launch(counter, (64, 1, 1), (data.ctypes.data, 20_000))
            code = 0 if (data[:, 0] == 20_000).all() and worker_joins(cpu, counter) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    cpu.launch(counter, (64, 1, 1), (data.ctypes.data, 1))


def test_the_interpreter_ends_at_once_with_workers_and_a_busy_thread():
    code = """
import sys, threading, time
sys.path.insert(0, "tests")
import numpy as np
import cpu_kernels as t
from nbxtensor.device import get
cpu = get("cpu")
cpu.pool.set_threads(3)
kernel = cpu.load(t.artifact(t.compile_ir(t.COUNT), "count", "*i64", "i64"))
data = t.cells(64)
def forever():
    while True:
        cpu.launch(kernel, (64, 1, 1), (data.ctypes.data, 20000))
threading.Thread(target=forever, daemon=True).start()
time.sleep(0.3)
print("ok", flush=True)
"""
    root = Path(__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


def test_workers_sleep_when_there_is_nothing_to_do(cpu, counter):
    cpu.pool.set_threads(2)
    data = cells(64)
    cpu.launch(counter, (64, 1, 1), (data.ctypes.data, 20_000))
    deadline = time.monotonic() + 5
    while cpu.pool.parked < cpu.pool.workers and time.monotonic() < deadline:
        time.sleep(0.001)
    assert cpu.pool.parked == cpu.pool.workers >= 1


@pytest.mark.parametrize("count", [1, 2])
def test_a_sleeping_worker_leaves_the_processor_of_its_waker(count):
    """Where there is another one; each worker is known by its scheduling class."""
    allowed = sorted(os.sched_getaffinity(0))[:count]
    if len(allowed) < count:
        pytest.skip("one processor")
    code = f"""
import os, sys, time
sys.path.insert(0, "tests")
os.sched_setaffinity(0, {allowed})
import cpu_kernels as t
from nbxtensor.device import get
cpu = get("cpu")
cpu.pool.set_threads(3)
cpu.pool.start()
kernel = cpu.load(t.artifact(t.compile_ir(t.COUNT), "count", "*i64", "i64"))
data = t.cells(64)
def workers():
    threads = [int(name) for name in os.listdir("/proc/self/task")]
    return [os.sched_getaffinity(one) for one in threads if os.sched_getscheduler(one) == os.SCHED_BATCH]
for home in {allowed}:
    os.sched_setaffinity(0, [home])
    expected = set({allowed}) - {{home}} or {{home}}
    deadline = time.monotonic() + 20
    while True:
        data[:] = 0
        cpu.launch(kernel, (64, 1, 1), (data.ctypes.data, 20000))
        assert (data[:, 0] == 20000).all()
        time.sleep(0.02)
        if workers() == [expected] * 2:
            break
        assert time.monotonic() < deadline, (workers(), expected)
print("ok")
"""
    root = Path(__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


def test_thread_count_is_checked():
    with pytest.raises(ArgumentError, match="got 0"):
        set_num_threads(0)


def test_the_thread_knob():
    with knobs.num_threads.override("3"):
        assert CpuDevice().pool.threads == 3


@pytest.mark.parametrize(
    ("text", "count"),
    [("max 100000\n", None), ("100000 100000\n", 1), ("50000 100000\n", 1), ("9900000 100000\n", None)],
)
def test_a_container_with_a_quota_gets_no_more_threads_than_that(monkeypatch, tmp_path, text, count):
    monkeypatch.setattr(knobs, "CGROUP", tmp_path)
    assert knobs.usable_cpus() == len(os.sched_getaffinity(0))
    (tmp_path / "cpu.max").write_text(text)
    assert knobs.usable_cpus() == (count or len(os.sched_getaffinity(0)))


def test_the_machine_code_is_that_of_the_source():
    path = Path(__file__).parent.parent / "tools" / "assemble_pool.py"
    spec = importlib.util.spec_from_file_location("assemble_pool", path)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    fresh: dict[str, object] = {}
    exec(tool.generate(), fresh)
    assert {name: fresh[name] for name in ("LAUNCH", "WORKER", "CODE")} == {
        "LAUNCH": cpu_pool_code.LAUNCH,
        "WORKER": cpu_pool_code.WORKER,
        "CODE": cpu_pool_code.CODE,
    }
