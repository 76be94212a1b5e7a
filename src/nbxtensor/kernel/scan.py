"""Canonical scans: every prefix is combined in an order that depends on its position alone.

Sixteen consecutive elements are a block, sixteen blocks a block of the next level, and so on. The total of a block is
the chain of its sixteen parts in ascending order. The prefix that ends at an element is ::

    ((... + whole blocks before it at level 2) + whole blocks before it at level 1) + its block up to it

where each bracketed part is a chain in ascending order over the parts that precede it inside their common block. Parts
that are not there are left out. So a prefix of n elements has about ``16 * log16(n)`` roundings instead of n, tiles of
4,096 elements are scanned by a few whole-tile steps on a GPU, and a plain loop on a CPU has short chains.

What is scanned is a `nbxtensor.kernel.reduce.Reduction`: its `prepare`, `identity` (combining with it changes no bit),
`combine` and `finish`.
"""

from dataclasses import dataclass, replace
from math import gcd
from typing import Any

from nbxtensor.base.dtypes import DType
from nbxtensor.device.artifact import Options
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.launch import Argument, Constant, Plan, Pointer
from nbxtensor.kernel.reduce import Reduction, as_is, keep
from nbxtensor.kernel.rows import Rows, cached, rows_of
from nbxtensor.kernel.scan_kernels import AFTER, TOTALS, WHOLE, cumulative_serial_kernel, cumulative_tile_kernel
from nbxtensor.kernel.scan_settings import SEGMENT, TILE, Setting, candidates
from nbxtensor.kernel.tuned import plan_cache, tuned
from nbxtensor.tensor.tensor import Tensor, new
from nbxtensor.tuning.key import LaunchKey, launch_key

MOST_TOTALS = 256
"""Totals that a program adds up itself."""


@dataclass(frozen=True, slots=True)
class _Scan:
    """What is scanned; `exclusive`: without the element itself."""

    name: str
    reduction: Reduction
    x: DType
    out: DType
    device: Device
    rows: Rows
    exclusive: bool = False


