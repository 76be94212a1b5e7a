"""Tensors for inference: Triton kernels on NVIDIA GPUs and plain CPUs, the same bits on both.

The names of the Python Array API standard are here; what models need beyond it is in `nbxtensor.nn`. Everything is
imported when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from nbxtensor.tensor.dispatch import table

if TYPE_CHECKING:
    from nbxtensor import nn as nn
    from nbxtensor import onnx as onnx
    from nbxtensor.base.dtypes import bfloat16 as bfloat16
    from nbxtensor.base.dtypes import bool as bool
    from nbxtensor.base.dtypes import float8_e4m3fn as float8_e4m3fn
    from nbxtensor.base.dtypes import float8_e5m2 as float8_e5m2
    from nbxtensor.base.dtypes import float16 as float16
    from nbxtensor.base.dtypes import float32 as float32
    from nbxtensor.base.dtypes import float64 as float64
    from nbxtensor.base.dtypes import int8 as int8
    from nbxtensor.base.dtypes import int16 as int16
    from nbxtensor.base.dtypes import int32 as int32
    from nbxtensor.base.dtypes import int64 as int64
    from nbxtensor.base.dtypes import uint8 as uint8
    from nbxtensor.base.dtypes import uint16 as uint16
    from nbxtensor.base.dtypes import uint32 as uint32
    from nbxtensor.base.dtypes import uint64 as uint64
    from nbxtensor.device.registry import discover as discover
    from nbxtensor.ops.any import all as all
    from nbxtensor.ops.any import any as any
    from nbxtensor.ops.argmax import argmax as argmax
    from nbxtensor.ops.argmax import argmin as argmin
    from nbxtensor.ops.arithmetic import abs as abs
    from nbxtensor.ops.arithmetic import add as add
    from nbxtensor.ops.arithmetic import ceil as ceil
    from nbxtensor.ops.arithmetic import floor as floor
    from nbxtensor.ops.arithmetic import floor_divide as floor_divide
    from nbxtensor.ops.arithmetic import isfinite as isfinite
    from nbxtensor.ops.arithmetic import isinf as isinf
    from nbxtensor.ops.arithmetic import isnan as isnan
    from nbxtensor.ops.arithmetic import maximum as maximum
    from nbxtensor.ops.arithmetic import minimum as minimum
    from nbxtensor.ops.arithmetic import multiply as multiply
    from nbxtensor.ops.arithmetic import negative as negative
    from nbxtensor.ops.arithmetic import positive as positive
    from nbxtensor.ops.arithmetic import remainder as remainder
    from nbxtensor.ops.arithmetic import round as round
    from nbxtensor.ops.arithmetic import sign as sign
    from nbxtensor.ops.arithmetic import square as square
    from nbxtensor.ops.arithmetic import subtract as subtract
    from nbxtensor.ops.arithmetic import trunc as trunc
    from nbxtensor.ops.comparison import bitwise_and as bitwise_and
    from nbxtensor.ops.comparison import bitwise_invert as bitwise_invert
    from nbxtensor.ops.comparison import bitwise_left_shift as bitwise_left_shift
    from nbxtensor.ops.comparison import bitwise_or as bitwise_or
    from nbxtensor.ops.comparison import bitwise_right_shift as bitwise_right_shift
    from nbxtensor.ops.comparison import bitwise_xor as bitwise_xor
    from nbxtensor.ops.comparison import equal as equal
    from nbxtensor.ops.comparison import greater as greater
    from nbxtensor.ops.comparison import greater_equal as greater_equal
    from nbxtensor.ops.comparison import less as less
    from nbxtensor.ops.comparison import less_equal as less_equal
    from nbxtensor.ops.comparison import logical_and as logical_and
    from nbxtensor.ops.comparison import logical_not as logical_not
    from nbxtensor.ops.comparison import logical_or as logical_or
    from nbxtensor.ops.comparison import logical_xor as logical_xor
    from nbxtensor.ops.comparison import not_equal as not_equal
    from nbxtensor.ops.concat import concat as concat
    from nbxtensor.ops.concat import repeat as repeat
    from nbxtensor.ops.concat import stack as stack
    from nbxtensor.ops.concat import tile as tile
    from nbxtensor.ops.copy import astype as astype
    from nbxtensor.ops.copy import clip as clip
    from nbxtensor.ops.copy import copy as copy
    from nbxtensor.ops.copy import where as where
    from nbxtensor.ops.cos import cos as cos
    from nbxtensor.ops.create import arange as arange
    from nbxtensor.ops.create import empty_like as empty_like
    from nbxtensor.ops.create import eye as eye
    from nbxtensor.ops.create import full as full
    from nbxtensor.ops.create import full_like as full_like
    from nbxtensor.ops.create import linspace as linspace
    from nbxtensor.ops.create import ones as ones
    from nbxtensor.ops.create import ones_like as ones_like
    from nbxtensor.ops.create import tril as tril
    from nbxtensor.ops.create import triu as triu
    from nbxtensor.ops.create import zeros as zeros
    from nbxtensor.ops.create import zeros_like as zeros_like
    from nbxtensor.ops.cumulative import cumulative_max as cumulative_max
    from nbxtensor.ops.cumulative import cumulative_min as cumulative_min
    from nbxtensor.ops.cumulative import cumulative_prod as cumulative_prod
    from nbxtensor.ops.cumulative import cumulative_sum as cumulative_sum
    from nbxtensor.ops.divide import divide as divide
    from nbxtensor.ops.divide import reciprocal as reciprocal
    from nbxtensor.ops.exp import exp as exp
    from nbxtensor.ops.expm1 import expm1 as expm1
    from nbxtensor.ops.log import log as log
    from nbxtensor.ops.log1p import log1p as log1p
    from nbxtensor.ops.matmul import matmul as matmul
    from nbxtensor.ops.max import max as max
    from nbxtensor.ops.max import min as min
    from nbxtensor.ops.mean import mean as mean
    from nbxtensor.ops.pad import pad as pad
    from nbxtensor.ops.pow import pow as pow
    from nbxtensor.ops.prod import prod as prod
    from nbxtensor.ops.sin import sin as sin
    from nbxtensor.ops.sort import argsort as argsort
    from nbxtensor.ops.sort import sort as sort
    from nbxtensor.ops.sort import sort_with_indices as sort_with_indices
    from nbxtensor.ops.sort import topk as topk
    from nbxtensor.ops.sqrt import sqrt as sqrt
    from nbxtensor.ops.sum import sum as sum
    from nbxtensor.ops.take import take as take
    from nbxtensor.ops.take import take_along_axis as take_along_axis
    from nbxtensor.ops.tanh import tanh as tanh
    from nbxtensor.tensor.create import asarray as asarray
    from nbxtensor.tensor.create import from_dlpack as from_dlpack
    from nbxtensor.tensor.create import from_numpy as from_numpy
    from nbxtensor.tensor.create import to_numpy as to_numpy
    from nbxtensor.tensor.defaults import default_device as default_device
    from nbxtensor.tensor.defaults import set_default_device as set_default_device
    from nbxtensor.tensor.defaults import stream as stream
    from nbxtensor.tensor.info import can_cast as can_cast
    from nbxtensor.tensor.info import finfo as finfo
    from nbxtensor.tensor.info import iinfo as iinfo
    from nbxtensor.tensor.info import isdtype as isdtype
    from nbxtensor.tensor.info import result_type as result_type
    from nbxtensor.tensor.namespace import __array_namespace_info__ as __array_namespace_info__
    from nbxtensor.tensor.tensor import Tensor as Tensor
    from nbxtensor.tensor.tensor import empty as empty
    from nbxtensor.tensor.views import broadcast_arrays as broadcast_arrays
    from nbxtensor.tensor.views import broadcast_to as broadcast_to
    from nbxtensor.tensor.views import expand_dims as expand_dims
    from nbxtensor.tensor.views import flip as flip
    from nbxtensor.tensor.views import matrix_transpose as matrix_transpose
    from nbxtensor.tensor.views import moveaxis as moveaxis
    from nbxtensor.tensor.views import permute_dims as permute_dims
    from nbxtensor.tensor.views import reshape as reshape
    from nbxtensor.tensor.views import squeeze as squeeze
    from nbxtensor.tensor.views import unstack as unstack

__version__ = "0.1.0"
__array_api_version__ = "2024.12"

_PUBLIC = {
    "nbxtensor.base.dtypes": (
        "bfloat16 bool float16 float32 float64 float8_e4m3fn float8_e5m2 int16 int32 int64 int8 uint16 uint32 "
        "uint64 uint8"
    ),
    "nbxtensor.device.registry": "discover",
    "nbxtensor.ops.any": "all any",
    "nbxtensor.ops.argmax": "argmax argmin",
    "nbxtensor.ops.arithmetic": (
        "abs add ceil floor floor_divide isfinite isinf isnan maximum minimum multiply negative positive "
        "remainder round sign square subtract trunc"
    ),
    "nbxtensor.ops.comparison": (
        "bitwise_and bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor equal "
        "greater greater_equal less less_equal logical_and logical_not logical_or logical_xor not_equal"
    ),
    "nbxtensor.ops.concat": "concat repeat stack tile",
    "nbxtensor.ops.copy": "astype clip copy where",
    "nbxtensor.ops.cos": "cos",
    "nbxtensor.ops.create": "arange empty_like eye full full_like linspace ones ones_like tril triu zeros zeros_like",
    "nbxtensor.ops.divide": "divide reciprocal",
    "nbxtensor.ops.exp": "exp",
    "nbxtensor.ops.expm1": "expm1",
    "nbxtensor.ops.log": "log",
    "nbxtensor.ops.log1p": "log1p",
    "nbxtensor.ops.matmul": "matmul",
    "nbxtensor.ops.max": "max min",
    "nbxtensor.ops.mean": "mean",
    "nbxtensor.ops.pad": "pad",
    "nbxtensor.ops.pow": "pow",
    "nbxtensor.ops.cumulative": "cumulative_max cumulative_min cumulative_prod cumulative_sum",
    "nbxtensor.ops.prod": "prod",
    "nbxtensor.ops.sin": "sin",
    "nbxtensor.ops.sort": "argsort sort sort_with_indices topk",
    "nbxtensor.ops.sqrt": "sqrt",
    "nbxtensor.ops.sum": "sum",
    "nbxtensor.ops.take": "take take_along_axis",
    "nbxtensor.ops.tanh": "tanh",
    "nbxtensor.tensor.create": "asarray from_dlpack from_numpy to_numpy",
    "nbxtensor.tensor.defaults": "default_device set_default_device stream",
    "nbxtensor.tensor.info": "can_cast finfo iinfo isdtype result_type",
    "nbxtensor.tensor.namespace": "__array_namespace_info__",
    "nbxtensor.tensor.tensor": "Tensor empty",
    "nbxtensor.tensor.views": (
        "broadcast_arrays broadcast_to expand_dims flip matrix_transpose moveaxis permute_dims reshape squeeze unstack"
    ),
}
_MODULES = ("nn", "onnx")
_CONSTANTS = {
    "e": 2.718281828459045,
    "pi": 3.141592653589793,
    "inf": float("inf"),
    "nan": float("nan"),
    "newaxis": None,
}
_HOME = {name: module for module, names in _PUBLIC.items() for name in names.split()}

table.loader = lambda: importlib.import_module("nbxtensor.ops")


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    elif name in _CONSTANTS:
        value = _CONSTANTS[name]
    elif name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_CONSTANTS, *_MODULES})
