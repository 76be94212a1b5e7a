"""Calls of operators; see `nbxtensor.kernel.call_text`."""

from nbxtensor.kernel.call_text import Example, Spec

__all__ = ["Example", "Spec"]
