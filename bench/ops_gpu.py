"""Operators on an NVIDIA GPU against torch (eager and compiled), CuPy and a copy; host time of a small call.

Device time is taken with events on the default stream, which all contestants use, and a buffer larger than the L2 cache
is written between calls.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import nbxtensor as nbx
from bench.harness import COPY, OURS, Call, Case, HostClock, Row, measure, parser, report, slower
from nbxtensor.base.dtypes import float32
from nbxtensor.compiler.compile import compile_job
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.device import get
from nbxtensor.kernel.launch import Plan, Pointer

DEVICE = "cuda"
SIZES = (1 << 26, 1 << 27)
ROWS = ((65536, 1024),)
WIDE_SIZES = (1 << 20, 1 << 24)
WIDE_ROWS = (
    (1048576, 32), (262144, 128), (16384, 4096), (8192, 8192), (4096, 16384), (2048, 32768), (1024, 65536),
    (512, 151936), (32, 151936), (1, 151936), (1300, 50257), (4096, 1000),
)  # fmt: skip
ACROSS = ((8, 21, 262144), (64, 10, 65536), (128, 262144), (1000, 65536), (16384, 4096))
COLUMNS = ((4096, 16384), (65536, 1024), (1 << 20, 64), (65536, 64), (8, 4096, 4096), (128, 1 << 20), (1024, 1024))
SMALL = 4096
FLUSH_BYTES = 256 << 20


class DeviceClock:
    """Time between two events around each call, the L2 flushed before it."""

    def __init__(self, torch: Any) -> None:
        self._event = lambda: torch.cuda.Event(enable_timing=True)
        self._synchronize = torch.cuda.synchronize
        self._flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=DEVICE).zero_

    def seconds(self, call: Call, calls: int) -> float:
        pairs = [(self._event(), self._event()) for _ in range(calls)]
        for begin, end in pairs:
            self._flush()
            begin.record()
            call()
            end.record()
        self._synchronize()
        return float(np.median([begin.elapsed_time(end) for begin, end in pairs])) * 1e-3


def pointwise(torch: Any, cupy: Any) -> Iterator[tuple[str, Callable[..., Any], Callable[..., Any], Any]]:
    nn = torch.nn.functional
    yield "sigmoid", nbx.nn.sigmoid, torch.sigmoid, None
    yield "silu", nbx.nn.silu, nn.silu, None
    yield "sin", nbx.sin, torch.sin, cupy.sin
    yield "softplus", nbx.nn.softplus, nn.softplus, None
    yield "exp", nbx.exp, torch.exp, cupy.exp
    yield "tanh", nbx.tanh, torch.tanh, cupy.tanh
    yield "gelu", nbx.nn.gelu, nn.gelu, None


def along_rows(torch: Any) -> Iterator[tuple[str, Callable[..., Any], Callable[..., Any], Any]]:
    yield "softmax", nbx.nn.softmax, lambda x: torch.softmax(x, -1), None
    yield "log_softmax", nbx.nn.log_softmax, lambda x: torch.log_softmax(x, -1), None
    yield "layer_norm", nbx.nn.layer_norm, lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]), None


def across_rows(torch: Any) -> Iterator[tuple[str, Callable[..., Any], Callable[..., Any], Any]]:
    yield "softmax axis -2", lambda x: nbx.nn.softmax(x, axis=-2), lambda x: torch.softmax(x, -2), None
    yield "log_softmax axis -2", lambda x: nbx.nn.log_softmax(x, axis=-2), lambda x: torch.log_softmax(x, -2), None


def columns(torch: Any, cupy: Any) -> Iterator[tuple[str, Callable[..., Any], Callable[..., Any], Any]]:
    yield "sum over axis -2", lambda x: nbx.sum(x, axis=-2), lambda x: x.sum(-2), lambda x: cupy.sum(x, -2)
    yield "max over axis -2", lambda x: nbx.max(x, axis=-2), lambda x: x.amax(-2), lambda x: cupy.amax(x, -2)


def cases(torch: Any, cupy: Any, dtype: str, only: str, wide: bool, compiled: bool) -> Iterator[Case]:
    sizes, rows = (SIZES + WIDE_SIZES, ROWS + WIDE_ROWS) if wide else (SIZES, ROWS)
    across = list(ACROSS) if wide else []
    groups = [
        (pointwise(torch, cupy), [(n,) for n in sizes]),
        (along_rows(torch), list(rows)),
        (across_rows(torch), across),
        (columns(torch, cupy), list(COLUMNS) if wide else []),
    ]
    for functions, shapes in groups:
        for name, ours, theirs, cupys in functions:
            for shape in shapes if only in name else ():
                yield case(torch, cupy, name, dtype, shape, (ours, theirs, cupys), compiled)


def case(
    torch: Any,
    cupy: Any,
    name: str,
    dtype: str,
    shape: tuple[int, ...],
    functions: tuple[Any, Any, Any],
    compiled: bool,
) -> Case:
    ours, theirs, cupys = functions
    host = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    a = torch.from_numpy(host).to(DEVICE, getattr(torch, dtype))
    x = nbx.astype(nbx.asarray(host, device=DEVICE), getattr(nbx, dtype))
    target = torch.empty_like(a)
    calls: dict[str, Call] = {OURS: lambda: ours(x), "eager": lambda: theirs(a)}
    if compiled:
        torch._dynamo.reset()  # one function may be compiled for a few shapes only
        function = torch.compile(theirs, dynamic=False)
        calls["compile"] = lambda: function(a)
    if cupys is not None and dtype == "float32":
        b = cupy.asarray(host)
        calls["cupy"] = lambda: cupys(b)
    calls[COPY] = lambda: target.copy_(a)
    got = np.asarray(nbx.to_numpy(ours(x)), dtype=np.float32)
    expected = theirs(a.float()).cpu().numpy()
    reduced = got.size < a.numel()
    tolerance = (1e-5 if dtype == "float32" else 1e-2) * (math.sqrt(shape[-2]) if reduced else 1)
    if not np.allclose(got, expected, rtol=tolerance, atol=tolerance):
        raise SystemExit(f"{name} {dtype} {shape}: {OURS} and torch differ by {np.abs(got - expected).max()}")
    nbytes = (1 if reduced else 2) * a.element_size() * math.prod(shape)
    return Case(f"{name} {dtype}", "x".join(map(str, shape)), calls, nbytes, nbytes)


@kernel
def small_kernel(out_ptr, x_ptr, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * 2.0, mask=mask)


def host_case(torch: Any) -> Case:
    """One elementwise call on few elements: the host's time alone, beside a bare launch through cuda.core.

    That package (cuda-core>=0.4,<2) is needed for this case only.
    """
    from cuda.core import Device, LaunchConfig, ObjectCode, launch

    x, out = (nbx.asarray(np.ones(SMALL, np.float32), device=DEVICE) for _ in range(2))
    grid = (SMALL // 1024, 1, 1)
    arguments = {"out_ptr": Pointer(float32), "x_ptr": Pointer(float32), "n": SMALL}
    plan = Plan("bench", small_kernel, get(DEVICE), grid, arguments, {"BLOCK_SIZE": 1024})
    artifact = compile_job(plan.job())
    card = Device(0)
    card.set_current()
    bare = ObjectCode.from_cubin(artifact.binary).get_kernel(artifact.symbol)
    config = LaunchConfig(grid=grid, block=32 * artifact.options.num_warps)
    n = np.int64(SMALL)
    a, b = (torch.ones(SMALL, device=DEVICE) for _ in range(2))
    calls: dict[str, Call] = {
        OURS: lambda: nbx.exp(x),
        "with out=": lambda: nbx.exp(x, out=out),
        "bare launch": lambda: launch(card.default_stream, config, bare, out.ptr, x.ptr, n, 0, 0),
        "eager": lambda: torch.exp(a),
        "eager out=": lambda: torch.exp(a, out=b),
    }
    return Case("exp float32, host", f"{SMALL}", calls)


class EmptyQueueClock(HostClock):
    """Host time that never includes waiting: the GPU is idle when a sample begins."""

    def __init__(self, torch: Any) -> None:
        self._synchronize = torch.cuda.synchronize

    def seconds(self, call: Call, calls: int) -> float:
        self._synchronize()
        return super().seconds(call, min(calls, 500))


def main() -> int:
    options = parser(__doc__ or "")
    options.add_argument("--dtypes", default="float32,bfloat16")
    options.add_argument("--budget", type=float, default=math.inf, help="seconds after which no case is begun")
    options.add_argument("--wide", action="store_true", help="smaller sizes, other row lengths, other axes too")
    options.add_argument("--eager", action="store_true", help="torch alone, without torch.compile, which takes long")
    chosen = options.parse_args()

    import cupy
    import torch

    torch.set_grad_enabled(False)
    rows: list[Row] = []
    if chosen.only in "host":
        rows.append(measure(host_case(torch), EmptyQueueClock(torch), rounds=chosen.rounds, sample=0.005))
        spare = (rows[0].seconds[OURS] - rows[0].seconds["bare launch"]) * 1e6
        print(f"a small call takes {spare:.1f} us beyond the bare launch (at most 8 are allowed)")
    clock = DeviceClock(torch)
    end = time.monotonic() + chosen.budget
    for dtype in chosen.dtypes.split(","):
        for one in cases(torch, cupy, dtype, chosen.only, chosen.wide, not chosen.eager):
            if time.monotonic() > end:
                print(f"\nthe time is over: {one.name} {one.size} and what follows are left out")
                break
            rows.append(measure(one, clock, rounds=chosen.rounds, sample=0.005))
            print(".", end="", flush=True, file=sys.stderr)
    print(file=sys.stderr)
    report("Operators on the GPU", rows, chosen, gpu=torch.cuda.get_device_name(0), copy_gb_per_second=bandwidth(rows))
    print("\n".join(["", "slower than a peer:", *(slower(rows) or ["nothing"])]))
    return 0


def bandwidth(rows: list[Row]) -> float:
    """GB per second of the largest copy that was measured, bytes read and written."""
    copies = [(r.copy_nbytes, r.copy_nbytes / r.seconds[COPY] / 1e9) for r in rows if COPY in r.seconds]
    return max(copies)[1] if copies else 0.0


if __name__ == "__main__":
    raise SystemExit(main())
