"""Small ONNX graphs for tests, and the comparison with onnxruntime."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto, helper, numpy_helper

import nbxtensor as nbx

Array = np.ndarray[Any, Any]
TOLERANCE = 1e-4


def as_initializer(name: str, array: Array) -> Any:
    return numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)


def graph(
    nodes: Sequence[Any],
    inputs: Mapping[str, Array],
    outputs: Sequence[str],
    *,
    constants: Mapping[str, Array] | None = None,
    opset: int = 17,
    dynamic: bool = True,
    types: Mapping[str, int] | None = None,
) -> ModelProto:
    """A model; its inputs have the dtypes of the arrays, and their shapes unless `dynamic`."""
    ports = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(a.dtype), [None] * a.ndim if dynamic else list(a.shape)
        )
        for name, a in inputs.items()
    ]
    made = helper.make_graph(
        list(nodes),
        "test",
        ports,
        [helper.make_tensor_value_info(o, (types or {}).get(o, 1), None) for o in outputs],
        [as_initializer(n, a) for n, a in (constants or {}).items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def oracle(model: bytes, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """What onnxruntime computes without optimisation."""
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 3
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, settings, ["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(None, dict(inputs)), strict=True))


def assert_close(got: Array, expected: Array) -> None:
    """Equal shapes and dtypes; floats within 1e-4 of the largest finite value, all else equal."""
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    if expected.dtype.kind != "f":
        np.testing.assert_array_equal(got, expected)
        return
    finite = expected[np.isfinite(expected)]
    limit = TOLERANCE * (float(np.abs(finite).max()) if finite.size else 1.0)
    if expected.dtype == np.float16:
        limit *= 20
    np.testing.assert_allclose(got, expected, rtol=0, atol=limit)


def run(model: ModelProto, inputs: Mapping[str, Array], device: str) -> dict[str, Array]:
    outputs = nbx.onnx.load(model.SerializeToString(), device)(**inputs)
    return {name: np.asarray(nbx.to_numpy(tensor)) for name, tensor in outputs.items()}


def compare(model: ModelProto, inputs: Mapping[str, Array], device: str) -> None:
    """Run a model here and in onnxruntime."""
    expected = oracle(model.SerializeToString(), inputs)
    got = run(model, inputs, device)
    assert got.keys() == expected.keys()
    for name, array in expected.items():
        assert_close(got[name], array)
