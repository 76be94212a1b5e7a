"""The CUDA device on a real GPU: ``pytest --device cuda tests/test_cuda_device.py``."""

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nbxtensor.base.errors import DeviceError, LaunchError, OutOfMemoryError
from nbxtensor.compiler.compile import compile_job
from nbxtensor.compiler.jobs import Job
from nbxtensor.compiler.source import KernelFunction, kernel, tl
from nbxtensor.device import discover, get
from nbxtensor.device.artifact import Artifact, Options
from nbxtensor.device.cuda import CudaDevice

pytestmark = pytest.mark.gpu
BLOCK = 1024


@kernel
def saxpy_kernel(x_ptr, out_ptr, n, a, b, flag, shape, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    x = tl.load(x_ptr + i, mask=mask)
    y = x * a + b.to(tl.float32)
    y = tl.where(flag, y, x) + (shape[0] * 10 + shape[1]).to(tl.float32)
    tl.store(out_ptr + i, y, mask=mask)


@kernel
def fill_kernel(out_ptr, value, n, rounds, BLOCK: tl.constexpr):
    """Writes `value` last, after `rounds` of other values: slow enough to be overtaken."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    for r in range(rounds):
        tl.store(out_ptr + i, (value + rounds - r).to(tl.int32), mask=i < n)
    tl.store(out_ptr + i, value.to(tl.int32), mask=i < n)


@kernel
def half_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, tl.floor(x * 0.5 * 2.0) + x * 0.5)


@kernel
def matmul_kernel(a_ptr, b_ptr, out_ptr, N: tl.constexpr, K: tl.constexpr, STEP: tl.constexpr):
    r, c, k = tl.arange(0, N), tl.arange(0, N), tl.arange(0, STEP)
    total = tl.zeros((N, N), tl.float32)
    for start in range(0, K, STEP):
        a = tl.load(a_ptr + r[:, None] * K + start + k[None, :])
        b = tl.load(b_ptr + (start + k)[:, None] * N + c[None, :])
        total = tl.dot(a, b, total)
    tl.store(out_ptr + r[:, None] * N + c[None, :], total)


@pytest.fixture(scope="module")
def gpu(device: str) -> CudaDevice:
    found = get(device)
    assert isinstance(found, CudaDevice)
    return found


def build(gpu: CudaDevice, fn: KernelFunction, types: dict[str, object], **constants: object) -> Artifact:
    options = Options(num_warps=8, num_stages=4)
    return compile_job(Job(fn, tuple(types.items()), tuple(constants.items()), options, frozenset(), gpu.target))


def upload(gpu: CudaDevice, array: np.ndarray[Any, Any]) -> Any:
    buffer = gpu.allocate(array.nbytes)
    gpu.copy_from_host(buffer.ptr, memoryview(np.ascontiguousarray(array)).cast("B"))
    return buffer


def download(gpu: CudaDevice, buffer: Any, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    array = np.empty(shape, dtype)
    gpu.copy_to_host(memoryview(array).cast("B"), buffer.ptr)
    return array


SAXPY: dict[str, object] = {
    "x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i64", "a": "fp32", "b": "fp64", "flag": "i1", "shape": ("i64", "i64"),
}  # fmt: skip
FILL: dict[str, object] = {"out_ptr": "*i32", "value": "i64", "n": "i64", "rounds": "i32"}


def test_names(gpu: CudaDevice, device: str):
    assert get(gpu.name) is gpu
    assert get("cuda") is get("cuda:0")
    assert gpu.name in discover()
    assert gpu.target.arch.startswith("sm_")
    free, total = gpu.memory_info()
    assert 0 < free <= total
    with pytest.raises(DeviceError, match=r"no such GPU; got cuda:99; allowed: cpu, cuda:0"):
        get("cuda:99")


def test_copies(gpu: CudaDevice):
    rng = np.random.default_rng(0)
    for size in (0, 1, 1000, 4 << 20, (4 << 20) + 1, (67 << 20) + 3):
        data = rng.integers(0, 256, size, np.uint8)
        assert np.array_equal(download(gpu, upload(gpu, data), (size,), np.uint8), data)


@pytest.mark.parametrize("n", [1, 1000, 100_003])
def test_a_kernel_gets_its_arguments(gpu: CudaDevice, n: int):
    loaded = gpu.load(build(gpu, saxpy_kernel, SAXPY, BLOCK=BLOCK))
    x = np.random.default_rng(1).standard_normal(n).astype(np.float32)
    source, target = upload(gpu, x), gpu.allocate(4 * n)
    grid = (-(-n // BLOCK), 1, 1)
    gpu.launch(loaded, grid, (source.ptr, target.ptr, n, 2.5, 3.5, True, 4, 2))
    want = (x * np.float32(2.5) + np.float32(3.5)) + np.float32(42)
    assert np.array_equal(download(gpu, target, (n,), np.float32), want)
    gpu.launch(loaded, grid, (source.ptr, target.ptr, n, 2.5, 3.5, False, -1, 0))
    assert np.array_equal(download(gpu, target, (n,), np.float32), x - np.float32(10))


def test_denormals_are_kept(gpu: CudaDevice):
    loaded = gpu.load(build(gpu, half_kernel, {"x_ptr": "*fp32", "out_ptr": "*fp32"}, BLOCK=128))
    x = (np.arange(128, dtype=np.uint32) * 2 + (1 << 31)).view(np.float32)
    x[::2] = np.abs(x[::2])
    target = gpu.allocate(512)
    gpu.launch(loaded, (1, 1, 1), (upload(gpu, x).ptr, target.ptr))
    want = np.floor(x * np.float32(0.5) * np.float32(2)) + x * np.float32(0.5)
    assert np.array_equal(download(gpu, target, (128,), np.uint32), want.view(np.uint32))


def test_more_than_48_kilobytes_of_shared_memory(gpu: CudaDevice):
    types: dict[str, object] = {"a_ptr": "*fp16", "b_ptr": "*fp16", "out_ptr": "*fp32"}
    artifact = build(gpu, matmul_kernel, types, N=128, K=512, STEP=64)
    assert artifact.resources.shared_bytes > 48 << 10
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((128, 512), (512, 128)))
    target = gpu.allocate(4 * 128 * 128)
    left, right = upload(gpu, a), upload(gpu, b)
    gpu.launch(gpu.load(artifact), (1, 1, 1), (left.ptr, right.ptr, target.ptr))
    got = download(gpu, target, (128, 128), np.float32)
    assert np.array_equal(got, a.astype(np.float32) @ b.astype(np.float32))


def test_a_failed_launch_does_not_stick(gpu: CudaDevice):
    artifact = build(gpu, fill_kernel, FILL, BLOCK=BLOCK)
    loaded, target = gpu.load(artifact), gpu.allocate(4 * BLOCK)
    for grid in ((1, 70_000, 1), (1 << 31, 1, 1), (1 << 40, 1, 1)):
        with pytest.raises(LaunchError, match=r"fill_kernel.*grid"):
            gpu.launch(loaded, grid, (target.ptr, 7, BLOCK, 1))
    greedy = replace(artifact, key="greedy", resources=replace(artifact.resources, shared_bytes=1 << 20))
    with pytest.raises(LaunchError, match="shared memory"):
        gpu.load(greedy)
    with pytest.raises(DeviceError, match="loading kernel"):
        gpu.load(replace(artifact, key="damaged", binary=b"\x7fELF" + bytes(1000)))
    wide = gpu.load(replace(artifact, key="wide", options=Options(num_warps=64)))
    with pytest.raises(LaunchError, match="2048 threads"):
        gpu.launch(wide, (1, 1, 1), (target.ptr, 7, BLOCK, 1))
    gpu.launch(loaded, (1, 1, 1), (target.ptr, 7, BLOCK, 1))
    assert (download(gpu, target, (BLOCK,), np.int32) == 7).all()
    gpu.synchronize()


def test_out_of_memory(gpu: CudaDevice):
    free, _ = gpu.memory_info()
    held = gpu.allocate(64 << 20)
    with pytest.raises(OutOfMemoryError, match=r"bytes asked.*free; largest live tensors: .*67,108,864 bytes"):
        gpu.allocate(free + (1 << 30))
    with pytest.raises(OutOfMemoryError):
        gpu.allocate(1 << 60)
    assert (download(gpu, upload(gpu, np.ones(10, np.int32)), (10,), np.int32) == 1).all()
    half = gpu.allocate(free // 2)
    del half
    again = gpu.allocate(free // 4 * 3)
    assert again.nbytes > held.nbytes


def test_memory_comes_back(gpu: CudaDevice):
    gpu.trim()
    before, _ = gpu.memory_info()
    for size in (100, 5000, 1 << 20, 300 << 20):
        for _ in range(50):
            gpu.allocate(size)
    gpu.synchronize()
    assert abs(gpu.memory_info()[0] - before) < 64 << 20
    gpu.trim()


def test_streams_stay_in_order(gpu: CudaDevice):
    loaded, n = gpu.load(build(gpu, fill_kernel, FILL, BLOCK=BLOCK)), 64 * BLOCK
    target, stream = gpu.allocate(4 * n), gpu.new_stream()
    for value in range(20):
        gpu.launch(loaded, (64, 1, 1), (target.ptr, value, n, 2000))
        with gpu.stream(stream):
            gpu.launch(loaded, (64, 1, 1), (target.ptr, 100 + value, n, 1))
            assert gpu.current_stream == stream.handle
            assert (download(gpu, target, (n,), np.int32) == 100 + value).all()
            gpu.launch(loaded, (64, 1, 1), (target.ptr, 200 + value, n, 500))
        assert (download(gpu, target, (n,), np.int32) == 200 + value).all()
    stream.synchronize()


def test_threads_with_streams_of_their_own(gpu: CudaDevice):
    """Blocks go round between streams; a block taken too early would be written by two kernels at once."""
    loaded, n, wrong = gpu.load(build(gpu, fill_kernel, FILL, BLOCK=BLOCK)), 16 * BLOCK, []
    shared: list[Any] = []

    def work(number: int) -> None:
        with gpu.stream(gpu.new_stream()):
            for step in range(150):
                value = number * 1000 + step
                mine, other = gpu.allocate(4 * n), gpu.allocate(4 * n)
                gpu.launch(loaded, (16, 1, 1), (other.ptr, -1, n, 300))
                shared.append(other)  # dropped by whichever thread comes next
                gpu.launch(loaded, (16, 1, 1), (mine.ptr, value, n, 20))
                del other
                if len(shared) > 3:
                    shared.pop(0)
                if not (download(gpu, mine, (n,), np.int32) == value).all():
                    wrong.append(value)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    shared.clear()
    assert gpu._streams.plain


def test_pytorch_shares_the_default_stream_and_lends_its_own(gpu: CudaDevice):
    torch = pytest.importorskip("torch")
    loaded, n = gpu.load(build(gpu, fill_kernel, FILL, BLOCK=BLOCK)), 64 * BLOCK
    place = f"cuda:{gpu.name.split(':')[1]}"
    theirs = torch.zeros(n, dtype=torch.int32, device=place)
    gpu.launch(loaded, (64, 1, 1), (theirs.data_ptr(), 7, n, 3000))
    assert bool((theirs + 1 == 8).all())
    side = torch.cuda.Stream(place)
    with torch.cuda.stream(side), gpu.stream(side):
        assert gpu.current_stream == side.cuda_stream
        gpu.launch(loaded, (64, 1, 1), (theirs.data_ptr(), 9, n, 3000))
        assert bool((theirs == 9).all())
    gpu.launch(loaded, (64, 1, 1), (theirs.data_ptr(), 11, n, 3000))
    gpu.hand_over(side)
    with torch.cuda.stream(side):
        assert bool((theirs == 11).all())


def run(program: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": f"{root.parent / 'src'}:{root}"}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)


_FORK = """
import os, sys
import nbxtensor
from nbxtensor.device import get
pid = os.fork()
if pid == 0:
    get({device!r}).allocate(10)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0, "a fork before the first use must work"
gpu = get({device!r})
block = gpu.allocate(10)
pid = os.fork()
if pid == 0:
    try:
        gpu.allocate(10)
    except Exception as error:
        os._exit(0 if "forked" in str(error) else 1)
    os._exit(2)
assert os.waitpid(pid, 0)[1] == 0, "a fork after it must be told"
gpu.allocate(10)
print("fine")
"""


def test_forks(gpu: CudaDevice, device: str):
    done = run(_FORK.format(device=device))
    assert done.stdout == "fine\n", done.stderr


_FAULT = """
from test_cuda_device import FILL, build, fill_kernel
from nbxtensor.device import get
gpu = get({device!r})
kernel = gpu.load(build(gpu, fill_kernel, FILL, BLOCK=1024))
gpu.launch(kernel, (1, 1, 1), (64, 7, 1024, 1))
for attempt in (gpu.synchronize, lambda: gpu.launch(kernel, (1, 1, 1), (64, 7, 1024, 1))):
    try:
        attempt()
    except Exception as error:
        print(type(error).__name__, "start a new one" in str(error))
"""


def test_an_illegal_address_is_explained(gpu: CudaDevice, device: str):
    done = run(_FAULT.format(device=device))
    assert done.stdout.splitlines() == ["LaunchError True"] * 2, done.stdout + done.stderr


def test_the_second_gpu(gpu: CudaDevice):
    if "cuda:1" not in discover():
        pytest.skip("needs two GPUs")
    other = get("cuda:1")
    assert isinstance(other, CudaDevice)
    loaded = [g.load(build(g, fill_kernel, FILL, BLOCK=BLOCK)) for g in (gpu, other)]
    blocks = [g.allocate(4 * BLOCK) for g in (gpu, other)]
    for g, k, b, value in zip((gpu, other), loaded, blocks, (3, 4), strict=True):
        g.launch(k, (1, 1, 1), (b.ptr, value, BLOCK, 1))
    assert (download(gpu, blocks[0], (BLOCK,), np.int32) == 3).all()
    assert (download(other, blocks[1], (BLOCK,), np.int32) == 4).all()


def best(function: Any, count: int = 2000) -> float:
    found = 1.0
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(count):
            function()
        found = min(found, (time.perf_counter() - start) / count)
    return found * 1e6


def test_host_time(gpu: CudaDevice, capsys: pytest.CaptureFixture[str]):
    """Microseconds of host time; the limits leave room for a slow host."""
    loaded = gpu.load(build(gpu, fill_kernel, FILL, BLOCK=BLOCK))
    target = gpu.allocate(4 * BLOCK)
    arguments = (target.ptr, 7, BLOCK, 1)

    def launch() -> None:
        gpu.launch(loaded, (1, 1, 1), arguments)

    times = {"launch": best(launch, 500), "allocate and free": best(lambda: gpu.allocate(1000))}
    gpu.synchronize()
    with capsys.disabled():
        print(f"\n{gpu.name}: " + ", ".join(f"{name} {value:.2f} us" for name, value in times.items()))
    assert times["allocate and free"] < 3
    assert times["launch"] < 10
