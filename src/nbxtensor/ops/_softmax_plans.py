"""The launches of a softmax: plans of its kernels for operands of given forms."""

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd
from typing import Protocol

from nbxtensor.base import dtypes
from nbxtensor.base.dtypes import DType
from nbxtensor.compiler.source import KernelFunction
from nbxtensor.device.artifact import Options
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.launch import Argument, Constant, Plan, Pointer
from nbxtensor.kernel.rows import APART, GROUP, LANES, Rows, power_of_two
from nbxtensor.ops._softmax_columns import softmax_columns_kernel
from nbxtensor.ops._softmax_kernels import softmax_forward_kernel
from nbxtensor.ops._softmax_looped import softmax_forward_looped_kernel
from nbxtensor.ops._softmax_settings import FEW_GROUPS, Setting, tile_of, write_tile
from nbxtensor.ops._softmax_split import HANDED_ON, softmax_split_groups_kernel, softmax_split_lanes_kernel
from nbxtensor.ops._softmax_split_write import softmax_split_write_kernel
from nbxtensor.ops._softmax_spread import softmax_spread_finish_kernel, softmax_spread_lanes_kernel
from nbxtensor.tuning.key import LaunchKey, launch_key

VECTOR = 16
TOPS = 1024  # largest elements that a program of the second launch loads at a time


class Runs(Protocol):
    """Something that runs a softmax on the addresses of its operands."""

    @property
    def run(self) -> Callable[..., object]: ...


