"""Compiles kernels with the CPU compiler and runs them in this process, through LLVM's own loader."""

import ctypes
from typing import Any

import numpy as np

from nbxtensor.compiler.cpu.compile import compile_ttir
from nbxtensor.compiler.source import KernelFunction
from nbxtensor.compiler.ttir import ttir
from nbxtensor.device.artifact import Target

_loaded: list[Any] = []


def load(binary: bytes, symbol: str) -> Any:
    """The entry point of an object as a ctypes function."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    obj = llvm.ObjectFileRef.from_data(binary)
    engine.add_object_file(obj)
    engine.finalize_object()
    _loaded.append((engine, obj))
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 5)(engine.get_function_address(symbol))


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
