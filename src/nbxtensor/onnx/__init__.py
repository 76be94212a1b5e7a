"""ONNX files: `load` reads one and gives a `Model` that can be called."""

from nbxtensor.onnx.graph import Port
from nbxtensor.onnx.model import Model, load

__all__ = ["Model", "Port", "load"]
