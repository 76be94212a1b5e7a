"""Device mathematics: functions that kernels call, with the same bits on every device.

They are made of additions, multiplications, fma, correctly rounded division and square root, comparisons, selects and
integer steps. The families live in the `math_*` modules beside this one; import from here. What a docstring states in
ULP is the largest error found over all arguments (`tools/exhaustive.py`).
"""

from nbxtensor.base.dtypes import DType, bfloat16, float16
from nbxtensor.compiler.source import KernelFunction
from nbxtensor.kernel.math_bf16 import (
    cos_bf16,
    erf_bf16,
    exp_bf16,
    gelu_bf16,
    gelu_tanh_bf16,
    sigmoid_bf16,
    silu_bf16,
    sin_bf16,
    softplus_bf16,
    tanh_bf16,
)
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
from nbxtensor.kernel.math_erf import erf, gelu, tanh, tanh_gpu
from nbxtensor.kernel.math_exp import exp, exp2, expm1
from nbxtensor.kernel.math_f16 import (
    cos_f16,
    erf_f16,
    exp_f16,
    gelu_f16,
    gelu_tanh_f16,
    sigmoid_f16,
    silu_f16,
    sin_f16,
    softplus_f16,
    tanh_f16,
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
    "cos_bf16",
    "cos_f16",
    "erf",
    "erf_bf16",
    "erf_f16",
    "exp",
    "exp2",
    "exp_bf16",
    "exp_f16",
    "expm1",
    "f64_to_f32_odd",
    "float_to_int",
    "floor",
    "floor_divide",
    "fmod",
    "for_16_bit",
    "for_gpu",
    "gelu",
    "gelu_bf16",
    "gelu_f16",
    "gelu_tanh",
    "gelu_tanh_bf16",
    "gelu_tanh_f16",
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
    "sigmoid_bf16",
    "sigmoid_f16",
    "sign",
    "silu",
    "silu_bf16",
    "silu_f16",
    "sin",
    "sin_bf16",
    "sin_f16",
    "softplus",
    "softplus_bf16",
    "softplus_f16",
    "softplus_scaled",
    "tanh",
    "tanh_bf16",
    "tanh_f16",
    "tanh_gpu",
    "trunc",
]

_FOR_16_BIT: dict[DType, dict[KernelFunction, KernelFunction]] = {
    bfloat16: {
        cos: cos_bf16,
        erf: erf_bf16,
        exp: exp_bf16,
        gelu: gelu_bf16,
        gelu_tanh: gelu_tanh_bf16,
        sigmoid: sigmoid_bf16,
        silu: silu_bf16,
        sin: sin_bf16,
        softplus: softplus_bf16,
        tanh: tanh_bf16,
    },
    float16: {
        cos: cos_f16,
        erf: erf_f16,
        exp: exp_f16,
        gelu: gelu_f16,
        gelu_tanh: gelu_tanh_f16,
        sigmoid: sigmoid_f16,
        silu: silu_f16,
        sin: sin_f16,
        softplus: softplus_f16,
        tanh: tanh_f16,
    },
}


def for_16_bit(fn: KernelFunction, dtype: DType) -> KernelFunction:
    """The form of a function to use where argument and result are of `dtype`, a 16-bit float; else `fn` itself."""
    return _FOR_16_BIT[dtype].get(fn, fn)


def for_gpu(fn: KernelFunction) -> KernelFunction:
    """The form of a function that costs less on a GPU and gives the same bits; `fn` itself if it has none."""
    return tanh_gpu if fn is tanh else fn
