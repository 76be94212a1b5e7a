"""Device mathematics: functions that kernels call, with the same bits on every device.

They are made of additions, multiplications, fma, correctly rounded division and square root, comparisons, selects and
integer steps. The families live in the `math_*` modules beside this one; import from here. What a docstring states in
ULP is the largest error found over all arguments (`tools/exhaustive.py`).
"""

from nbxtensor.compiler.source import KernelFunction
from nbxtensor.kernel.math_bits import (
    bits_of,
    copy_sign,
    is_finite,
    is_inf,
    is_nan,
    magnitude,
    maximum,
    minimum,
    negate,
    sign,
)
from nbxtensor.kernel.math_cast import cast, f64_to_f32_odd, float_to_int, int_to_f32_sticky
from nbxtensor.kernel.math_erf import erf, gelu, tanh
from nbxtensor.kernel.math_exp import exp, exp2, expm1
from nbxtensor.kernel.math_half import (
    cos_fast16,
    erf_fast16,
    exp_fast16,
    gelu_fast16,
    gelu_tanh_fast16,
    sigmoid_fast16,
    silu_fast16,
    sin_fast16,
    softplus_fast16,
    tanh_fast16,
)
from nbxtensor.kernel.math_log import log, log1p, log2
from nbxtensor.kernel.math_pow import pow
from nbxtensor.kernel.math_round import (
    ceil,
    floor,
    floor_divide,
    fmod,
    int_pow,
    quotient,
    remainder,
    round_even,
    trunc,
)
from nbxtensor.kernel.math_sigmoid import gelu_tanh, sigmoid, silu, softplus, softplus_scaled
from nbxtensor.kernel.math_trig import cos, sin

__all__ = [
    "bits_of",
    "cast",
    "ceil",
    "copy_sign",
    "cos",
    "cos_fast16",
    "erf",
    "erf_fast16",
    "exp",
    "exp2",
    "exp_fast16",
    "expm1",
    "f64_to_f32_odd",
    "float_to_int",
    "floor",
    "floor_divide",
    "fmod",
    "for_16_bit",
    "gelu",
    "gelu_fast16",
    "gelu_tanh",
    "gelu_tanh_fast16",
    "int_pow",
    "int_to_f32_sticky",
    "is_finite",
    "is_inf",
    "is_nan",
    "log",
    "log1p",
    "log2",
    "magnitude",
    "maximum",
    "minimum",
    "negate",
    "pow",
    "quotient",
    "remainder",
    "round_even",
    "sigmoid",
    "sigmoid_fast16",
    "sign",
    "silu",
    "silu_fast16",
    "sin",
    "sin_fast16",
    "softplus",
    "softplus_fast16",
    "softplus_scaled",
    "tanh",
    "tanh_fast16",
    "trunc",
]

_FOR_16_BIT: dict[KernelFunction, KernelFunction] = {
    cos: cos_fast16,
    erf: erf_fast16,
    exp: exp_fast16,
    gelu: gelu_fast16,
    gelu_tanh: gelu_tanh_fast16,
    sigmoid: sigmoid_fast16,
    silu: silu_fast16,
    sin: sin_fast16,
    softplus: softplus_fast16,
    tanh: tanh_fast16,
}


def for_16_bit(fn: KernelFunction) -> KernelFunction:
    """The form of a function to use where its argument and its result are 16-bit floats; `fn` itself if it has none."""
    return _FOR_16_BIT.get(fn, fn)
