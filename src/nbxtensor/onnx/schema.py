"""Nodes against the standard's own description of their operator: counts of inputs and outputs, attributes."""

from functools import cache
from typing import Any

import numpy as np

from nbxtensor.onnx.graph import Attribute, Node, Subgraph
from nbxtensor.onnx.parse import import_onnx


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


def violation(node: Node, opset: int) -> str:
    """What is wrong with the form of a node of the standard; empty if nothing is."""
    schema = _schema(node.op, opset)
    if schema is None:
        return f"opset {opset} has no operator {node.op}"
    given = len(node.inputs)
    if not schema.min_input <= given <= schema.max_input:
        return f"{given} inputs where {schema.min_input} to {schema.max_input} are allowed"
    if not schema.min_output <= len(node.outputs) <= schema.max_output:
        return f"{len(node.outputs)} outputs where {schema.min_output} to {schema.max_output} are allowed"
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
