"""Compiles kernels with the CPU compiler and runs them in this process, without a device."""

import ctypes
from typing import Any

import numpy as np

from nbxtensor.compiler.cpu.compile import compile_ttir
from nbxtensor.compiler.source import KernelFunction
from nbxtensor.compiler.ttir import ttir
from nbxtensor.device.artifact import Target
from nbxtensor.device.cpu_code import load_object

_loaded: list[Any] = []


def load(binary: bytes, symbol: str) -> Any:
    """The entry point of an object as a ctypes function; it may call nothing but memcpy and its like."""
    block, address = load_object(binary, symbol)
    _loaded.append(block)
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 5)(address)


class Compiled:
    """A kernel ready to run: ``Compiled(fn, {"x": "*fp32", "n": "i64"}, {"BLOCK": 64})((grid,), x, n)``."""

    def __init__(
        self,
        fn: KernelFunction,
        signature: dict[str, str],
        constants: dict[str, object] | None = None,
        level: str = "x86-64-v3",
    ) -> None:
        self.text = ttir(fn, signature, constants or {}, locations=True)
        self.binary, self.resources = compile_ttir(self.text, Target("cpu", level), fn.name)
        self.call = load(self.binary, fn.name)
        self.types = list(signature.values())

    def __call__(self, grid: tuple[int, ...], *args: Any) -> None:
        slots = np.zeros(len(args), np.int64)
        for i, (kind, arg) in enumerate(zip(self.types, args, strict=True)):
            if kind.startswith("*"):
                slots[i] = arg if isinstance(arg, int) else arg.ctypes.data
            elif kind == "fp32":
                slots[i : i + 1].view(np.float32)[0] = arg
            elif kind == "fp64":
                slots[i : i + 1].view(np.float64)[0] = arg
            else:
                slots[i] = arg
        gx, gy, gz = (*grid, 1, 1)[:3]
        self.call(slots.ctypes.data, 0, gx * gy * gz, gx, gy, gz)
