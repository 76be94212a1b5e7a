"""The calls of the benchmarks, and one of every operator: what is certified when nothing else is asked for."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from nbxtensor.base import dtypes
from nbxtensor.base.errors import NbxError
from nbxtensor.certify.asked import example_of, sample_dtypes, tensors_needed
from nbxtensor.kernel.call_text import Example, call_of
from nbxtensor.kernel.declare import operators
from nbxtensor.tensor.dispatch import table

FOUNDING = ("sigmoid", "silu", "sin", "softplus")
ELEMENTWISE = (*FOUNDING, "exp", "tanh", "gelu", "add", "multiply")
ALONG_ROWS = ("softmax", "log_softmax", "layer_norm")

GPU_SIZES = (1 << 26, 1 << 27, 1 << 24, 1 << 20)
GPU_ROWS = (
    (65536, 1024), (4096, 16384), (8192, 8192), (16384, 4096), (262144, 128), (1048576, 32), (2048, 32768),
    (1024, 65536), (512, 151936), (32, 151936), (1, 151936), (1300, 50257), (4096, 1000),
)  # fmt: skip
GPU_SORTED = (
    ("float32", (65536, 1024)), ("float32", (131072, 128)), ("float32", (1048576, 32)), ("bfloat16", (65536, 1024)),
    ("int64", (65536, 1024)), ("float32", (4096, 4096)), ("float32", (1024, 65536)), ("float32", (64, 151936)),
    ("bfloat16", (64, 151936)), ("float32", (1, 151936)), ("float32", (16, 2048)), ("float32", (1, 1 << 20)),
    ("float32", (1, 1 << 24)), ("bfloat16", (1, 1 << 24)), ("int64", (1, 1 << 24)), ("float32", (1, 1 << 27)),
)  # fmt: skip
GPU_SELECTED = (((64, 151936), 50), ((1, 151936), 50), ((65536, 1024), 8), ((4096, 256), 8))
GPU_SCANNED = (
    ("float32", (16384, 4096), -1), ("float32", (1, 1 << 24), -1), ("float32", (4096, 16384), 0),
    ("float32", (1 << 20, 64), -1), ("float32", (1000, 100_003), -1), ("bfloat16", (16384, 4096), -1),
    ("int8", (1, 1 << 24), -1), ("int64", (4096, 4096), -1), ("float64", (4096, 4096), -1),
)  # fmt: skip
GPU_COLUMNS = ((4096, 16384), (65536, 1024), (1 << 20, 64))
REDUCED = ("sum", "mean", "max")
CPU_SIZES = (1 << 20, 1 << 22, 1 << 24, 1 << 18, 1 << 16)
CPU_ROWS = ((4096, 1024), (64, 1024), (1024, 4096), (16384, 128), (4096, 1000), (32, 32768))
CPU_MATRICES = ((1024, 1024, 1024), (128, 384, 384), (128, 384, 1536), (128, 1536, 384), (1024, 384, 1536))
CPU_SORTED = ((1000, 1000), (64, 151936), (1, 10_000_000))
CPU_SELECTED = (((1000, 1000), 10), ((1000, 1000), 200), ((64, 151936), 50), ((1, 151936), 50), ((1, 10_000_000), 100))

DEMO = Path(__file__).with_name("demo_calls.txt")
"""A call a line, made by tools/demo_calls.py."""
OTHER_SIZE = 1 << 20
"""Elements of the call that stands for an operator which no benchmark measures."""
OTHERS = (
    "conv(float32[8, 64, 32, 32], float32[64, 64, 3, 3])",
    "max_pool(float32[8, 64, 32, 32], kernel=3)",
    "avg_pool(float32[8, 64, 32, 32], kernel=3)",
    "take(float32[4096, 384], int64[1024], axis=-1)",
    "take_along_axis(float32[1024, 1024], int64[1024, 64])",
    "gather_nd(float32[64, 32, 384], int64[1024, 2])",
    "embedding(int64[8, 128], float32[30522, 384])",
    "linear(float32[1024, 384], float32[1536, 384], float32[1536])",
    "concat([float32[1024, 512], float32[1024, 512]])",
    "stack([float32[512, 512], float32[512, 512]])",
    "pad(float32[1024, 1024], pad_width=1)",
    "repeat(float32[1024, 256], repeats=2, axis=-1)",
    "clip(float32[1048576], 0.5, 1)",
    "arange(1048576, dtype=float32)",
    "linspace(0.0, 1.0, num=1048576, endpoint=False)",
    "tril(float32[1024, 1024])",
    "matmul(float32[1024, 384], float32[384, 1536])",
)
"""Calls of operators whose operands differ in shape, or that have no samples."""


def _on_gpus() -> Iterator[Example]:
    """What matters most comes first: time on a GPU is short."""
    kinds = (dtypes.float32, dtypes.bfloat16)
    for kind in kinds:
        yield from (example_of(name, [(GPU_SIZES[0],)], kind) for name in ELEMENTWISE[:7])
        yield from (example_of(name, [GPU_ROWS[0]], kind) for name in ALONG_ROWS)
    for at, (sorted_kind, shape) in enumerate(GPU_SORTED[:-1]):
        if at < len(GPU_SELECTED):
            selected, k = GPU_SELECTED[at]
            yield example_of("topk", [selected], dtypes.float32, k=k)
        yield example_of("sort_with_indices", [shape], dtypes.dtype(sorted_kind))
        for kind in kinds:
            if at + 1 < len(GPU_SIZES):
                yield from (example_of(name, [(GPU_SIZES[at + 1],)], kind) for name in ELEMENTWISE[:7])
            if at + 1 < len(GPU_ROWS):
                yield from (example_of(name, [GPU_ROWS[at + 1]], kind) for name in ALONG_ROWS)
        if at < len(GPU_SCANNED):
            scanned_kind, scanned, axis = GPU_SCANNED[at]
            yield example_of("cumulative_sum", [scanned], dtypes.dtype(scanned_kind), axis=axis)
    for shape in GPU_COLUMNS:
        yield from (example_of(name, [shape], kind, axis=0) for name in REDUCED for kind in kinds)
    last_kind, shape = GPU_SORTED[-1]
    yield example_of("sort_with_indices", [shape], dtypes.dtype(last_kind))


def _on_cpus() -> Iterator[Example]:
    for size in CPU_SIZES:
        yield from (example_of(name, [(size,)], dtypes.float32) for name in ELEMENTWISE)
    for shape in CPU_ROWS:
        yield from (example_of(name, [shape], dtypes.float32) for name in (*ALONG_ROWS, "sum", "cumulative_sum"))
    for m, k, n in CPU_MATRICES:
        yield example_of("matmul", [(m, k), (k, n)], dtypes.float32)
    for kind in (dtypes.float32, dtypes.int32):
        for shape in CPU_SORTED:
            yield example_of("sort", [shape], kind)
            yield example_of("argsort", [shape], kind)
        for shape, k in CPU_SELECTED:
            yield example_of("topk", [shape], kind, k=k)


def _others() -> Iterator[Example]:
    """A call of every operator that has samples, or is in `OTHERS`."""
    table["add"]  # loads every operator
    written_out = [call_of(text) for text in OTHERS]
    yield from written_out
    named = {call.operator for call in written_out}
    for name, op in sorted(operators.items()):
        usual = sample_dtypes(op)
        special = any(d is not None and not d.is_bool for d in usual)
        if name in named or op.samples is None or special or not tensors_needed(name):
            continue
        flat = not any(s != (4097,) for s in _sample_shapes(name))
        shape = (OTHER_SIZE,) if flat else (OTHER_SIZE // 1024, 1024)
        kind = dtypes.int32 if name.startswith("bitwise") else dtypes.float32
        try:
            yield example_of(name, [shape], kind)
        except NbxError:  # needs operands of several shapes
            continue


def _sample_shapes(name: str) -> list[tuple[int, ...]]:
    op = operators[name]
    assert op.samples is not None
    first = next(iter(op.samples(np.random.default_rng(0))))
    return [a.shape for a in first if isinstance(a, np.ndarray)]


def demo_calls() -> Iterator[Example]:
    """The calls of the demonstration's models: MiniLM [1, 128] and [8, 128], magika [1, 2048] and [16, 2048]."""
    for line in DEMO.read_text().splitlines():
        yield call_of(line)


def usual_calls(gpu: bool) -> Iterator[Example]:
    """The calls of the benchmarks for a kind of device, the founding operators' first, those of the demonstration's
    models, and one of each operator."""
    bench = list(_on_gpus() if gpu else _on_cpus())
    founding = 2 * len((*ELEMENTWISE[:7], *ALONG_ROWS)) if gpu else len(ELEMENTWISE)
    yield from bench[:founding]
    yield from demo_calls()
    yield from bench[founding:]
    yield from _others()
    yield call_of(f"copy_into(float32[{OTHER_SIZE}], 0.0)")
