"""Kernels that tests share; the workers of parallel compilation import them by name."""

import os
import signal
from functools import cached_property
from typing import Any

from nbxtensor.compiler.source import KernelFunction, kernel, tl


@kernel
def fill_kernel(out_ptr, VALUE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.full((BLOCK,), VALUE, tl.float32))


@kernel
def broken_kernel(out_ptr, VALUE: tl.constexpr, BLOCK: tl.constexpr):
    tl.store(out_ptr, no_such_name)  # noqa: F821


@kernel
def spilling_kernel(x_ptr, N: tl.constexpr):
    """Needs more registers than there are if N is large: sums in a loop keep all elements alive."""
    i = tl.arange(0, N)
    v = tl.load(x_ptr + i)
    w = tl.load(x_ptr + N + i)
    for _ in range(10):
        total = tl.max(v * w, axis=0)
        v = tl.fma(v, w, total)
        w = tl.fma(w, v, total)
    tl.store(x_ptr + i, v + w)


class _Deadly(KernelFunction):
    """Ends the process that tries to compile it."""

    @cached_property
    def jit(self) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


@_Deadly
def deadly_kernel(out_ptr, VALUE: tl.constexpr, BLOCK: tl.constexpr):
    tl.store(out_ptr, VALUE)
