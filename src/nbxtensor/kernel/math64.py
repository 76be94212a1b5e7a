"""float64 mathematics: functions that kernels call, with the same bits on every device.

They stand beside those of `kernel/math.py`, which compute in fp32, and are made of the same steps. What a docstring
states in ULP is the largest error found in 10^8 samples against 80-bit floats and in samples against mpmath.
"""

from nbxtensor.compiler.source import KernelFunction
from nbxtensor.kernel import math
from nbxtensor.kernel.math64_erf import erf64, gelu64
from nbxtensor.kernel.math64_exp import exp64, expm164
from nbxtensor.kernel.math64_log import log1p64, log64
from nbxtensor.kernel.math64_pow import pow64
from nbxtensor.kernel.math64_sigmoid import (
    gelu_tanh64,
    sigmoid64,
    silu64,
    softplus64,
    softplus_scaled64,
    tanh64,
)
from nbxtensor.kernel.math64_trig import cos64, sin64

__all__ = [
    "cos64",
    "erf64",
    "exp64",
    "expm164",
    "for_64_bit",
    "gelu64",
    "gelu_tanh64",
    "log1p64",
    "log64",
    "pow64",
    "sigmoid64",
    "silu64",
    "sin64",
    "softplus64",
    "softplus_scaled64",
    "tanh64",
]

_FOR_64_BIT: dict[KernelFunction, KernelFunction] = {
    math.cos: cos64,
    math.erf: erf64,
    math.exp: exp64,
    math.expm1: expm164,
    math.gelu: gelu64,
    math.gelu_tanh: gelu_tanh64,
    math.log: log64,
    math.log1p: log1p64,
    math.pow: pow64,
    math.sigmoid: sigmoid64,
    math.silu: silu64,
    math.sin: sin64,
    math.softplus: softplus64,
    math.softplus_scaled: softplus_scaled64,
    math.tanh: tanh64,
}


def for_64_bit(fn: KernelFunction) -> KernelFunction:
    """The form of a function of fp32 that computes in fp64; `fn` itself if it takes both."""
    return _FOR_64_BIT.get(fn, fn)
