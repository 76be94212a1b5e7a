"""Kernels for the tests of parallel compilation: workers import them by name."""

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


class _Deadly(KernelFunction):
    """Ends the process that tries to compile it."""

    @cached_property
    def jit(self) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


@_Deadly
def deadly_kernel(out_ptr, VALUE: tl.constexpr, BLOCK: tl.constexpr):
    tl.store(out_ptr, VALUE)
