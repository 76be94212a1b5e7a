"""The CUDA device's own logic, on a driver that keeps account instead of computing. No GPU is needed."""

import gc
import os
import queue
import random
import struct
import threading
from collections.abc import Callable

import numpy as np
import pytest

from fake_cuda import SIGNATURE, CUresult, FakeDriver, Missing
from nbxtensor.base.errors import ArgumentError, DeviceError, LaunchError, OutOfMemoryError
from nbxtensor.device import cuda as cuda_module
from nbxtensor.device import cuda_driver
from nbxtensor.device.artifact import Artifact, Options, Resources, Target
from nbxtensor.device.cuda import CudaDevice, argument_layout, profile_of
from nbxtensor.device.cuda_memory import block_size


def make(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, ordinal: int = 0) -> CudaDevice:
    monkeypatch.setattr(cuda_module, "open_driver", lambda: driver)
    return CudaDevice(ordinal)


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver()


@pytest.fixture
def gpu(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> CudaDevice:
    return make(driver, monkeypatch)


def artifact(signature: tuple[str, ...] = tuple(SIGNATURE), shared: int = 0, arch: str = "sm_90") -> Artifact:
    key = f"{signature}{shared}{arch}"
    resources = Resources(32, 0, shared)
    return Artifact(key, Target("cuda", arch), "some_kernel", signature, {}, Options(8), resources, "t", b"\x7fELF")


def test_facts(gpu: CudaDevice):
    assert gpu.name == "cuda:0"
    assert gpu.target == Target("cuda", "sm_90")
    assert gpu.profile.shared_bytes == 232448
    assert (gpu.computes, gpu.host_accessible) == (True, False)
    assert gpu.memory_info() == (1 << 30, 1 << 30)
    assert gpu.current_stream == 1


def test_profiles_of_architectures_without_one_of_their_own():
    assert profile_of(8, 7).arch == "sm_87"
    assert profile_of(8, 7).shared_bytes == profile_of(8, 6).shared_bytes
    assert profile_of(10, 3).shared_bytes == profile_of(10, 0).shared_bytes
    assert profile_of(8, 0).shared_bytes == 166912
    with pytest.raises(DeviceError, match="sm_90"):
        profile_of(6, 1)


def test_copies_of_all_sizes(gpu: CudaDevice):
    rng = np.random.default_rng(0)
    for size in (0, 1, 1000, 4 << 20, (4 << 20) + 1, (37 << 20) + 5):
        data = rng.integers(0, 256, size, dtype=np.uint8)
        buffer = gpu.allocate(size)
        gpu.copy_from_host(buffer.ptr, data.data)
        back = np.zeros_like(data)
        gpu.copy_to_host(back.data, buffer.ptr)
        assert np.array_equal(back, data)
    with pytest.raises(ArgumentError, match="read-only"):
        gpu.copy_to_host(memoryview(b"abc"), buffer.ptr)
    with pytest.raises(ArgumentError, match="contiguous"):
        gpu.copy_from_host(buffer.ptr, np.zeros(10, np.uint8)[::2].data)


def test_a_launch_packs_its_arguments_as_c_does(gpu: CudaDevice, driver: FakeDriver):
    kernel = gpu.load(artifact(("*fp32", "i1", "i64", "i8", "fp32", "i16", "fp64", "i32", "u64"), shared=100_000))
    assert driver.attributes["shared"] == 100_000
    gpu.launch(kernel, (3, 2, 1), (1 << 40, True, -5, -6, 1.5, -7, 2.5, -8, 2**64 - 1), 100)
    seen = driver.launches[-1]
    assert struct.unpack("Q?qbfhdiQQQ", seen["packed"]) == (1 << 40, 1, -5, -6, 1.5, -7, 2.5, -8, 2**64 - 1, 0, 0)
    assert (seen["grid"], seen["threads"], seen["shared"], seen["stream"]) == ((3, 2, 1), 256, 100_000, 1)
    assert gpu.load(artifact(shared=1)) is gpu.load(artifact(shared=1))
    before = len(driver.launches)
    gpu.launch(kernel, (3, 0, 1), (0,) * 9)
    assert len(driver.launches) == before


def test_values_that_do_not_fit(gpu: CudaDevice, driver: FakeDriver):
    kernel = gpu.load(artifact(("fp32", "i32")))
    gpu.launch(kernel, (1, 1, 1), (1e39, 1))
    assert struct.unpack("fiPP", driver.launches[-1]["packed"])[0] == float("inf")
    with pytest.raises(ArgumentError, match=r"does not fit; got 2147483648; allowed: i32"):
        gpu.launch(kernel, (1, 1, 1), (1.0, 1 << 31))
    with pytest.raises(ArgumentError, match="takes 2 arguments; got 3"):
        gpu.launch(kernel, (1, 1, 1), (1.0, 1, 1))
    with pytest.raises(DeviceError, match="fp8"):
        argument_layout(("fp8",))
    with pytest.raises(DeviceError, match="too many"):
        argument_layout(("i64",) * 600)


def test_a_failed_launch_is_explained_and_does_not_stick(gpu: CudaDevice, driver: FakeDriver):
    kernel = gpu.load(artifact())
    driver.next_status = CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
    with pytest.raises(LaunchError, match=r"some_kernel.*LAUNCH_OUT_OF_RESOURCES.*256 threads of 32 registers"):
        gpu.launch(kernel, (1, 1, 1), (0, 0))
    with pytest.raises(LaunchError, match=r"INVALID_VALUE.*\(1099511627776, 1, 1\)"):
        gpu.launch(kernel, (1 << 40, 1, 1), (0, 0))
    gpu.launch(kernel, (1, 1, 1), (0, 0))
    with pytest.raises(LaunchError, match="shared memory.*232448"):
        gpu.load(artifact(shared=300_000))
    with pytest.raises(DeviceError, match=r"another target; got sm_80; allowed: sm_90"):
        gpu.load(artifact(arch="sm_80"))


def test_a_fatal_error_says_that_it_sticks(gpu: CudaDevice, driver: FakeDriver):
    driver.next_status = CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(LaunchError, match=r"ILLEGAL_ADDRESS.*start a new one"):
        gpu.synchronize()


def test_block_sizes():
    assert [block_size(n) for n in (0, 1, 512, 513, 1 << 20)] == [512, 512, 512, 1024, 1 << 20]
    for nbytes in (*range(1, 5000, 77), *(int(1.37**k) for k in range(45, 90))):
        size = block_size(nbytes)
        assert nbytes <= size <= max(nbytes + 511, nbytes * 9 // 8 + 1)
        assert size % 512 == 0
        assert block_size(size) == size


def test_small_blocks_are_reused_without_the_driver(gpu: CudaDevice, driver: FakeDriver):
    first = gpu.allocate(1000)
    ptr = first.ptr
    del first
    made = driver.driver_allocations
    for _ in range(100):
        assert gpu.allocate(900).ptr == ptr
    assert driver.driver_allocations == made
    a, b = gpu.allocate(1000), gpu.allocate(1000)
    assert a.ptr != b.ptr


def test_what_is_kept_is_bounded_and_trimmed(gpu: CudaDevice, driver: FakeDriver):
    many = [gpu.allocate(1 << 20) for _ in range(100)]
    del many
    assert driver.used <= 16 << 20
    assert gpu.memory_info()[0] == 1 << 30
    huge = gpu.allocate(100 << 20)
    del huge
    assert driver.used <= 16 << 20
    gpu.trim()
    assert driver.used == driver.reserved == 0


def test_out_of_memory_frees_what_is_kept_first(gpu: CudaDevice, driver: FakeDriver):
    driver.memory = 40 << 20
    blocks = [gpu.allocate(1 << 20) for _ in range(16)]
    del blocks
    assert driver.used == 16 << 20
    whole = gpu.allocate(36 << 20)
    assert whole.nbytes == 36 << 20


class FakeTensor:
    def __init__(self, buffer: object, shape: tuple[int, ...], dtype: str) -> None:
        self.buffer, self.shape, self.dtype = buffer, shape, dtype


def test_out_of_memory_says_what_there_is(gpu: CudaDevice, driver: FakeDriver):
    driver.memory = 40 << 20
    held = FakeTensor(gpu.allocate(24 << 20), (6, 1 << 20), "float32")
    other = gpu.allocate(8 << 20)
    with pytest.raises(OutOfMemoryError) as caught:
        gpu.allocate(32 << 20)
    text = str(caught.value)
    assert "33,554,432 bytes asked, 8,388,608 of 41,943,040 free" in text
    assert "25,165,824 bytes (float32 (6, 1048576)), 8,388,608 bytes" in text
    del held, other
    assert gpu.allocate(32 << 20).nbytes == 32 << 20


def test_streams_are_ordered_on_entry_and_exit(gpu: CudaDevice, driver: FakeDriver):
    kernel, buffer = gpu.load(artifact()), gpu.allocate(10)
    stream = gpu.new_stream()
    gpu.launch(kernel, (1, 1, 1), (buffer.ptr, 1))
    with gpu.stream(stream):
        assert gpu.current_stream == stream.handle
        gpu.launch(kernel, (1, 1, 1), (buffer.ptr, 2))
        with gpu.stream(1):
            gpu.launch(kernel, (1, 1, 1), (buffer.ptr, 3))
        gpu.launch(kernel, (1, 1, 1), (buffer.ptr, 4))
    gpu.launch(kernel, (1, 1, 1), (buffer.ptr, 5))
    assert [launch["stream"] for launch in driver.launches] == [1, stream.handle, 1, stream.handle, 1]
    assert driver.problems == []
    with pytest.raises(RuntimeError), gpu.stream(stream):
        raise RuntimeError
    assert gpu.current_stream == 1


class Torch:
    cuda_stream = 77


class CuPy:
    ptr = 0


class Core:
    def __cuda_stream__(self):
        return 0, 99


def test_streams_of_other_libraries(gpu: CudaDevice):
    for stream, handle in ((Torch(), 77), (CuPy(), 1), (Core(), 99), (55, 55), (0, 1)):
        with gpu.stream(stream):
            assert gpu.current_stream == handle
    for bad in ("s", True, -1, None, object()):
        with pytest.raises(ArgumentError, match="not a CUDA stream"), gpu.stream(bad):
            pass


def test_hand_over_orders_a_consumer_behind_the_current_stream(gpu: CudaDevice, driver: FakeDriver):
    kernel, buffer = gpu.load(artifact()), gpu.allocate(10)
    gpu.launch(kernel, (1, 1, 1), (buffer.ptr, 1))
    gpu.hand_over(Torch())
    driver._use(buffer.ptr, 2, 77)
    assert driver.problems == []
    gpu.launch(kernel, (1, 1, 1), (buffer.ptr, 3))
    assert len(driver.problems) == 1, "the account must be able to find a fault"


class Hand(threading.Thread):
    """A thread that does one thing at a time, when told."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._todo: queue.Queue[Callable[[], object] | None] = queue.Queue()
        self._done: queue.Queue[object] = queue.Queue()
        self.contexts: list[object] = []
        self.start()

    def run(self) -> None:
        while (task := self._todo.get()) is not None:
            try:
                self._done.put(task())
            except BaseException as error:
                self._done.put(error)

    def do(self, task: Callable[[], object] | None) -> object:
        self._todo.put(task)
        if task is None:
            return self.join()
        result = self._done.get()
        if isinstance(result, BaseException):
            raise result
        return result


@pytest.mark.parametrize("seed", range(6))
def test_memory_is_reused_in_stream_order_whatever_threads_do(gpu: CudaDevice, driver: FakeDriver, seed: int):
    """Threads enter and leave streams, use blocks of their own, and drop blocks of anyone."""
    rng = random.Random(seed)
    kernel = gpu.load(artifact())
    hands = [Hand() for _ in range(3)]
    streams = [gpu.new_stream() for _ in range(2)]
    owned: list[list[tuple[object, int]]] = [[] for _ in hands]
    purposes = iter(range(1 << 30))

    def enter(hand: Hand) -> None:
        context = gpu.stream(rng.choice(streams))
        context.__enter__()
        hand.contexts.append(context)

    def use(block: tuple[object, int]) -> None:
        gpu.launch(kernel, (1, 1, 1), (block[0].ptr, block[1]))

    reused = 0
    for _ in range(3000):
        index = rng.randrange(len(hands))
        hand, mine = hands[index], owned[index]
        choice = rng.random()
        if choice < 0.15 and len(hand.contexts) < 3:
            hand.do(lambda hand=hand: enter(hand))
        elif choice < 0.28 and hand.contexts:
            hand.do(lambda hand=hand: hand.contexts.pop().__exit__(None, None, None))
        elif choice < 0.5:
            made = driver.driver_allocations
            mine.append((hand.do(lambda: gpu.allocate(100)), next(purposes)))
            reused += driver.driver_allocations == made
        elif choice < 0.75 and mine:
            hand.do(lambda mine=mine: use(rng.choice(mine)))
        else:
            theirs = rng.choice(owned)
            if theirs:
                at = rng.randrange(len(theirs))
                hand.do(lambda theirs=theirs, at=at: theirs.pop(at) and None)
    for hand in hands:
        while hand.contexts:
            hand.do(lambda hand=hand: hand.contexts.pop().__exit__(None, None, None))
        hand.do(None)
    assert driver.problems == []
    assert reused > 100
    assert gpu._streams.plain
    for mine in owned:
        mine.clear()
    gpu.trim()
    assert driver.used == 0


def test_blocks_of_a_stream_that_was_left_go_to_the_one_that_waited_for_it(gpu: CudaDevice, driver: FakeDriver):
    kernel, elsewhere = gpu.load(artifact()), Hand()

    def use(purpose: int) -> int:
        buffer = gpu.allocate(100)
        gpu.launch(kernel, (1, 1, 1), (buffer.ptr, purpose))
        return buffer.ptr

    with gpu.stream(gpu.new_stream()):
        with gpu.stream(gpu.new_stream()):
            ptr = use(1)
        assert elsewhere.do(lambda: use(2)) != ptr
        assert use(3) == ptr
    assert use(4) in driver.blocks
    elsewhere.do(None)
    assert driver.problems == []


def test_several_gpus_leave_the_current_one_alone(monkeypatch: pytest.MonkeyPatch):
    driver = FakeDriver(gpus=2)
    one = make(driver, monkeypatch, 1)
    driver.contexts = [100]
    kernel, buffer = one.load(artifact()), one.allocate(10)
    with one.stream(one.new_stream()):
        one.launch(kernel, (1, 1, 1), (buffer.ptr, 1))
    one.synchronize()
    del buffer
    one.trim()
    assert driver.launches[-1]["context"] == 101
    assert driver.contexts == [100]
    with pytest.raises(DeviceError, match=r"no such GPU; got cuda:2; allowed: cpu, cuda:0, cuda:1"):
        make(driver, monkeypatch, 2)


def test_a_forked_process_is_told(gpu: CudaDevice, driver: FakeDriver):
    kernel, buffer = gpu.load(artifact()), gpu.allocate(10)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        told = 0
        for attempt in (
            lambda: gpu.allocate(10),
            lambda: gpu.launch(kernel, (1, 1, 1), (0, 0)),
            lambda: gpu.copy_from_host(buffer.ptr, memoryview(b"abc")),
            lambda: gpu.copy_to_host(memoryview(bytearray(3)), buffer.ptr),
            gpu.synchronize,
            gpu.memory_info,
            gpu.new_stream,
            lambda: gpu.current_stream,
            lambda: gpu.load(artifact(shared=5)),
        ):
            try:
                attempt()
            except DeviceError as error:
                told += "forked" in str(error)
            except BaseException:
                pass
        used = driver.used
        del buffer
        gc.collect()
        os.write(write, bytes([told, driver.used == used]))
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 2) == bytes([9, 1])
    os.close(read)
    os.close(write)
    gpu.launch(kernel, (1, 1, 1), (buffer.ptr, 0))


@pytest.mark.parametrize(
    ("driver", "words"),
    [
        (Missing(100), "sees no GPU.*CUDA_VISIBLE_DEVICES.*device 'cpu'"),
        (Missing(0, 11040), "too old; got CUDA 11; allowed: 12 or newer; update the driver"),
        (Missing(803), "too old"),
        (Missing(999), "did not start: CUDA_ERROR_UNKNOWN"),
        (Missing(0, error=RuntimeError("libcuda")), "no NVIDIA driver was found"),
    ],
)
def test_no_gpu_is_explained(monkeypatch: pytest.MonkeyPatch, driver: Missing, words: str):
    cuda_driver._initialised.cache_clear()
    monkeypatch.setattr(cuda_driver, "_bindings", lambda: driver)
    with pytest.raises(DeviceError, match=words):
        CudaDevice(0)
    assert cuda_module.discover() == []
    cuda_driver._initialised.cache_clear()


def test_a_missing_package_is_explained(monkeypatch: pytest.MonkeyPatch):
    cuda_driver._initialised.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "cuda.bindings.driver", None)
    with pytest.raises(DeviceError, match=r"install nbxtensor\[cuda\]"):
        CudaDevice(0)
    cuda_driver._initialised.cache_clear()
