"""Devices: where tensors live and kernels run."""

from nbxtensor.device.registry import discover, get

__all__ = ["discover", "get"]
