"""What the namespace can do, as the Array API standard's inspection functions tell it."""

from typing import Any

from nbxtensor.base import dtypes
from nbxtensor.base.dtypes import DType
from nbxtensor.base.shapes import MAX_NDIM
from nbxtensor.device import registry
from nbxtensor.tensor.defaults import default_device
from nbxtensor.tensor.info import isdtype


class NamespaceInfo:
    """The inspection functions; see the standard's ``__array_namespace_info__``."""

    def capabilities(self) -> dict[str, Any]:
        """Masks are supported as indices; shapes that depend on values need a device that computes."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": MAX_NDIM}

    def default_device(self) -> str:
        """Name of the device of new tensors."""
        return default_device().name

    def devices(self) -> list[str]:
        """Names of the devices of this machine."""
        return registry.discover()

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """Dtypes of new tensors when none is given; the same on every device."""
        return {"real floating": dtypes.default_float, "integral": dtypes.default_int, "indexing": dtypes.int64}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """Dtypes of the standard by name, of one kind or of all; the same on every device."""
        standard = [d for d in dtypes.ARITHMETIC if d not in (dtypes.float16, dtypes.bfloat16)]
        return {d.name: d for d in standard if kind is None or isdtype(d, kind)}


def __array_namespace_info__() -> NamespaceInfo:  # noqa: N807 (the standard's name)
    """Inspection functions of this namespace."""
    return NamespaceInfo()
