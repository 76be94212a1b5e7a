"""Every node handler against onnxruntime: odd attributes, and each form that the versions of the standard know."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from nbxtensor.onnx.registry import find, supported
from onnx_graphs import compare, graph

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(7)


@dataclass
class Case:
    """One node. Inputs that are None are left out; those in `constants` (by position) are constants of the model."""

    op: str
    inputs: list[Array | None]
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    opset: int = 17
    constants: tuple[int, ...] = ()
    outputs: int = 1
    types: tuple[int, ...] = (TensorProto.FLOAT,)

    def __str__(self) -> str:
        shapes = "_".join("x".join(map(str, i.shape)) or "0d" for i in self.inputs if i is not None)
        attributes = "_".join(f"{k}={v}" for k, v in self.attributes.items() if not hasattr(v, "dims"))
        return f"{self.op}-{self.opset}-{shapes}-{attributes}".replace(" ", "")


def f(*shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> Array:
    return (rng.random(shape) * 4 + 0.1).astype(np.float32)


def i64(*values: Any) -> Array:
    return np.array(values, np.int64)


def scalar(value: Any, dtype: Any = np.float32) -> Array:
    return np.array(value, dtype)


def boolean(*shape: int) -> Array:
    return rng.random(shape) < 0.5


SPECIAL = np.array([[0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.5, 2.5]], np.float32)
INTS = np.array([[7, -7, 7, -7, 0, 5]], np.int64)
DIVISORS = np.array([[2, 2, -2, -2, 3, 5]], np.int64)
BOOL = (TensorProto.BOOL,)
INT64 = (TensorProto.INT64,)

ELEMENTWISE = [
    *(Case(op, [f(3, 5)]) for op in ("Abs", "Neg", "Sign", "Exp", "Floor", "Ceil", "Tanh", "Erf", "Sigmoid", "Relu")),
    *(Case(op, [f(2, 3)]) for op in ("Sin", "Cos", "Softplus", "Softsign", "Identity", "Selu")),
    *(Case(op, [positive(3, 5)]) for op in ("Sqrt", "Log", "Reciprocal")),
    Case("Round", [np.array([0.5, 1.5, 2.5, -0.5, -1.5, 0.4], np.float32)]),
    Case("Not", [boolean(2, 3)], types=BOOL),
    *(Case(op, [f(3, 1, 5), f(4, 1)], opset=v) for op in ("Add", "Sub", "Mul", "Div") for v in (7, 21)),
    *(Case(op, [f(2, 3), scalar(0.75)], constants=(1,)) for op in ("Add", "Sub", "Mul", "Div")),
    *(Case(op, [scalar(0.75), f(2, 3)], constants=(0,)) for op in ("Sub", "Div")),
    Case("Mul", [f(3), np.full((1, 1, 1), 3, np.float32)], constants=(1,)),
    Case("Div", [INTS, DIVISORS], types=INT64),
    Case("Div", [np.array([7, 200, 9], np.uint8), np.array([2, 3, 10], np.uint8)], types=(TensorProto.UINT8,)),
    Case("Mod", [INTS, DIVISORS], types=INT64),
    Case("Mod", [INTS, DIVISORS], {"fmod": 1}, types=INT64),
    Case("Mod", [f(2, 6) * 5, positive(2, 6)], {"fmod": 1}),
    Case("Pow", [positive(2, 3), f(2, 3)]),
    Case("Pow", [f(2, 3), scalar(2.0)], constants=(1,)),
    Case("Pow", [f(2, 3), i64(3)], constants=(1,)),
    *(Case(op, [f(4, 3), f(3)], types=BOOL) for op in ("Less", "Greater", "LessOrEqual", "GreaterOrEqual")),
    Case("Equal", [INTS, np.abs(INTS)], types=BOOL),
    *(Case(op, [boolean(2, 3), boolean(3)], types=BOOL) for op in ("And", "Or", "Xor")),
    *(Case(op, [INTS, DIVISORS], opset=18, types=INT64) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")),
    Case("BitwiseNot", [INTS], opset=18, types=INT64),
    *(
        Case("BitShift", [np.array([1, 128, 7], np.uint8), np.array([1, 2, 3], np.uint8)], {"direction": d}, types=(2,))
        for d in ("LEFT", "RIGHT")
    ),
    *(Case(op, [f(2, 3), f(3), f(2, 1)]) for op in ("Max", "Min", "Sum", "Mean")),
    Case("Max", [f(2, 3)]),
    Case("Max", [SPECIAL, SPECIAL[:, ::-1]]),
    Case("IsNaN", [SPECIAL], types=BOOL),
    Case("IsInf", [SPECIAL], types=BOOL),
    Case("IsInf", [SPECIAL], {"detect_negative": 0}, types=BOOL),
    Case("Where", [boolean(4, 1), f(4, 3), f(3)]),
    Case("Where", [boolean(4, 3), scalar(0), scalar(-3.4e38)], constants=(1, 2)),
    Case("Where", [boolean(4, 3), INTS[:, :3], i64(9)], types=INT64),
    *(
        Case("Cast", [np.array([-1.5, 0, 0.5, 3.9], np.float32)], {"to": t}, types=(t,))
        for t in (TensorProto.INT64, TensorProto.INT32, TensorProto.INT8, TensorProto.FLOAT16, TensorProto.DOUBLE)
    ),
    Case("Cast", [np.array([-1.5, 0, 0.5], np.float32)], {"to": TensorProto.BOOL}, types=BOOL),
    Case("Cast", [np.array([0, 1, 255], np.uint8)], {"to": TensorProto.FLOAT}),
    Case("Cast", [boolean(6)], {"to": TensorProto.FLOAT}),
    Case("CastLike", [INTS, f(1)]),
    Case("Clip", [f(3, 4)], {"min": -0.5, "max": 0.25}, opset=7),
    Case("Clip", [f(3, 4)], {}, opset=7),
    Case("Clip", [f(3, 4), scalar(-0.5), scalar(0.25)], constants=(1, 2)),
    Case("Clip", [f(3, 4), None, scalar(0.25)], constants=(2,)),
    Case("Dropout", [f(3, 4)], {"ratio": 0.5}, opset=10),
    Case("Dropout", [f(3, 4), scalar(0.5)], constants=(1,)),
]
ACTIVATIONS = [
    Case("LeakyRelu", [f(3, 4)], {"alpha": 0.2}),
    Case("LeakyRelu", [f(3, 4)]),
    Case("Elu", [f(3, 4)], {"alpha": 1.5}),
    Case("Celu", [f(3, 4)], {"alpha": 2.0}),
    Case("PRelu", [f(2, 3, 4), positive(3, 1)]),
    Case("ThresholdedRelu", [f(3, 4)], {"alpha": 0.5}),
    Case("HardSigmoid", [f(3, 4) * 3], {"alpha": 0.3, "beta": 0.4}),
    Case("HardSwish", [f(3, 4) * 3]),
    Case("Mish", [f(3, 4)], opset=18),
    Case("Gelu", [f(3, 4)], opset=20),
    Case("Gelu", [f(3, 4)], {"approximate": "tanh"}, opset=20),
    *(Case(op, [f(2, 3, 4)], opset=v) for op in ("Softmax", "LogSoftmax") for v in (7, 12, 13)),
    *(Case(op, [f(2, 3, 4)], {"axis": a}, opset=12) for op in ("Softmax", "LogSoftmax") for a in (0, 2, -1)),
    *(Case(op, [f(2, 3, 4)], {"axis": a}) for op in ("Softmax", "LogSoftmax") for a in (0, 1)),
    Case("Hardmax", [f(2, 3, 4)], {"axis": 1}),
]
SHAPES = [
    Case("Reshape", [f(2, 3, 4), i64(0, -1)], constants=(1,)),
    Case("Reshape", [f(2, 3, 4), i64(4, 0, 2)], constants=(1,)),
    Case("Reshape", [f(0, 3), i64(3, 0)], {"allowzero": 1}, constants=(1,)),
    Case("Reshape", [f(2, 3, 4), i64(6, 4)]),
    Case("Flatten", [f(2, 3, 4)], {"axis": 2}),
    Case("Flatten", [f(2, 3, 4)], {"axis": 0}),
    Case("Flatten", [f(2, 3, 4)], {"axis": -1}),
    Case("Transpose", [f(2, 3, 4)]),
    Case("Transpose", [f(2, 3, 4)], {"perm": [1, 2, 0]}),
    Case("Squeeze", [f(1, 3, 1)], opset=11),
    Case("Squeeze", [f(1, 3, 1)], {"axes": [-1]}, opset=11),
    Case("Squeeze", [f(1, 3, 1), i64(0)], constants=(1,)),
    Case("Squeeze", [f(1, 3, 1)]),
    Case("Unsqueeze", [f(3, 4)], {"axes": [0, 3]}, opset=11),
    Case("Unsqueeze", [f(3, 4), i64(-1, 0)], constants=(1,)),
    Case("Expand", [f(3, 1), i64(2, 1, 4)], constants=(1,)),
    Case("Expand", [f(3, 4), i64(1)], constants=(1,)),
    Case("Tile", [f(2, 3), i64(2, 3)], constants=(1,)),
    Case("Tile", [f(2, 3), i64(1, 0)], constants=(1,)),
    *(Case("Concat", [f(2, 3), f(2, 1), f(2, 0)], {"axis": a}) for a in (1, -1)),
    Case("Concat", [INTS, DIVISORS], {"axis": 0}, types=INT64),
    Case("Split", [f(2, 6)], {"axis": 1}, opset=11, outputs=3),
    Case("Split", [f(2, 6)], {"axis": 1, "split": [1, 5]}, opset=11, outputs=2),
    Case("Split", [f(2, 6), i64(4, 2)], {"axis": -1}, constants=(1,), outputs=2),
    Case("Split", [f(7, 2)], {"num_outputs": 3}, opset=18, outputs=3),
    Case("Slice", [f(5, 6)], {"starts": [1, -3], "ends": [100, -1]}, opset=9),
    Case("Slice", [f(5, 6)], {"starts": [2], "ends": [4], "axes": [1]}, opset=7),
    Case("Slice", [f(5, 6), i64(1), i64(-1)], constants=(1, 2)),
    Case("Slice", [f(5, 6), i64(-1), i64(-100), i64(1), i64(-2)], constants=(1, 2, 3, 4)),
    Case("Slice", [f(5, 6), i64(10), i64(0), i64(0), i64(-1)], constants=(1, 2, 3, 4)),
    Case("Slice", [f(5, 6), i64(4, 1), i64(2, 3), i64(-2, -1), i64(-1, 1)], constants=(1, 2, 3, 4)),
    Case("Slice", [f(5, 6), i64(3), i64(3)], constants=(1, 2)),
    Case("Shape", [f(2, 3, 4)], types=INT64),
    Case("Shape", [f(2, 3, 4)], {"start": -2, "end": 100}, types=INT64),
    Case("Shape", [f(2, 3, 4)], {"start": 1, "end": -1}, types=INT64),
    Case("Size", [f(2, 3, 4)], types=INT64),
    Case("ConstantOfShape", [i64(2, 3)], constants=(0,)),
    Case("ConstantOfShape", [i64(2, 3)], {"value": helper.make_tensor("v", 7, [1], [5])}, constants=(0,), types=INT64),
    Case("Range", [scalar(2, np.int64), scalar(11, np.int64), scalar(3, np.int64)], constants=(0, 1, 2), types=INT64),
    Case("Range", [scalar(5, np.int64), scalar(-5, np.int64), scalar(-4, np.int64)], constants=(0, 1, 2), types=INT64),
    Case("Range", [scalar(5, np.int64), scalar(1, np.int64), scalar(1, np.int64)], constants=(0, 1, 2), types=INT64),
    Case("Range", [scalar(0.5), scalar(2.0), scalar(0.25)], constants=(0, 1, 2)),
    Case("DepthToSpace", [f(1, 8, 2, 3)], {"blocksize": 2}),
    Case("DepthToSpace", [f(1, 8, 2, 3)], {"blocksize": 2, "mode": "CRD"}),
    Case("SpaceToDepth", [f(1, 2, 4, 6)], {"blocksize": 2}),
    *(Case("Trilu", [f(2, 4, 3)], {"upper": u}) for u in (0, 1)),
    Case("Trilu", [f(4, 3), scalar(-1, np.int64)], constants=(1,)),
]
INDEXING = [
    Case("Gather", [f(5, 3), np.array([[0, -1], [4, 2]], np.int64)]),
    Case("Gather", [f(5, 3), np.array([0, -1], np.int32)], {"axis": 1}),
    Case("Gather", [f(5, 3), scalar(-2, np.int64)], {"axis": 0}, constants=(1,)),
    Case("Gather", [f(5, 3), np.array([[1], [-1]], np.int64)], {"axis": -1}, constants=(1,)),
    Case("GatherElements", [f(3, 4), np.array([[0, 2, -1], [1, 1, 0]], np.int64)], {"axis": 0}),
    Case("GatherElements", [f(3, 4), np.array([[0], [3], [-1]], np.int64)], {"axis": 1}),
    Case("GatherND", [f(2, 3, 4), np.array([[0, 1], [1, -1]], np.int64)]),
    Case("GatherND", [f(2, 3, 4), np.array([[[0, 1, 3]], [[1, 2, 0]]], np.int64)], constants=(1,)),
    Case("GatherND", [f(2, 3, 4), np.array([[1], [2]], np.int64)], {"batch_dims": 1}),
    Case("GatherND", [boolean(2, 3), np.array([[0, 1], [1, 2]], np.int64)], types=BOOL),
    *(Case(op, [f(3, 4)], {"axis": 1, "keepdims": k}, types=INT64) for op in ("ArgMax", "ArgMin") for k in (0, 1)),
    *(
        Case(op, [np.array([[1, 3, 3], [2, 0, 0]], np.float32)], {"axis": 1, "select_last_index": last}, types=INT64)
        for op in ("ArgMax", "ArgMin")
        for last in (0, 1)
    ),
    Case("OneHot", [np.array([0, 2, -1], np.int64), scalar(3, np.int64), f(2)], constants=(1,)),
    Case("OneHot", [np.array([[0, 2], [1, -1]], np.int64), scalar(3, np.int64), f(2)], {"axis": 0}, constants=(1,)),
    Case("Pad", [f(2, 3)], {"pads": [1, 0, 0, 2], "value": 0.5}, opset=9),
    Case("Pad", [f(2, 3), i64(1, 0, 0, 2)], constants=(1,)),
    Case("Pad", [f(4, 3), i64(-1, 0, 0, 2), scalar(9)], constants=(1, 2)),
    Case("Pad", [f(4, 3), i64(2, 1, 1, 2)], {"mode": "reflect"}, constants=(1,)),
    Case("Pad", [f(4, 3), i64(2, 1, 1, 5)], {"mode": "edge"}, constants=(1,)),
    Case("Pad", [f(4, 3), i64(2, 1, 1, 2)], {"mode": "wrap"}, opset=19, constants=(1,)),
    Case("Pad", [f(4, 3), i64(1, 2), scalar(1), i64(-1)], opset=18, constants=(1, 2, 3)),
]


def reductions() -> list[Case]:
    cases: list[Case] = []
    for op in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"):
        data = positive(2, 3, 4) if op == "LogSum" else f(2, 3, 4)
        cases.append(Case(f"Reduce{op}", [data], {"axes": [0, -1], "keepdims": 0}, opset=11))
        cases.append(Case(f"Reduce{op}", [data, i64(1)], opset=18, constants=(1,)))
        cases.append(Case(f"Reduce{op}", [data], {"keepdims": 0}, opset=18))
    cases += [
        Case("ReduceSum", [f(2, 3), i64(-1)], {"keepdims": 0}, opset=13, constants=(1,)),
        Case("ReduceSum", [f(2, 3)], {"noop_with_empty_axes": 1}, opset=13),
        Case("ReduceSum", [INTS.astype(np.int32)], {"keepdims": 0}, opset=13, types=(TensorProto.INT32,)),
        Case("ReduceMax", [INTS], {"keepdims": 0}, opset=13, types=INT64),
        Case("ReduceLogSumExp", [np.array([[-np.inf, 1.0], [200.0, 199.0]], np.float32)], {"axes": [1]}, opset=13),
    ]
    return cases


NORMALIZATION = [
    *(Case("MatMul", [f(*a), f(*b)]) for a, b in (((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((2, 1, 2, 3), (4, 3, 2)))),
    *(Case("MatMul", [f(*a), f(*b)]) for a, b in (((3,), (3, 4)), ((2, 3), (3,)), ((3,), (3,)))),
    Case("Gemm", [f(2, 3), f(3, 4), f(4)]),
    Case("Gemm", [f(3, 2), f(4, 3), f(2, 1)], {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}),
    Case("Gemm", [f(2, 3), f(3, 4)], {"alpha": 2.0}),
    *(
        Case("BatchNormalization", [f(2, 3, 4), f(3), f(3), f(3), positive(3)], {"epsilon": 1e-3}, v, (1, 2, 3, 4))
        for v in (7, 9, 14, 15)
    ),
    Case("InstanceNormalization", [f(2, 3, 4, 5), f(3), f(3)]),
    Case("GroupNormalization", [f(2, 4, 3), f(2), f(2)], {"num_groups": 2}, opset=18),
    Case("GroupNormalization", [f(2, 4, 3), f(4), f(4)], {"num_groups": 2}, opset=21),
    Case("LayerNormalization", [f(2, 3, 8), f(8), f(8)], {"epsilon": 1e-6}),
    Case("LayerNormalization", [f(2, 3, 8), f(8)]),
    Case("LayerNormalization", [f(2, 3, 8), f(3, 8), f(3, 8)], {"axis": 1}),
    Case("LayerNormalization", [f(2, 3, 8), f(8), f(8)], outputs=3, types=(1, 1, 1)),
    *(Case("LpNormalization", [f(3, 4)], {"p": p, "axis": 0}) for p in (1, 2)),
    Case("MeanVarianceNormalization", [f(2, 3, 4, 5)]),
    Case("DequantizeLinear", [np.array([[0, 200, 255]], np.uint8), scalar(0.5), scalar(128, np.uint8)]),
    Case("DequantizeLinear", [np.array([[-3, 5], [7, -128]], np.int8), positive(2)], {"axis": 0}, opset=13),
    Case("QuantizeLinear", [f(3, 4) * 100, scalar(0.5), scalar(3, np.int8)], types=(TensorProto.INT8,)),
    Case("QuantizeLinear", [f(3, 4) * 100, scalar(0.5)], types=(TensorProto.UINT8,)),
]
CONVOLUTION = [
    Case("Conv", [f(2, 3, 9), f(4, 3, 3), f(4)], {"kernel_shape": [3]}, constants=(1, 2)),
    Case("Conv", [f(1, 4, 8, 7), f(6, 2, 3, 2)], {"group": 2, "strides": [2, 1], "pads": [1, 0, 1, 0]}),
    Case("Conv", [f(1, 4, 9, 9), f(4, 1, 3, 3), f(4)], {"group": 4, "dilations": [2, 2], "pads": [2, 2, 2, 2]}),
    Case("Conv", [f(1, 2, 6, 7), f(3, 2, 3, 3)], {"pads": [0, 1, 2, 1]}),
    *(
        Case("Conv", [f(1, 2, 6, 7), f(3, 2, 3, 2)], {"auto_pad": m, "strides": [2, 2]})
        for m in ("SAME_UPPER", "SAME_LOWER", "VALID")
    ),
    Case("Conv", [f(1, 2, 4, 5, 6), f(3, 2, 2, 3, 2), f(3)], {"pads": [0, 1, 0, 0, 1, 0]}),
    Case("MaxPool", [f(1, 2, 9)], {"kernel_shape": [3], "strides": [2]}),
    Case("MaxPool", [f(1, 2, 7, 8)], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}),
    Case("MaxPool", [f(1, 2, 7, 8)], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, opset=12),
    Case("MaxPool", [f(1, 2, 9, 9)], {"kernel_shape": [2, 3], "dilations": [2, 2]}, opset=12),
    Case("MaxPool", [f(1, 1, 5, 6, 7)], {"kernel_shape": [2, 2, 2]}),
    Case("MaxPool", [f(1, 1, 6, 7)], {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    Case("AveragePool", [f(1, 2, 9)], {"kernel_shape": [3], "strides": [2]}),
    *(
        Case(
            "AveragePool",
            [f(1, 2, 7, 8)],
            {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "count_include_pad": c},
            opset=11,
        )
        for c in (0, 1)
    ),
    Case("AveragePool", [f(1, 1, 6, 7)], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, opset=19),
    Case("AveragePool", [f(1, 1, 6, 7)], {"kernel_shape": [2, 3], "auto_pad": "SAME_LOWER"}),
    *(Case(op, [f(2, 3, 4, 5)]) for op in ("GlobalAveragePool", "GlobalMaxPool")),
    *(Case(op, [f(2, 3, 4)]) for op in ("GlobalAveragePool", "GlobalMaxPool")),
]
TRANSPOSED = [
    Case("ConvTranspose", [f(1, 3, 5), f(3, 2, 3), f(2)], {"strides": [2]}),
    Case("ConvTranspose", [f(2, 4, 4, 5), f(4, 3, 3, 2)], {"strides": [2, 3], "pads": [1, 0, 1, 1], "group": 2}),
    Case("ConvTranspose", [f(1, 2, 4, 4), f(2, 3, 3, 3)], {"strides": [2, 2], "output_padding": [1, 0]}),
    Case("ConvTranspose", [f(1, 2, 4, 4), f(2, 3, 3, 3)], {"dilations": [2, 1], "pads": [3, 3, 0, 0]}),
    Case("ConvTranspose", [f(1, 2, 4, 4), f(2, 3, 3, 3)], {"strides": [2, 2], "output_shape": [8, 9]}),
    *(
        Case("ConvTranspose", [f(1, 2, 4, 5), f(2, 3, 3, 3)], {"strides": [2, 2], "auto_pad": m})
        for m in ("SAME_UPPER", "SAME_LOWER", "VALID")
    ),
]


def resizes() -> list[Case]:
    x, empty = f(1, 2, 4, 5), np.zeros(0, np.float32)
    scales = np.array([1, 1, 2.5, 1.5], np.float32)
    cases = [
        Case("Upsample", [x], {"scales": [1.0, 1.0, 2.0, 3.0]}, opset=7),
        Case("Upsample", [x, np.array([1, 1, 2, 2], np.float32)], {"mode": "linear"}, opset=9, constants=(1,)),
        Case("Resize", [x, np.array([1, 1, 2, 0.5], np.float32)], opset=10, constants=(1,)),
        Case("Resize", [x, empty, empty, i64(1, 2, 8, 3)], {"mode": "linear"}, opset=11, constants=(1, 2, 3)),
        Case("Resize", [x, None, None, i64(7, 3)], {"mode": "linear", "axes": [2, 3]}, opset=18, constants=(3,)),
        Case("Resize", [x, None, scales], {"mode": "cubic"}, opset=13, constants=(2,)),
        Case("Resize", [INTS.reshape(1, 1, 2, 3).astype(np.int32), None, scales], opset=13, constants=(2,), types=(6,)),
    ]
    for where in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"):
        for mode in ("nearest", "linear"):
            attributes = {"mode": mode, "coordinate_transformation_mode": where}
            cases.append(Case("Resize", [x, None, scales], attributes, opset=13, constants=(2,)))
    for rounding in ("round_prefer_ceil", "floor", "ceil"):
        cases.append(Case("Resize", [x, None, scales], {"nearest_mode": rounding}, opset=13, constants=(2,)))
    return cases


CASES = [
    *ELEMENTWISE,
    *ACTIVATIONS,
    *SHAPES,
    *INDEXING,
    *reductions(),
    *NORMALIZATION,
    *CONVOLUTION,
    *TRANSPOSED,
    *resizes(),
]
UNTESTED = {"Constant", "TopK", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh"}


def model_of(case: Case) -> tuple[Any, dict[str, Array]]:
    names = ["" if a is None else f"i{n}" for n, a in enumerate(case.inputs)]
    arrays = {n: a for n, a in zip(names, case.inputs, strict=True) if a is not None}
    constants = {f"i{n}": arrays[f"i{n}"] for n in case.constants}
    inputs = {n: a for n, a in arrays.items() if n not in constants}
    outputs = [f"o{n}" for n in range(case.outputs)]
    kinds = case.types * (case.outputs // len(case.types))
    node = helper.make_node(case.op, names, outputs, name="node", **case.attributes)
    types = dict(zip(outputs, kinds, strict=True))
    return graph([node], inputs, outputs, constants=constants, opset=case.opset, types=types), inputs


@pytest.mark.parametrize("case", CASES, ids=str)
def test_node(case: Case, device: str) -> None:
    model, inputs = model_of(case)
    compare(model, inputs, device)


def test_every_handler_has_a_case() -> None:
    tested = {id(find(c.op, c.opset)) for c in CASES}
    assert [f"{h.op} from {h.since}" for h in supported() if id(h) not in tested and h.op not in UNTESTED] == []


def test_the_page_lists_every_handler() -> None:
    text = (Path(__file__).parents[1] / "docs/onnx.md").read_text()
    listed = {line.split("|")[1].strip(): line.split("|")[2].strip() for line in text.splitlines() if "-21 |" in line}
    known: dict[str, list[int]] = {}
    for handler in supported():
        known.setdefault(handler.op, []).append(max(handler.since, 7))
    assert listed.keys() >= {op for op in known if op != "Upsample"}
    assert {op: f"{min(since)}-21" for op, since in known.items() if op in listed} == listed