@dataclass(frozen=True, slots=True)
class Case:
    """What the launches of one softmax have in common."""

    name: str
    rows: Rows
    dtype: DType
    device: Device
    safe: bool
    out_is_new: bool

    @property
    def log(self) -> bool:
        return self.name == "log_softmax"

    @property
    def accumulator(self) -> DType:
        return dtypes.float64 if self.dtype is dtypes.float64 else dtypes.float32

    def dense(self, operand: int) -> bool:
        """Whether neighbouring rows of an operand are neighbours in memory."""
        return self.rows.inner > 1 and self.rows.inner_strides[operand] == 1

    def step(self, operand: int) -> int:
        """Elements from a row of an operand to the next, as the kernels take it."""
        return 0 if self.rows.inner == 1 or self.dense(operand) else self.rows.inner_strides[operand]

    @property
    def vector(self) -> int:
        """A power of two that divides row lengths and steps, so that vectors of so many elements stay inside a row."""
        rows = self.rows
        if self.device.profile.warp_size == 1 or not (rows.unit(0) and rows.unit(1)):
            return 1
        outer = (*rows.outer_strides[0], *rows.outer_strides[1]) if rows.programs > 1 else ()
        return gcd(VECTOR, rows.length, self.step(0), self.step(1), *outer)

    @property
    def key(self) -> LaunchKey:
        """The launch key: the sizes, and what else decides which candidates there are and how they read."""
        rows = self.rows
        flags = [name for name, held in (("safe", self.safe), ("in place", not self.out_is_new)) if held]
        flags.append(f"vectors of {min(self.vector, VECTOR // self.dtype.itemsize)}")
        flags += [f"step {int(rows.unit(i))}{int(self.dense(i))}" for i in range(2)]
        sizes = {"count": rows.count, "inner": rows.inner, "length": rows.length}
        return launch_key("softmax", self.name, sizes, (self.dtype,), self.device.target, flags)

    def walk(self, kept: int, shift: int) -> tuple[object, ...]:
        """Constant WALK of the kernels for blocks of `kept` rows; `shift` as there."""
        flags = tuple((int(self.rows.unit(i)), int(self.dense(i))) for i in range(2))
        threads = self.device.profile.warp_size > 1
        narrow = threads and all(abs(self.step(i)) * kept < 2**31 for i in range(2))
        alike = int(self.step(0) == self.step(1))
        return (*flags, self.vector, int(self.rows.programs == 1), int(narrow), int(threads), shift, alike)

    def shift(self, setting: Setting) -> int:
        """Elements of a vector if tiles are to start at whole vectors although rows do not, else 0."""
        rows, vector = self.rows, VECTOR // self.dtype.itemsize
        same = rows.unit(0) and rows.unit(1) and rows.programs == 1 and self.step(0) == self.step(1) > 0
        able = self.device.profile.warp_size > 1 and setting.form == "looped" and setting.held > 0 and rows.groups == 1
        return vector if same and able and self.vector < vector else 0

    def plan(
        self,
        kernel: KernelFunction,
        programs: int,
        own: dict[str, Argument],
        constants: dict[str, Constant],
        shape: tuple[int, int, int, int],
        warps: int,
        shift: int = 0,
    ) -> Plan:
        """The plan of a kernel: `own` are the arguments and `constants` the constants that not all kernels share."""
        rows, v = self.rows, self.vector
        shared: dict[str, Argument] = {
            "x": Pointer(self.dtype),
            "out": Pointer(self.dtype),
            "n": rows.length // v,
            "inner": rows.inner,
            "blocks": -(-rows.inner // shape[1]),
            "groups": rows.groups,
            "count": rows.count,
            "x_inner": self.step(0) // v,
            "out_inner": self.step(1) // v,
            "outer": rows.outer,
            "x_outer": tuple(s // v for s in rows.outer_strides[0]),
            "out_outer": tuple(s // v for s in rows.outer_strides[1]),
            "reduced": rows.reduced,
            "x_reduced": rows.reduced_strides[0],
            "out_reduced": rows.reduced_strides[1],
        }
        everything: dict[str, Constant] = {
            "SHAPE": shape,
            "WALK": self.walk(shape[1], shift),  # pyright: ignore[reportAssignmentType]
            "GROUP_SIZE": GROUP,
            "LOG": self.log,
            "SAFE": self.safe,
            **constants,
        }
        arguments = {**shared, **own}
        return Plan(
            self.name,
            kernel,
            self.device,
            (programs, 1, 1),
            {n: arguments[n] for n in kernel.parameters if n in arguments},
            {n: everything[n] for n in kernel.parameters if n in everything},
            Options(num_warps=warps),
            rows.count * rows.length,
        )


def _group_lanes(groups: int) -> int:
    return min(LANES, max(4, power_of_two(groups)))


class Shifted:
    """The launch of a kernel whose programs need memory for a tile of lanes each.

    Attributes
    ----------
    plan
        The plan of the kernel.
    """

    def __init__(self, plan: Plan, device: Device) -> None:
        self.plan = plan
        self._allocate = device.allocate
        self._bytes = plan.grid[0] * LANES * 4

    def run(self, x: int, out: int) -> None:
        """Launch it."""
        scratch = self._allocate(self._bytes)  # kept until the launch is queued
        self.plan.run(x, out, scratch.ptr)


_WHOLE = {
    "held": softmax_forward_kernel,
    "columns": softmax_columns_kernel,
    "looped": softmax_forward_looped_kernel,
}


def _whole_rows(case: Case, setting: Setting) -> Runs:
    rows = case.rows
    tile = tile_of(rows)
    constants: dict[str, Constant] = {}
    shift = case.shift(setting)
    if setting.form == "looped":
        held, step, n = setting.held * tile, setting.unroll * tile, rows.length
        parts = (n - held, min(n, GROUP) - held, n % GROUP if n > GROUP else 0)
        constants["TAIL"] = APART if shift or any(part % step for part in parts) else 0
        on_cpu = case.device.profile.warp_size == 1
        constants["GROUPS"] = 1 if rows.groups == 1 else _group_lanes(rows.groups)
        constants["STASH"] = on_cpu and case.out_is_new and not case.log and case.dtype is dtypes.float32
        constants["UNROLL"] = setting.unroll
        constants["HELD"] = setting.held
        constants["STAGES"] = setting.stages
        constants["STREAM"] = not on_cpu
    else:
        constants["TAIL"] = APART if rows.length % tile else 0
        constants["TILES"] = -(-rows.length // tile)
        constants["LENGTH"] = tile
    kernel = _WHOLE[setting.form]
    programs = rows.programs * -(-rows.inner // setting.kept)
    shape = rows.shape(setting.kept, 1 if setting.form == "columns" else tile)
    if setting.fold > 1 and all(rows.unit(i) and not case.dense(i) for i in range(2)):
        shape = setting.fold, *shape[1:]
    own: dict[str, Argument] = {}
    if shift:
        own["scratch"] = Pointer(case.accumulator)
    else:
        constants["scratch"] = None
    plan = case.plan(kernel, programs, own, constants, shape, setting.num_warps, shift)
    return Shifted(plan, case.device) if shift else plan


class Split:
    """The launches of the split kernels.

    Attributes
    ----------
    plans
        For lanes, for groups (None: there are two launches) and for the result.
    """

    def __init__(self, case: Case, setting: Setting) -> None:
        rows = case.rows
        # Every program that writes adds the partial sums itself. In place, it must not sum again what another one has
        # written.
        able = case.out_is_new and rows.groups <= FEW_GROUPS and rows.unit(0) and rows.axis == 1
        self.plans = self._two(case, setting) if setting.run and able else self._three(case, setting)
        self._allocate = case.device.allocate
        most = rows.count * rows.groups
        parts = LANES // setting.width
        self._starts = [0]
        for words in (most * parts, most * parts, most * LANES // 4, most * HANDED_ON):
            self._starts.append(self._starts[-1] + -(-words * case.accumulator.itemsize // 256) * 256)

    @staticmethod
    def _two(case: Case, setting: Setting) -> tuple[Plan, None, Plan]:
        rows = case.rows
        spread = setting.width // setting.run, setting.run
        handed: dict[str, Argument] = dict.fromkeys(("tops", "lows", "nodes"), Pointer(case.accumulator))
        chunks = -(-rows.length // (setting.unroll * LANES))
        lanes = case.plan(
            softmax_spread_lanes_kernel,
            rows.count * rows.groups * (LANES // setting.width),
            handed,
            {
                "LANES": LANES,
                "SPREAD": spread,
                "TAIL": rows.length % LANES != 0,
                "UNROLL": setting.steps,
                "STAGES": setting.stages,
            },
            rows.shape(1, LANES),
            setting.num_warps,
        )
        finish = case.plan(
            softmax_spread_finish_kernel,
            rows.count * chunks,
            {**handed, "chunks": chunks},
            {
                "COUNT": setting.unroll,
                "SPREAD": spread,
                "GROUPS": FEW_GROUPS,
                "TAIL": rows.length % (setting.unroll * LANES) != 0,
                "STREAM": case.device.profile.warp_size > 1,
            },
            rows.shape(1, LANES),
            setting.writers,
        )
        return lanes, None, finish

    @staticmethod
    def _three(case: Case, setting: Setting) -> tuple[Plan, Plan, Plan]:
        rows, kept = case.rows, setting.kept
        blocks = rows.programs * -(-rows.inner // kept)
        parts = LANES // setting.width
        handed: dict[str, Argument] = dict.fromkeys(("tops", "guesses", "nodes", "sums"), Pointer(case.accumulator))
        tile = write_tile(rows, kept)
        chunks = -(-rows.length // (setting.unroll * tile))
        lanes = case.plan(
            softmax_split_lanes_kernel,
            blocks * rows.groups * parts,
            handed,
            {"LANES": LANES, "TAIL": rows.length % GROUP != 0, "UNROLL": setting.steps, "STAGES": setting.stages},
            rows.shape(kept, setting.width),
            setting.num_warps,
        )
        groups = case.plan(
            softmax_split_groups_kernel,
            rows.count * rows.groups,
            handed,
            {
                "WIDTH": setting.width,
                "MANY": min(TOPS, power_of_two(rows.groups * parts)),
                "TAIL": APART if rows.length % LANES or rows.axis == 0 else 0,
            },
            (rows.axis, 1, LANES, 0),
            8 if case.accumulator is dtypes.float64 or rows.axis == 0 else 4,
        )
        write = case.plan(
            softmax_split_write_kernel,
            blocks * chunks,
            {**handed, "chunks": chunks},
            {
                "COUNT": setting.unroll,
                "LANES": _group_lanes(rows.groups),
                "TAIL": rows.length % (setting.unroll * tile) != 0,
                "STREAM": case.device.profile.warp_size > 1,
            },
            rows.shape(kept, tile),
            setting.writers,
        )
        return lanes, groups, write

    def run(self, x: int, out: int) -> None:
        """Launch everything."""
        scratch = self._allocate(self._starts[-1])
        tops, others, nodes, sums, _ = (scratch.ptr + start for start in self._starts)
        lanes, groups, write = self.plans
        lanes.run(x, tops, others, nodes)
        if groups is None:
            write.run(x, tops, others, nodes, out)
        else:
            groups.run(x, tops, others, nodes, sums)
            write.run(x, sums, out)


def launches(case: Case, setting: Setting) -> Runs:
    """What runs `case` in the way of `setting`."""
    return Split(case, setting) if setting.form == "split" else _whole_rows(case, setting)
