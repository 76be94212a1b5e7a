"""The Tensor: a buffer on a device, seen through a shape and strides."""

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, ClassVar, SupportsIndex

import numpy as np

from nbxtensor.base import dtypes, shapes
from nbxtensor.base.dtypes import DType
from nbxtensor.base.errors import ArgumentError
from nbxtensor.device.protocol import Buffer, Device
from nbxtensor.tensor import host, indexing, interchange, printing, views
from nbxtensor.tensor.defaults import resolve_device
from nbxtensor.tensor.dispatch import table
from nbxtensor.tensor.form import Form, contiguous_form, form_of
from nbxtensor.tensor.operators import Operators


class Tensor(Operators):
    """An n-dimensional array of one dtype on one device.

    Views (slices, transposes, broadcasts, most reshapes) share the buffer; an assignment to a view is seen by all.
    Make tensors with `nbxtensor.asarray`, `nbxtensor.empty` and their like rather than with this constructor, which
    checks nothing.

    Attributes
    ----------
    buffer
        Memory that holds the elements; shared by views and kept alive by them.
    shape, strides
        Size and step of each axis, both in elements.
    offset
        Elements from the start of the buffer to the first element.
    ptr
        Address of the first element.
    form
        All that the tensor is apart from its memory: one object for all tensors alike.
    dtype
        Type of the elements.
    device
        Where the buffer is.
    """

    __slots__ = ("__weakref__", "buffer", "device", "dtype", "form", "offset", "ptr", "shape", "strides")

    __array_priority__: ClassVar[float] = 1000.0
    __array_ufunc__: ClassVar[None] = None  # NumPy's operators defer to ours

    buffer: Buffer
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: DType
    device: Device

    def __init__(
        self,
        buffer: Buffer,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        offset: int,
        dtype: DType,
        device: Device,
        form: Form | None = None,
    ) -> None:
        self.buffer = buffer
        self.shape = shape
        self.strides = strides
        self.offset = offset
        self.dtype = dtype
        self.device = device
        self.ptr = buffer.ptr + offset * dtype.itemsize if offset else buffer.ptr
        self.form = form_of(shape, strides, dtype, device) if form is None else form

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.form.size

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements (of a broadcast view: as if it were copied)."""
        return self.form.nbytes

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        return self.form.contiguous

    @property
    def readonly(self) -> bool:
        """Whether the memory must not be written (it came from a read-only NumPy array or DLPack tensor)."""
        return self.buffer.readonly

    def as_view(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> "Tensor":
        """Another tensor on the same buffer; nothing is checked."""
        return Tensor(self.buffer, shape, strides, offset, self.dtype, self.device)

    # Views

    @property
    def T(self) -> "Tensor":  # noqa: N802 (the standard's name)
        """The transpose of a matrix; only for two axes."""
        return views.transpose(self)

    @property
    def mT(self) -> "Tensor":  # noqa: N802
        """The tensor with its last two axes exchanged."""
        return views.matrix_transpose(self)

    def reshape(self, *shape: Any, copy: bool | None = None) -> "Tensor":
        """See `nbxtensor.reshape`; the shape may be given as one sequence or as separate ints."""
        return views.reshape(self, shape[0] if len(shape) == 1 else shape, copy=copy)

    def flatten(self) -> "Tensor":
        """The elements along one axis, in row-major order; a view where the layout allows it."""
        return views.reshape(self, (-1,))

    def permute_dims(self, *axes: Any) -> "Tensor":
        """See `nbxtensor.permute_dims`; the axes may be given as one sequence or as separate ints."""
        return views.permute_dims(self, axes[0] if len(axes) == 1 else axes)

    def broadcast_to(self, *shape: Any) -> "Tensor":
        """See `nbxtensor.broadcast_to`; the shape may be given as one sequence or as separate ints."""
        return views.broadcast_to(self, shape[0] if len(shape) == 1 else shape)

    def expand_dims(self, axis: int | Sequence[int] = 0) -> "Tensor":
        """See `nbxtensor.expand_dims`."""
        return views.expand_dims(self, axis)

    def squeeze(self, axis: int | Sequence[int] | None = None) -> "Tensor":
        """See `nbxtensor.squeeze`; without an axis, every axis of size 1 goes."""
        return views.squeeze(self, axis)

    # Indexing

    def __getitem__(self, key: Any) -> "Tensor":
        return indexing.getitem(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        indexing.setitem(self, key, value)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __iter__(self) -> Iterator["Tensor"]:
        if not self.shape:
            raise TypeError("iteration over a 0-d tensor")
        shape, strides = self.shape[1:], self.strides[1:]
        return (self.as_view(shape, strides, self.offset + i * self.strides[0]) for i in range(self.shape[0]))

    # Values

    def item(self) -> bool | int | float:
        """The value of a tensor with one element, as a Python scalar."""
        return host.item(self, "item")

    def tolist(self) -> Any:
        """The values as nested lists of Python scalars (a scalar for a 0-d tensor)."""
        return host.to_numpy(self).tolist()

    def __bool__(self) -> bool:
        return bool(host.item(self, "bool"))

    def __int__(self) -> int:
        return int(host.item(self, "int"))

    def __float__(self) -> float:
        return float(host.item(self, "float"))

    def __complex__(self) -> complex:
        return complex(host.item(self, "complex"))

    def __index__(self) -> int:
        if self.shape or not self.dtype.is_integer:
            raise TypeError(f"only a 0-d integer tensor is an index; got {self.dtype} of shape {self.shape}")
        return int(host.item(self, "index"))

    def __repr__(self) -> str:
        return printing.represent(self)

    def __str__(self) -> str:
        return printing.values(self)

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and not self.shape else format(str(self), spec)

    # Conversion

    def astype(self, dtype: Any, *, copy: bool = True) -> "Tensor":
        """The tensor in another dtype; with ``copy=False``, itself if it has that dtype already."""
        target = dtypes.dtype(dtype, "nbx.astype")
        return self if target is self.dtype and not copy else table["astype"](self, target)

    def copy(self) -> "Tensor":
        """A contiguous copy."""
        return table["copy"](self)

    def __copy__(self) -> "Tensor":
        return table["copy"](self)

    def __deepcopy__(self, memo: object) -> "Tensor":
        return table["copy"](self)

    def __reduce__(self) -> tuple[Any, ...]:
        return restore, (host.state(self), self.dtype, self.shape, self.device.name)

    def to_device(self, device: str | Device, /, *, stream: Any = None) -> "Tensor":
        """The tensor on `device`: itself if it is there, else a copy that is complete when this returns.

        Parameters
        ----------
        device
            A device or its name.
        stream
            Must be None: copies are ordered on the current streams.
        """
        if stream is not None:
            raise ArgumentError("to_device", "a stream cannot be given", got=stream, allowed="None")
        return host.to_device(self, resolve_device(device))

    def numpy(self) -> "np.ndarray[Any, Any]":
        """The values as a NumPy array: without a copy on the CPU, copied from elsewhere."""
        return host.to_numpy(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> "np.ndarray[Any, Any]":
        return host.as_array(self, dtype, copy)

    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        return interchange.namespace(api_version)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        return interchange.to_dlpack(self, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return interchange.dlpack_device(self)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return interchange.cuda_array_interface(self)


def restore(bits: "np.ndarray[Any, Any] | None", dtype: DType, shape: tuple[int, ...], device: str) -> Tensor:
    """The tensor that was pickled: its bits (None from a device without values), on the device of that name."""
    target = resolve_device(device)
    if bits is None:
        return new(shape, dtype, target)
    cpu = resolve_device("cpu")
    return host.to_device(Tensor(*host.adopt(bits), dtype, cpu), target)


def new(shape: tuple[int, ...], dtype: DType, device: Device) -> Tensor:
    """Uninitialised contiguous tensor; `shape` is a checked tuple of ints. The quick way for operators."""
    form = contiguous_form(shape, dtype, device)
    return Tensor(device.allocate(form.nbytes), shape, form.strides, 0, dtype, device, form)


def empty(shape: SupportsIndex | Sequence[int], dtype: Any = None, device: str | Device | None = None) -> Tensor:
    """Uninitialised tensor.

    Parameters
    ----------
    shape
        An int or a sequence of ints.
    dtype
        Type of the elements; by default float32.
    device
        A device or its name; by default `nbxtensor.default_device`.
    """
    checked = shapes.as_shape(shape, "nbx.empty")
    return new(
        checked,
        dtypes.default_float if dtype is None else dtypes.dtype(dtype, "nbx.empty"),
        resolve_device(device),
    )
