"""Nodes against the standard's own description of their operator: counts of inputs and outputs, attributes, dtypes."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from nbxtensor.base.dtypes import DType
from nbxtensor.base.text import counted
from nbxtensor.onnx.graph import Attribute, Node, Subgraph
from nbxtensor.onnx.parse import import_onnx

_MANY = 2**31 - 1  # the standard's word for any number


@cache
def _schema(op: str, opset: int) -> Any:
    onnx = import_onnx()
    try:
        return onnx.defs.get_schema(op, opset, "")
    except onnx.defs.SchemaError:
        return None


def _fits(value: Attribute, kind: str) -> bool:
    if isinstance(value, tuple):
        element = {"INTS": int, "FLOATS": float, "STRINGS": str}.get(kind)
        return element is not None and all(type(v) is element for v in value)
    if isinstance(value, np.ndarray):
        return kind == "TENSOR"
    if isinstance(value, Subgraph):
        return kind not in ("INT", "FLOAT", "STRING", "TENSOR", "INTS", "FLOATS", "STRINGS")
    if isinstance(value, str):
        return kind == "STRING"
    return kind == ("INT" if isinstance(value, int) else "FLOAT")


def _range(low: int, high: int) -> str:
    if high >= _MANY:
        return f"at least {low}"
    return str(low) if low == high else f"{low} to {high}"


def violation(node: Node, opset: int) -> str:
    """What is wrong with the form of a node of the standard; empty if nothing is."""
    schema = _schema(node.op, opset)
    if schema is None:
        return f"opset {opset} has no operator {node.op}"
    given = len(node.inputs)
    if not schema.min_input <= given <= schema.max_input:
        return f"{counted(given, 'input')} (allowed: {_range(schema.min_input, schema.max_input)})"
    if not schema.min_output <= len(node.outputs) <= schema.max_output:
        return f"{counted(len(node.outputs), 'output')} (allowed: {_range(schema.min_output, schema.max_output)})"
    for name, value in node.attributes.items():
        known = schema.attributes.get(name)
        if known is None:
            return f"there is no attribute {name}"
        if not _fits(value, known.type.name):
            return f"attribute {name} is not of type {known.type.name}"
    for name, known in schema.attributes.items():
        if known.required and name not in node.attributes:
            return f"attribute {name} is missing"
    return ""


STANDARD_NAMES = {"float32": "float", "float64": "double"}


@cache
def _formal_types(op: str, opset: int) -> tuple[tuple[tuple[str, bool], ...], dict[str, frozenset[str]]]:
    """Per formal input its type parameter and whether it may repeat; the dtypes that each parameter allows."""
    schema = _schema(op, opset)
    onnx = import_onnx()
    variadic = onnx.defs.OpSchema.FormalParameterOption.Variadic
    formal = tuple((i.type_str if i.is_homogeneous else "", i.option == variadic) for i in schema.inputs)
    allowed = {c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints}
    return formal, allowed


def misfit(node: Node, opset: int, given: Sequence[DType | None]) -> str:
    """What is wrong with the dtypes of a node's inputs (None: left out); empty if nothing is."""
    formal, allowed = _formal_types(node.op, opset)
    bound: dict[str, DType] = {}
    for position, dtype in enumerate(given):
        parameter, repeats = formal[min(position, len(formal) - 1)]
        if dtype is None or not parameter or (position >= len(formal) and not repeats):
            continue
        name = f"tensor({STANDARD_NAMES.get(dtype.name, dtype.name)})"
        choices = allowed.get(parameter, frozenset((parameter,)))
        if name not in choices:
            return f"input number {position} cannot be of dtype {dtype.name} in opset {opset}"
        if bound.setdefault(parameter, dtype) is not dtype:
            return f"inputs must have one dtype, not {bound[parameter].name} and {dtype.name}"
    return ""
