"""What kernels need beyond a device with less: 32-bit loop bounds, no float64, reduced tiles of 1,024 elements."""

from dataclasses import replace

import pytest
from tools import limits

import nbxtensor as nbx
from nbxtensor.base.errors import CompileError
from nbxtensor.compiler.limits import beyond
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.compiler.ttir import ttir
from nbxtensor.device.null import NullDevice
from nbxtensor.device.profile import load_profile, target_of

RESTRICTED = load_profile("restricted")


@kernel
def adding_kernel(x_ptr, n, N: tl.constexpr, WIDE: tl.constexpr):
    acc = tl.full((N,), -(2**31), tl.int32)
    if WIDE:
        for at in range(0, n, N):
            acc = tl.maximum(acc, tl.load(x_ptr + at + tl.arange(0, N)))
    else:
        for at in range(0, n.to(tl.int32), N):
            acc = tl.maximum(acc, tl.load(x_ptr + at + tl.arange(0, N)))
    tl.store(x_ptr, tl.max(acc, 0))


@kernel
def precise_kernel(x_ptr, out_ptr):
    tl.store(out_ptr, tl.load(x_ptr).to(tl.float64).to(tl.float32) * 2)
    tl.store(out_ptr + 1, (tl.load(x_ptr).to(tl.float64) * 3).to(tl.float32))


def text(n: int, wide: bool) -> str:
    return ttir(adding_kernel, {"x_ptr": "*i32", "n": "i64"}, {"N": n, "WIDE": wide})


def test_each_limit_is_found() -> None:
    assert beyond(text(1024, False), RESTRICTED) == set()
    assert beyond(text(1024, True), RESTRICTED) == {"64-bit loop bounds"}
    assert beyond(text(2048, False), RESTRICTED) == {"reduced tiles of 2,048"}
    assert beyond(text(2048, True), load_profile("sm_90")) == set()
    assert beyond(text(2048, False), replace(RESTRICTED, reduce_tile_max=2048)) == set()
    double = ttir(precise_kernel, {"x_ptr": "*fp32", "out_ptr": "*fp32"}, {})
    assert beyond(double, RESTRICTED) == {"float64"}
    assert beyond(double, load_profile("gfx942")) == set()


def test_the_list_in_the_documents_is_current() -> None:
    page = limits.PAGE.read_text()
    assert limits.written(page, limits.table()) == page, "run `make limits` and commit docs/targets.md"


def test_settings_respect_the_cap_or_say_that_there_are_none() -> None:
    device = NullDevice(target_of("restricted"))
    long, short = nbx.empty((64, 4000), device=device), nbx.empty((64, 64), device=device)
    for function in (nbx.sum, nbx.mean, nbx.prod):
        with pytest.raises(CompileError, match="reduced in tiles that the device does not allow; got 2048"):
            function(long, axis=1)
        function(short, axis=1)
        function(short, axis=0)
    nbx.max(long, axis=1)
    nbx.argmax(long, axis=1)
    for call in device.calls:
        shape = dict(call.job.constants)["SHAPE"]
        assert shape[1] * shape[2] <= RESTRICTED.reduce_tile_max, call
    assert len(device.calls) >= 8
