"""Memory, names, levels and profiles of the CPU device."""

import ctypes
import threading

import numpy as np
import pytest

from nbxtensor.base.errors import ArgumentError, DeviceError, OutOfMemoryError
from nbxtensor.device import discover, get
from nbxtensor.device.cpu_level import LEVELS, choose_level, supported_levels
from nbxtensor.device.cpu_memory import Allocator, block_size
from nbxtensor.device.profile import known_profiles, load_profile


@pytest.fixture
def cpu():
    device = get("cpu")
    before = device.pool.threads
    yield device
    device.pool.set_threads(before)


@pytest.mark.parametrize("nbytes", [0, 1, 64, 65, 1000, 1 << 20, (1 << 20) + 1, 9 << 20])
def test_buffers_are_aligned_and_writable(cpu, nbytes):
    buffer = cpu.allocate(nbytes)
    assert buffer.nbytes == nbytes
    assert buffer.ptr
    assert buffer.ptr % 64 == 0
    ctypes.memset(buffer.ptr, 1, nbytes)


def test_block_sizes():
    for n in [0, 1, 63, 64, 65, 255, 256, 257, 1000, 4097, (1 << 30) - 1, (1 << 30) + 1]:
        size = block_size(n)
        assert size >= n
        assert size % 64 == 0
        assert size <= max(64, n * 1.25 + 64)
        assert block_size(size) == size


@pytest.mark.parametrize("nbytes", [1 << 15, 262_144, 9 << 20])
def test_blocks_made_together_start_at_different_places_of_their_pages(nbytes):
    allocator = Allocator()
    held = [allocator.allocate(nbytes) for _ in range(9)]
    places = [buffer.ptr % 4096 for buffer in held]
    for i, place in enumerate(places):
        assert held[i].ptr % 64 == 0
        for other in (0, *places[max(i - 6, 0) : i]):
            assert 512 <= (place - other) % 4096 <= 4096 - 512
    for buffer in held:
        ctypes.memset(buffer.ptr, 1, nbytes)
    del buffer, held
    allocator.trim()
    assert allocator.kept_bytes == 0


def test_freed_blocks_are_used_again_up_to_a_bound():
    allocator = Allocator(kept=4 << 20)
    first = allocator.allocate(1_000_000)
    ptr = first.ptr
    del first
    assert allocator.kept_bytes == block_size(1_000_000)
    again = allocator.allocate(999_999)
    assert again.ptr == ptr
    assert allocator.kept_bytes == 0
    held = [allocator.allocate(1_000_000) for _ in range(10)]
    held.clear()
    assert 0 < allocator.kept_bytes <= 4 << 20
    big = allocator.allocate(8 << 20)
    del big
    assert allocator.kept_bytes <= 4 << 20
    held = [allocator.allocate(100_000) for _ in range(1000)]
    held.clear()
    assert allocator.kept_bytes <= 8 << 20
    allocator.trim()
    assert allocator.kept_bytes == 0


def test_blocks_in_use_never_overlap():
    allocator = Allocator(kept=1 << 22)
    faults: list[int] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        held = []
        for step in range(600):
            buffer = allocator.allocate(int(rng.integers(1, 40_000)))
            view = np.ctypeslib.as_array((ctypes.c_uint8 * buffer.nbytes).from_address(buffer.ptr))
            mark = (seed * 31 + step) % 251
            view[:] = mark
            held.append((buffer, view, mark))
            if len(held) > 20:
                _, old, expected = held.pop(int(rng.integers(len(held))))
                faults.extend([seed] * int((old != expected).any()))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults


@pytest.mark.parametrize("nbytes", [1 << 45, 1 << 62, 1 << 70])
def test_out_of_memory_names_the_bytes(cpu, nbytes):
    said = rf"{nbytes:,} bytes asked, [\d,]+ of [\d,]+ free; largest live tensors: "
    with pytest.raises(OutOfMemoryError, match=said):
        cpu.allocate(nbytes)
    assert cpu.allocate(100).ptr


def test_memory_info(cpu):
    free, total = cpu.memory_info()
    assert 0 < free <= total


def test_copies_to_and_from_the_host(cpu):
    source = np.arange(1000, dtype=np.int16)
    buffer = cpu.allocate(source.nbytes)
    frozen = source.copy()
    frozen.flags.writeable = False
    cpu.copy_from_host(buffer.ptr, memoryview(frozen))
    back = np.empty_like(source)
    cpu.copy_to_host(memoryview(back), buffer.ptr)
    assert (back == source).all()
    cpu.copy_from_host(buffer.ptr, memoryview(b""))
    cpu.copy_to_host(memoryview(bytearray()), buffer.ptr)
    with pytest.raises(ArgumentError, match="read-only"):
        cpu.copy_to_host(memoryview(frozen), buffer.ptr)


def test_registry():
    assert get("cpu") is get("cpu")
    assert discover()[0] == "cpu"
    for name in ("gpu", "cpu:0", "cuda:x", "null:vax", ""):
        with pytest.raises(DeviceError, match="allowed: cpu, cuda"):
            get(name)


def test_levels():
    everything = frozenset().union(*LEVELS.values())
    assert supported_levels(everything) == ("x86-64-v3", "x86-64-v4")
    assert supported_levels(LEVELS["x86-64-v3"]) == ("x86-64-v3",)
    assert supported_levels(everything - {"avx2"}) == ()
    assert supported_levels(everything - {"avx512vl"}) == ("x86-64-v3",)


def test_level_that_the_machine_lacks(monkeypatch):
    monkeypatch.setattr("nbxtensor.device.cpu_level.cpu_flags", lambda: LEVELS["x86-64-v3"])
    assert choose_level() == "x86-64-v3"
    with pytest.raises(DeviceError, match="got x86-64-v4; allowed: x86-64-v3"):
        choose_level("x86-64-v4")
    monkeypatch.setattr("nbxtensor.device.cpu_level.cpu_flags", lambda: frozenset(("sse2", "avx")))
    with pytest.raises(DeviceError, match=r"older than x86-64-v3; got one without abm, avx2"):
        choose_level()
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(DeviceError, match="got riscv64"):
        choose_level()


def test_profiles():
    assert {"x86-64-v3", "x86-64-v4", "sm_80", "sm_90"} <= set(known_profiles())
    for arch in known_profiles():
        profile = load_profile(arch)
        assert profile.arch == arch
        assert "float32" in profile.dtypes
    assert get("cpu").profile.warp_size == 1
    with pytest.raises(DeviceError, match="got sm_1"):
        load_profile("sm_1")
