"""The form of a tensor: all that it is apart from its memory."""

from functools import lru_cache
from math import prod

from nbxtensor.base import shapes
from nbxtensor.base.dtypes import DType
from nbxtensor.device.protocol import Device


class Form:
    """Shape, strides, dtype and device of tensors. There is one object for each, so that forms compare by identity.

    Attributes
    ----------
    shape, strides
        Size and step of each axis, both in elements.
    size
        Number of elements.
    nbytes
        Bytes of a contiguous tensor of this shape.
    low, high
        First byte and one past the last byte of the elements, from the first element's address.
    contiguous
        Whether the elements lie in row-major order without gaps.
    """

    __slots__ = ("_overlaps", "contiguous", "device", "dtype", "high", "low", "nbytes", "shape", "size", "strides")

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, device: Device) -> None:
        self.shape = shape
        self.strides = strides
        self.dtype = dtype
        self.device = device
        self.size = prod(shape)
        self.nbytes = self.size * dtype.itemsize
        self.contiguous = shapes.is_contiguous(shape, strides)
        low, high = (0, self.size) if self.contiguous else shapes.extent(shape, strides)
        self.low, self.high = low * dtype.itemsize, high * dtype.itemsize
        self._overlaps: bool | None = False if self.contiguous else None

    @property
    def overlaps(self) -> bool:
        """Whether elements may share memory with each other."""
        known = self._overlaps
        if known is None:
            known = self._overlaps = shapes.may_overlap_itself(self.shape, self.strides)
        return known


@lru_cache(maxsize=8192)
def form_of(shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, device: Device) -> Form:
    """The form of these properties."""
    return Form(shape, strides, dtype, device)


@lru_cache(maxsize=8192)
def contiguous_form(shape: tuple[int, ...], dtype: DType, device: Device) -> Form:
    """The form of contiguous tensors."""
    return form_of(shape, shapes.contiguous_strides(shape), dtype, device)
