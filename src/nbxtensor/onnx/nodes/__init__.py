"""Handlers of the standard operators, one file a chapter. Importing this package registers them all."""

from nbxtensor.onnx.nodes import activation, convolution, elementwise, indexing, normalization, reduction, resize, shape

__all__ = ["activation", "convolution", "elementwise", "indexing", "normalization", "reduction", "resize", "shape"]