def _plan(of: _Scan, setting: Setting, part: int) -> Plan:
    rows, reduction, n = of.rows, of.reduction, of.rows.length
    tile = setting.tile or SEGMENT
    kept = setting.kept if part == WHOLE or setting.serial else 1
    blocks = -(-rows.inner // kept)
    width = -(-n // setting.segment)
    if part == WHOLE:
        segments = 1
    elif part == TOTALS:
        segments = n // tile
    else:
        segments = width
    arguments: dict[str, Argument] = {
        "x": Pointer(of.x),
        "out": Pointer(of.out),
        "starts": Pointer(reduction.accumulator),
        "n": n,
        "inner": rows.inner,
        "blocks": blocks,
        "segments": segments,
        "width": width,
    }
    walk: dict[str, Argument] = {
        "x_inner": rows.inner_strides[0],
        "out_inner": rows.inner_strides[1],
        "outer": rows.outer,
        "x_outer": rows.outer_strides[0],
        "out_outer": rows.outer_strides[1],
    }
    constants: dict[str, Constant] = {
        "PREPARE": reduction.prepare,
        "IDENTITY": reduction.identity,
        "COMBINE": reduction.combine,
        "FINISH": reduction.finish if part != TOTALS else keep,
        "SHAPE": (1, kept, tile, int(rows.inner % kept != 0)),
        "PART": part,
        "EXCLUSIVE": of.exclusive,
    }
    if setting.serial:
        arguments |= {"segment_size": n if part == WHOLE else tile, **walk}
        arguments |= {"x_step": rows.reduced_strides[0][0], "out_step": rows.reduced_strides[1][0]}
        constants["DENSE"] = rows.inner_strides == (1, 1)
    else:
        fold = 0 if part != AFTER or not _folds(of, setting) else 16 if width <= 16 else MOST_TOTALS
        arguments |= walk
        arguments |= {"reduced": rows.reduced}
        arguments |= {"x_reduced": rows.reduced_strides[0], "out_reduced": rows.reduced_strides[1]}
        constants |= {"LEVEL": {16: 1, 256: 2, TILE: 3}[tile], "X_FLAGS": rows.flags(0), "OUT_FLAGS": rows.flags(1)}
        constants |= {"LOOP": n > tile, "TAIL": n % tile != 0, "FOLD": fold}
    return Plan(
        of.name,
        cumulative_serial_kernel if setting.serial else cumulative_tile_kernel,
        of.device,
        (rows.programs * blocks * segments, 1, 1),
        arguments,
        constants,
        Options(num_warps=setting.num_warps),
        rows.count * n,
    )


def _folds(of: _Scan, setting: Setting) -> bool:
    """Whether the totals before a segment are added up where they are needed."""
    return setting.fold and not setting.serial and of.rows.length <= MOST_TOTALS * setting.segment


@dataclass(frozen=True, slots=True)
class _Before:
    """What precedes the segments of split rows: `size` totals, and a scan of those unless the segments do it."""

    totals: Plan
    scan: "Launches | None"
    size: int


@dataclass(frozen=True, slots=True)
class Launches:
    """The launches of a scan: one, or the totals of segments, (their exclusive scan), and the segments after them."""

    plan: Plan
    before: _Before | None = None

    def run(self, x: Tensor, out: Tensor, accumulator: DType) -> None:
        starts = out
        if self.before is not None:
            starts = new((self.before.size,), accumulator, x.device)
            self.before.totals.run(x.ptr, out.ptr, starts.ptr)
            if self.before.scan is not None:
                totals, starts = starts, new((self.before.size,), accumulator, x.device)
                self.before.scan.run(totals, starts, accumulator)
        self.plan.run(x.ptr, out.ptr, starts.ptr)


def launches(
    name: str,
    reduction: Reduction,
    x: DType,
    out: DType,
    device: Device,
    rows: Rows,
    setting: Setting | None = None,
    *,
    exclusive: bool = False,
) -> Launches:
    """The launches that scan `rows`, the best ones unless a `setting` is given."""
    if rows.inner == 1:
        rows = replace(rows, inner_strides=(0, 0))  # the offset of the only row is seen to be aligned
    of = _Scan(name, reduction, x, out, device, rows, exclusive)
    if setting is None:
        found = candidates(rows, device.profile, reduction.accumulator.itemsize, name)
        return tuned(_key(of), found, lambda chosen: _launches(of, chosen))
    return _launches(of, setting)


def _key(of: _Scan) -> LaunchKey:
    rows = of.rows
    sizes = {"count": rows.count, "inner": rows.inner, "length": rows.length}
    steps = f"step {''.join(map(str, (*rows.flags(0), *rows.flags(1))))}"
    flags = (steps, of.reduction.combine.__name__, f"vectors of {gcd(rows.length, 16)}")
    bytes_each = (of.x.itemsize, of.out.itemsize, of.reduction.accumulator.itemsize)
    variant = "exclusive" if of.exclusive else "rows"
    return launch_key("scan", variant, sizes, bytes_each, of.device.target, flags)


def _launches(of: _Scan, setting: Setting) -> Launches:
    """The launches in one way."""
    name, reduction, device, rows = of.name, of.reduction, of.device, of.rows
    if not setting.split:
        return Launches(_plan(of, setting, WHOLE))
    segments, accumulator = -(-rows.length // setting.segment), reduction.accumulator
    between = None
    if not _folds(of, setting):
        totals = rows_of((rows.count, segments), (1,), ((segments, 1), (segments, 1)))
        inner = replace(reduction, prepare=as_is, finish=keep)
        between = launches(name, inner, accumulator, accumulator, device, totals, exclusive=True)
    return Launches(_plan(of, setting, AFTER), _Before(_plan(of, setting, TOTALS), between, rows.count * segments))


_plans: dict[Any, Launches] = plan_cache()


def scan(name: str, reduction: Reduction, x: Tensor, axis: int, out: Tensor) -> None:
    """Scan `x` along `axis` into `out`, which has its shape and the dtype of the result; neither is empty.

    Parameters
    ----------
    name
        Operator, for errors and recorders.
    reduction
        What to do; it must suit the dtype of `x`.
    """

    def make() -> Launches:
        rows = rows_of(x.shape, (axis,), (x.strides, out.strides))
        return launches(name, reduction, x.dtype, out.dtype, x.device, rows)

    cached(_plans, (reduction, axis, x.form, out.form), make).run(x, out, reduction.accumulator)
