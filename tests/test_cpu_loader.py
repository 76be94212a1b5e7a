"""Objects from llvmlite on their way into executable memory."""

import ctypes
import gc
import struct
import time
from pathlib import Path

import numpy as np
import pytest

from cpu_kernels import COUNT, SIGNATURE, artifact, compile_ir, llvm
from nbxtensor.base.errors import DeviceError
from nbxtensor.device import get
from nbxtensor.device.artifact import Target
from nbxtensor.device.elf import ElfObject


@pytest.fixture
def cpu():
    device = get("cpu")
    before = device.pool.threads
    yield device
    device.pool.set_threads(before)


def test_load_is_fast(cpu):
    made = artifact(compile_ir(COUNT), "count", "*i64", "i64")
    best = min(_timed(lambda: cpu.load(made)) for _ in range(20))
    assert best < 2e-3


def _timed(call) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


@pytest.mark.parametrize("attribute", ["", "nonlazybind"])
def test_constants_and_libc_calls(cpu, attribute):
    """A constant table, a jump table and calls to memcpy, memset and memmove all resolve."""
    cases = "".join(f"c{i}:\n  br label %out\n" for i in range(8))
    text = f"""
@table = private constant [8 x i64] [i64 11, i64 22, i64 33, i64 44, i64 55, i64 66, i64 77, i64 88], align 64
declare ptr @memcpy(ptr, ptr, i64) {attribute}
declare ptr @memset(ptr, i32, i64) {attribute}
declare ptr @memmove(ptr, ptr, i64) {attribute}
define void @k({SIGNATURE}) {{
  %p = load i64, ptr %args
  %ptr = inttoptr i64 %p to ptr
  %1 = call ptr @memcpy(ptr %ptr, ptr @table, i64 64)
  %tail = getelementptr i8, ptr %ptr, i64 8
  %2 = call ptr @memmove(ptr %tail, ptr %ptr, i64 24)
  %last = getelementptr i8, ptr %ptr, i64 56
  %3 = call ptr @memset(ptr %last, i32 1, i64 8)
  switch i64 %gx, label %out [{" ".join(f"i64 {i + 1}, label %c{i}" for i in range(8))}]
{cases}
out:
  %v = phi i64 [ -1, %0 ], {", ".join(f"[ {(i * 7919) % 101}, %c{i} ]" for i in range(8))}
  %spot = getelementptr i64, ptr %ptr, i64 6
  store i64 %v, ptr %spot
  ret void
}}
"""
    loaded = cpu.load(artifact(compile_ir(text), "k", "*i64"))
    out = np.zeros(8, np.int64)
    cpu.launch(loaded, (3, 1, 1), (out.ctypes.data,))
    assert out.tolist() == [11, 11, 22, 33, 55, 66, 2 * 7919 % 101, 0x0101010101010101]


def test_the_pages_are_never_writable_and_executable(cpu):
    loaded = cpu.load(artifact(compile_ir(COUNT), "count", "*i64", "i64"))
    addresses = [loaded.address, ctypes.cast(cpu.pool.call, ctypes.c_void_p).value]
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, rights, *_ = line.split()
        begin, end = (int(part, 16) for part in span.split("-"))
        if any(begin <= a < end for a in addresses):
            assert rights.startswith("r-x")
            addresses = [a for a in addresses if not begin <= a < end]
    assert not addresses


def test_the_pages_go_with_the_kernel(cpu):
    binary = artifact(compile_ir(COUNT), "count", "*i64", "i64")

    def executable_bytes() -> int:
        gc.collect()
        lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
        spans = [words[0].split("-") for words in lines if words[1] == "r-xp" and len(words) == 5]
        return sum(int(end, 16) - int(begin, 16) for begin, end in spans)

    before = executable_bytes()
    held = [cpu.load(binary) for _ in range(200)]
    assert executable_bytes() >= before + 200 * 4096
    held.clear()
    assert executable_bytes() <= before


def test_unsupported_relocation_is_named(cpu):
    """Code that is not position independent holds 32-bit addresses, which cannot reach our pages."""
    llvm.initialize_native_asmparser()
    text = r'module asm ".globl k; k: movq table(,%rdi,8), %rax; ret; .section .rodata; table: .quad 1"'
    with pytest.raises(DeviceError, match="unsupported kind; got R_X86_64 number 11"):
        cpu.load(artifact(compile_ir(text), "k"))


def test_unknown_function_is_named(cpu):
    text = f"declare void @puts(ptr)\ndefine void @k({SIGNATURE}) {{\n call void @puts(ptr %args)\n ret void\n}}"
    with pytest.raises(DeviceError, match="unknown function; got puts"):
        cpu.load(artifact(compile_ir(text), "k"))


def test_unknown_symbol_is_named(cpu):
    with pytest.raises(DeviceError, match="does not define the kernel; got nothing"):
        cpu.load(artifact(compile_ir(COUNT), "nothing"))


def test_writable_data_is_refused(cpu):
    text = f"@g = global i64 5\ndefine void @k({SIGNATURE}) {{\n store i64 %gx, ptr @g\n ret void\n}}"
    with pytest.raises(DeviceError, match=r"writable data; got \.(data|bss)"):
        cpu.load(artifact(compile_ir(text), "k"))


def test_damaged_objects_are_refused():
    whole = compile_ir(COUNT)
    for size in [*range(0, len(whole) - 64, 7), len(whole) - 64, len(whole) - 1]:
        with pytest.raises(DeviceError):
            ElfObject(whole[:size]).link({}).place(0)


def test_random_damage_gives_our_error_or_none():
    whole = compile_ir(COUNT)
    rng = np.random.default_rng(5)
    refused = 0
    for _ in range(3000):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] = rng.integers(256)
        try:
            image = ElfObject(bytes(damaged)).link({})
            image.offset("count")
            image.place(1 << 40)
        except DeviceError:
            refused += 1
    assert refused > 100


def test_wrong_machine_and_kind():
    whole = bytearray(compile_ir(COUNT))
    struct.pack_into("<H", whole, 18, 183)
    with pytest.raises(DeviceError, match="machine 183"):
        ElfObject(bytes(whole))
    with pytest.raises(DeviceError, match="not a little-endian"):
        ElfObject(b"MZ\x90\x00\x03\x00")


def test_a_kernel_for_another_target_is_refused(cpu):
    with pytest.raises(DeviceError, match="another target; got sm_90"):
        cpu.load(artifact(compile_ir(COUNT), "count", target=Target("cuda", "sm_90")))


def test_too_much_stack_is_refused(cpu):
    with pytest.raises(DeviceError, match="too much stack"):
        cpu.load(artifact(compile_ir(COUNT), "count", stack=1 << 30))


def test_unknown_argument_type_is_refused(cpu):
    with pytest.raises(DeviceError, match="cannot be passed; got fp8"):
        cpu.load(artifact(compile_ir(COUNT), "count", "fp8"))
