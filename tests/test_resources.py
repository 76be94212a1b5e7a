"""What is read from a cubin, against the tool that comes with Triton; and the layout of kernel arguments."""

import re
import struct
import subprocess
from pathlib import Path

import pytest

from compile_kernels import spilling_kernel
from nbxtensor.base.errors import CompileError
from nbxtensor.compiler.compile import compile_fresh
from nbxtensor.compiler.jobs import Job
from nbxtensor.compiler.resources import cubin_parameters, cubin_usage
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.device.artifact import Artifact, Options, Target
from nbxtensor.device.cuda import argument_layout


@kernel
def small_kernel(x_ptr, flag, a, b, c, d, e, f):
    v = tl.load(x_ptr) + d + e.to(tl.float32)
    tl.store(x_ptr, tl.where(flag, v, v + (a + b + c + f).to(tl.float32)))


@kernel
def divide_kernel(x_ptr):
    i = tl.arange(0, 128)
    v = tl.load(x_ptr + i)
    tl.store(x_ptr + i, tl.cumsum(v, axis=0) / v)


MIXED = ("*fp32", "i1", "i64", "i8", "i16", "fp32", "fp64", "i32")


def build(arch: str, name: str) -> Artifact:
    if name == "small":
        names = ("x_ptr", "flag", "a", "b", "c", "d", "e", "f")
        job = Job(small_kernel, tuple(zip(names, MIXED, strict=True)), (), Options(), frozenset(), Target("cuda", arch))
    elif name == "spilling":
        sig = (("x_ptr", "*fp32"),)
        job = Job(spilling_kernel, sig, (("N", 8192),), Options(num_warps=1), frozenset(), Target("cuda", arch))
    else:
        job = Job(divide_kernel, (("x_ptr", "*fp64"),), (), Options(), frozenset(), Target("cuda", arch))
    return compile_fresh(job)


def tool_usage(binary: bytes, place: Path) -> tuple[int, int, int]:
    import triton

    place.write_bytes(binary)
    command = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(place)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)", text[text.index("Function") :])
    assert found, text
    return int(found[1]), int(found[2]), int(found[3])


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", ["small", "spilling", "divide"])
def test_registers_and_stack_agree_with_cuobjdump(arch: str, name: str, tmp_path: Path):
    artifact = build(arch, name)
    registers, stack, _ = tool_usage(artifact.binary, tmp_path / "k.cubin")
    assert cubin_usage(artifact.binary, artifact.symbol) == (registers, stack)
    assert (artifact.resources.registers, artifact.resources.stack_bytes) == (registers, stack)
    if name == "spilling":
        assert stack > 0


@pytest.mark.parametrize("arch", ["sm_70", "sm_90", "sm_120"])
def test_arguments_are_laid_out_as_the_binary_expects(arch: str):
    artifact = build(arch, "small")
    assert artifact.signature == MIXED
    layout = argument_layout(artifact.signature)
    start = struct.calcsize("N")
    offsets = []
    for count in range(len(MIXED) + 3):
        prefix = layout.format[: 1 + count]
        following = layout.format[1 + count : 2 + count]
        if following:
            offsets.append(struct.calcsize(prefix + "0" + following) - start)
    sizes = [struct.calcsize(c) for c in layout.format[1:]]
    assert cubin_parameters(artifact.binary, artifact.symbol) == list(zip(offsets, sizes, strict=True))


def test_what_is_no_cubin_is_refused():
    cubin = build("sm_90", "small").binary
    for bad in (b"", b"junk", cubin[:100], cubin[: len(cubin) // 2], b"\x7fELF\x02\x01" + bytes(200)):
        with pytest.raises(CompileError, match="small_kernel"):
            cubin_usage(bad, "small_kernel")
    with pytest.raises(CompileError, match="no register count for other_kernel"):
        cubin_usage(cubin, "other_kernel")
