"""The CUDA memory pool, on a driver that keeps account of what ran when. No GPU is needed."""

import queue
import random
import threading
from collections.abc import Callable

import pytest

from fake_cuda import FakeDriver, artifact
from nbxtensor.base.errors import OutOfMemoryError
from nbxtensor.device import cuda as cuda_module
from nbxtensor.device.cuda import CudaDevice
from nbxtensor.device.cuda_memory import block_size


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver()


@pytest.fixture
def gpu(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> CudaDevice:
    monkeypatch.setattr(cuda_module, "open_driver", lambda: driver)
    return CudaDevice(0)


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
