"""Operators for the tests of the certifier: their candidate spaces hold settings that are wrong on purpose."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from nbxtensor.base.errors import ArgumentError
from nbxtensor.certify.timing import Time, Timed
from nbxtensor.compiler.source import kernel, tl
from nbxtensor.device.artifact import Options
from nbxtensor.kernel.declare import operator, operators
from nbxtensor.kernel.launch import Plan, Pointer
from nbxtensor.kernel.tuned import plan_cache, tuned
from nbxtensor.tensor.dispatch import table
from nbxtensor.tensor.tensor import Tensor, new
from nbxtensor.tuning.key import launch_key

SCALE, TOTAL = "test_scale", "test_total"
LANES = 16


@dataclass(frozen=True, slots=True)
class Setting:
    """Elements of a program, and what is wrong with it ("": nothing)."""

    block: int
    wrong: str = ""


@kernel
def scale_kernel(x, out, n, BLOCK: tl.constexpr, WRONG: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    if WRONG == "reads beyond":
        value = tl.load(x + i)
        after = tl.load(x + i + 1)
        value = tl.where(i == n - 1, value + after * 0.0, value)
    else:
        value = tl.load(x + i, mask=mask)
    if WRONG == "slow":
        for _ in range(40):
            value = tl.fma(value, 1.0, 0.0)
    if WRONG == "scale":
        value = value * 1.0000002
    if WRONG == "half the stores":
        mask = mask & (i % 2 == 0)
    if WRONG == "dropped mask":
        tl.store(out + i, value * 2.0)
    else:
        tl.store(out + i, value * 2.0, mask=mask)
    if WRONG == "writes its operand":
        tl.store(x + i, value * 3.0, mask=mask)


@kernel
def total_kernel(x, out, n, LANES: tl.constexpr, WRONG: tl.constexpr):
    lane = tl.arange(0, LANES)
    row = tl.program_id(0).to(tl.int64) * n
    acc = tl.zeros([LANES], tl.float32)
    for at in range(0, n, LANES):
        start = at
        if WRONG == "another order":
            start = (n - 1) // LANES * LANES - at
        acc += tl.load(x + row + start + lane, mask=start + lane < n, other=0.0)
    tl.store(out + tl.program_id(0).to(tl.int64) * LANES + lane, acc)


CANDIDATES: dict[str, list[Setting]] = {SCALE: [Setting(256)], TOTAL: [Setting(LANES)]}
_plans: dict[Any, Plan] = plan_cache()


def _plan(name: str, x: Tensor, n: int, programs: int, setting: Setting) -> Plan:
    arguments = {"x": Pointer(x.dtype), "out": Pointer(x.dtype), "n": n}
    if name == SCALE:
        constants = {"BLOCK": setting.block, "WRONG": setting.wrong}
        grid = (-(-n // setting.block), 1, 1)
        return Plan(name, scale_kernel, x.device, grid, arguments, constants, Options(num_warps=1))
    constants = {"LANES": LANES, "WRONG": setting.wrong}
    return Plan(name, total_kernel, x.device, (programs, 1, 1), arguments, constants, Options(num_warps=1))


def _run(name: str, x: Tensor, out: Tensor, n: int, programs: int) -> Tensor:
    if not x.is_contiguous:
        raise ArgumentError(name, "only contiguous operands are taken")
    plan = _plans.get((name, x.form))
    if plan is None:
        sizes = {"elements": n} if name == SCALE else {"count": programs, "length": n}
        key = launch_key(name, "flat", sizes, (x.dtype,), x.device.target)
        plan = _plans[name, x.form] = tuned(key, CANDIDATES[name], lambda s: _plan(name, x, n, programs, s))
    plan.run(x.ptr, out.ptr)
    return out


def scale(x: Tensor) -> Tensor:
    """x * 2."""
    return _run(SCALE, x, new(x.shape, x.dtype, x.device), x.size, 1)


def total(x: Tensor) -> Tensor:
    """Sums of every 16th element of each row."""
    return _run(TOTAL, x, new((x.shape[0], LANES), x.dtype, x.device), x.shape[1], x.shape[0])


def _scale_samples(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield (rng.standard_normal(300).astype(np.float32),)


def _total_samples(rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    yield (rng.standard_normal((3, 300)).astype(np.float32),)


def _total_reference(x: np.ndarray) -> np.ndarray:
    padded = np.zeros((x.shape[0], -(-x.shape[1] // LANES) * LANES))
    padded[:, : x.shape[1]] = x
    return padded.reshape(x.shape[0], -1, LANES).sum(1)


@contextmanager
def declared() -> Generator[None]:
    """Declare the operators for as long as the block lasts: other tests go through all that are declared."""
    table["add"]  # loads the others first
    operator(SCALE, kernels=(scale_kernel,), reference=lambda x: x * 2, samples=_scale_samples)(scale)
    operator(TOTAL, kernels=(total_kernel,), reference=_total_reference, samples=_total_samples, ulp={"float32": 1e6})(
        total
    )
    kept = {name: list(c) for name, c in CANDIDATES.items()}
    try:
        yield
    finally:
        for name in (SCALE, TOTAL):
            del operators[name]
            del table[name]
        CANDIDATES.update(kept)
        _plans.clear()


def timed(cold: float, spread: float = 0.0) -> Timed:
    """Times of a setting that is as fast with operands in the cache as without."""
    one = Time(cold, cold * (1 - spread), cold * (1 + spread))
    return Timed(one, one)
