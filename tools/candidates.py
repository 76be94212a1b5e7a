"""Every candidate of the settings modules, on shapes that no sample of an operator has, as compile jobs for any target.

Operators take the first candidate; the others are there to be measured. `make sweep` compiles them all the same.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import nbxtensor as nbx
from nbxtensor.base import dtypes
from nbxtensor.compiler.jobs import Job
from nbxtensor.device.null import NullDevice
from nbxtensor.kernel.math import sin
from nbxtensor.kernel.pointwise import pointwise
from nbxtensor.kernel.pointwise_settings import flat_candidates
from nbxtensor.kernel.reduce_launch import launches_of
from nbxtensor.kernel.reduce_settings import candidates as reduce_candidates
from nbxtensor.kernel.rows import Rows, rows_of
from nbxtensor.kernel.scan import launches as scan_launches
from nbxtensor.kernel.scan_settings import candidates as scan_candidates
from nbxtensor.ops import softmax
from nbxtensor.ops._softmax_settings import candidates as softmax_candidates
from nbxtensor.ops.arithmetic import add_value
from nbxtensor.ops.sort.cpu import sort_rows
from nbxtensor.ops.sort.launches import sort_tiles
from nbxtensor.ops.sort.layout import Layout, layout_of
from nbxtensor.ops.sort.radix import radix_sort
from nbxtensor.ops.sort.selection import select
from nbxtensor.ops.sort.settings import (
    log_of,
    longest,
    radix_candidates,
    row_candidates,
    selection_candidates,
    tile_candidates,
)
from nbxtensor.ops.sum import sum_of

Shape = tuple[int, int]
Choice = tuple[str, Any, Callable[[], object]]
"""What is launched, its setting, and the launch."""

KINDS = ("float32", "bfloat16", "int64")
FLOATS = ("bfloat16", "float32", "float64")
SORTED = ((4096, 32), (4096, 128), (4096, 1024), (4096, 8192), (1, 70_000), (16, 9000), (2, 1 << 25))
SELECTED = (((1, 151_936), 50), ((64, 151_936), 50), ((8, 65_536), 300), ((65_536, 1024), 8))
SUMMED = ("float32", "int8", "float64")
SCANNED = ((1, 1 << 24), (3, 70_000), (4096, 16), (4096, 200), (4096, 4096), (1000, 100_003))
NORMALIZED = (
    *((4096, n) for n in (3, 8, 32, 128, 512, 1000, 1024)),
    *((1024, n) for n in (4096, 8192, 16_384)),
    *((80, n) for n in (32_768, 50_257, 65_536, 151_936)),
    *((few, n) for few in (1, 32) for n in (65_536, 151_936)),
)
REDUCED = ((4096, 3), (4096, 200), (4096, 4096), (1, 1 << 24), (1000, 100_003))
FLAT = (100_001, 1 << 27)
TILED = ((7, 5), (1000, 3), (3, 1000), (4096, 4096))


def layout(dtype: str, shape: Shape, k: int | None = None) -> Layout:
    """Contiguous rows of which the first `k` elements (None: all) are wanted, with their indices."""
    k = shape[1] if k is None else k
    return layout_of(shape, 1, k, ((shape[1], 1), (k, 1), (k, 1)), dtypes.dtype(dtype), True, (True, True))


def rows(shape: Shape, axis: int = 1) -> Rows:
    """Rows of a contiguous operand and a contiguous result."""
    return rows_of(shape, (axis,), ((shape[1], 1), (shape[1], 1)))


def pointwise_choices(device: NullDevice) -> Iterator[Choice]:
    """A function with a rare branch, a plain one, and operands that only the two-dimensional kernel takes."""
    for kind in (dtypes.int8, dtypes.bfloat16, dtypes.float32, dtypes.float64):
        wide = dtypes.float64 if kind is dtypes.float64 else dtypes.float32
        for n in FLAT:
            x = nbx.empty((n,), kind, device)
            for setting in flat_candidates(device.profile, kind.itemsize):

                def plain(x: Any = x, kind: Any = kind, wide: Any = wide, s: Any = setting) -> object:
                    return pointwise("add", add_value, (x, x), (wide, wide), kind, setting=s)

                def rare(x: Any = x, kind: Any = kind, s: Any = setting) -> object:
                    return pointwise("sin", sin, (x,), (dtypes.float32,), kind, setting=s)

                yield f"add/{kind.name}/{n}", setting, plain
                if wide is dtypes.float32:
                    yield f"sin/{kind.name}/{n}", setting, rare
        for shape in TILED:
            x = nbx.empty((shape[0], 2 * shape[1]), kind, device)
            for form, view in (("sliced", x[:, : shape[1]]), ("stepped", x[:, ::2]), ("transposed", x.T)):
                yield f"copy/{kind.name}/{shape}/{form}", None, view.copy


def sort_choices(
    device: NullDevice, kinds: Sequence[str] = KINDS, shapes: Sequence[Shape] = SORTED, most: int = 99
) -> Iterator[Choice]:
    """Sorts of whole rows; `most` candidates of each."""
    profile = device.profile
    for dtype in kinds:
        for shape in shapes:
            here = layout(dtype, shape)
            found: Any
            if profile.warp_size == 1:
                make, found = cast("Any", sort_rows), row_candidates(here, shape[1])
            elif shape[1] <= longest(profile, here):
                make, found = cast("Any", sort_tiles), tile_candidates(profile, here, log_of(shape[1]))
            else:
                make, found = cast("Any", radix_sort), radix_candidates(profile, here)
            for setting in found[:most]:
                run = make("sort", device, here, setting)
                yield f"sort/{dtype}/{shape}", setting, lambda run=run: run(0, 0, 0)


def topk_choices(
    device: NullDevice,
    kinds: Sequence[str] = KINDS,
    shapes: Sequence[tuple[Shape, int]] = SELECTED,
    most: int = 99,
) -> Iterator[Choice]:
    """Selections of the first elements of rows; a CPU has one way."""
    if device.profile.warp_size == 1:
        return
    for dtype in kinds:
        for shape, k in shapes:
            here = layout(dtype, shape, k)
            for setting in selection_candidates(device.profile, here)[:most]:
                run = select("topk", device, here, setting)
                yield f"topk/{dtype}/{shape}", setting, lambda run=run: run(0, 0, 0)


def scan_choices(
    device: NullDevice, kinds: Sequence[str] = SUMMED, shapes: Sequence[Shape] = SCANNED, most: int = 99
) -> Iterator[Choice]:
    """Running sums along rows and along columns."""
    for dtype in kinds:
        for shape in shapes:
            x = nbx.empty(shape, dtype, device)
            result = dtypes.int64 if dtype == "int8" else x.dtype
            out, reduction = nbx.empty(shape, result, device), sum_of(result)
            for axis in (1, 0):
                walk = rows(shape, axis)
                for setting in scan_candidates(walk, device.profile, reduction.accumulator.itemsize)[:most]:
                    how = scan_launches("cumulative_sum", reduction, x.dtype, result, device, walk, setting)

                    def launch(how: Any = how, x: Any = x, out: Any = out, kind: Any = reduction.accumulator) -> object:
                        return how.run(x, out, kind)

                    yield f"cumulative_sum/{dtype}/{shape}/{axis}", setting, launch


def reduce_choices(device: NullDevice) -> Iterator[Choice]:
    """Sums of rows and of columns, as an example of a reduction whose order shows and of one whose order does not."""
    for dtype, ordered in (("float32", True), ("float64", True), ("int32", False)):
        for shape in REDUCED:
            for axis in (1, 0):
                walk = rows_of(shape, (axis,), ((shape[1], 1), (1, 1)))
                kind = dtypes.dtype(dtype)
                reduction = sum_of(kind)
                out = reduction.accumulator
                for setting in reduce_candidates("sum", ordered, walk, device.profile, out.itemsize):
                    plans = launches_of("sum", reduction, kind, out, device, walk, walk.length, setting)
                    yield (
                        f"sum/{dtype}/{shape}/{axis}",
                        setting,
                        lambda plans=plans: [plan.run(0, 0) for plan, _ in plans],
                    )


def softmax_choices(device: NullDevice) -> Iterator[Choice]:
    """Both functions along rows and along columns."""
    for name in ("softmax", "log_softmax"):
        for dtype in FLOATS:
            for shape in NORMALIZED:
                x = nbx.empty(shape, dtype, device)
                for axis in (1, 0):
                    found = softmax_candidates(rows(shape, axis), device.profile, x.dtype.itemsize, name[0] == "l")
                    for setting in found:

                        def launch(name: str = name, x: Any = x, axis: int = axis, s: Any = setting) -> object:
                            return softmax.run(name, x, axis, False, None, s)

                        yield f"{name}/{dtype}/{shape}/{axis}", setting, launch


SPACES: dict[str, tuple[Callable[[NullDevice], Iterator[Choice]], ...]] = {
    "src/nbxtensor/kernel/pointwise_settings.py": (pointwise_choices,),
    "src/nbxtensor/kernel/reduce_settings.py": (reduce_choices,),
    "src/nbxtensor/kernel/scan_settings.py": (scan_choices,),
    "src/nbxtensor/ops/_softmax_settings.py": (softmax_choices,),
    "src/nbxtensor/ops/sort/settings.py": (sort_choices, topk_choices),
}
"""Settings modules, and what launches every candidate of each."""


def jobs(device: NullDevice, choices: Iterator[Choice]) -> Iterator[tuple[str, Any, Job]]:
    """What is launched, its setting, and each job that the launch compiles."""
    for name, setting, launch in choices:
        device.clear()
        launch()
        for call in device.calls:
            yield name, setting, cast("Any", call).job


def candidate_launches(device: NullDevice, wanted: Callable[[str], bool]) -> Iterator[tuple[str, str, Job]]:
    """Case, settings module and job of everything that the candidates launch."""
    for file, spaces in SPACES.items():
        if wanted(file):
            for space in spaces:
                yield from ((name, file, job) for name, _, job in jobs(device, space(device)))
