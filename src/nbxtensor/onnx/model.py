"""`Model`: an ONNX file that can be called."""

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from nbxtensor.base.dtypes import of_numpy
from nbxtensor.base.errors import (
    ArgumentError,
    DeviceError,
    DTypeError,
    ModelError,
    NotPackedError,
    ShapeError,
)
from nbxtensor.base.text import counted
from nbxtensor.device.protocol import Device
from nbxtensor.onnx import parse
from nbxtensor.onnx.check import unsupported
from nbxtensor.onnx.graph import Array, Graph, Port
from nbxtensor.onnx.registry import ContentNeededError
from nbxtensor.onnx.specialize import Specialization, specialize
from nbxtensor.onnx.unpacked import explained
from nbxtensor.program import Runner
from nbxtensor.tensor.create import asarray, to_numpy
from nbxtensor.tensor.defaults import resolve_device
from nbxtensor.tensor.tensor import Tensor

FUNCTION = "nbx.onnx.Model"
MAX_SPECIALIZATIONS = 64
MAX_CONTENT = 64
"""Elements of an input whose content may decide shapes."""

Shapes = tuple[tuple[int, ...], ...]
Key = tuple[Device, Shapes, tuple[bytes, ...]]


class Model:
    """A model read from an ONNX file.

    Call it with one keyword per input (a tensor or a NumPy array); it returns its outputs by name. For every new set
    of input shapes it makes a program once and keeps it.

    Attributes
    ----------
    inputs, outputs
        Names, dtypes and shapes, in the file's order.
    opset
        Version of the standard operators that the file states.
    """

    def __init__(self, graph: Graph, device: str | Device | None = None) -> None:
        self._graph = graph
        self._device = device
        self._named: dict[object, int] = {}
        self._constants: dict[Device, dict[int, Tensor]] = {}
        self._specializations: OrderedDict[Key, Specialization] = OrderedDict()
        self._runners: OrderedDict[Key, Runner] = OrderedDict()
        self._content: tuple[str, ...] = ()
        self._lock = Lock()
        self.inputs: tuple[Port, ...] = graph.inputs
        self.outputs: tuple[Port, ...] = graph.outputs
        self.opset = graph.opset
        self._ports = {p.name: p for p in graph.inputs}

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, ports)) for ports in (self.inputs, self.outputs))
        return f"<Model opset {self.opset}: ({inputs}) -> ({outputs})>"

    def __call__(self, /, **inputs: Any) -> dict[str, Tensor]:
        """Run the model.

        Parameters
        ----------
        inputs
            One tensor or NumPy array per input of the model, of exactly its dtype. Arrays go to the device of the
            tensors if there are any, else to the device that `load` was given.

        Returns
        -------
        dict of str to Tensor
            The outputs by name.

        Raises
        ------
        ArgumentError
            An input is missing or unknown.
        DTypeError, ShapeError
            An input does not have the dtype or shape that the model states.
        ModelError
            A node does not fit its inputs.
        NotPackedError
            A kernel is in no pack, and the compilers are not installed.
        """
        device, tensors = self._admit(inputs)
        try:
            results = self._runner(device, tensors).run(tensors)
        except NotPackedError as error:
            shapes = {p.name: t.shape for p, t in zip(self.inputs, tensors, strict=True)}
            raise explained(error, device.target, self.inputs, shapes) from None
        return dict(zip((p.name for p in self.outputs), results, strict=True))

    def specialize(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        device: str | Device | None = None,
        contents: Mapping[str, Array] | None = None,
    ) -> Specialization:
        """The model's programs for inputs of these shapes, made without running anything.

        Parameters
        ----------
        shapes
            Shape of each input by name.
        device
            Where it is going to run; by default where `load` was told.
        contents
            Inputs whose content decides shapes, where there are any.
        """
        for port in self.inputs:
            if port.name not in shapes:
                raise ArgumentError(FUNCTION, f"input {port.name} is missing", allowed=self._ports)
        self._check_shapes(shapes)
        target = resolve_device(self._device if device is None else device)
        return self._specialized(target, tuple(tuple(shapes[p.name]) for p in self.inputs), contents or {})

    def _specialized(self, device: Device, shapes: Shapes, contents: Mapping[str, Array]) -> Specialization:
        while True:
            for name in self._content:
                if name not in contents:
                    raise ModelError(FUNCTION, f"shapes depend on the content of input {name}, which is not given")
            chosen = {name: contents[name] for name in self._content}
            key = (device, shapes, tuple(a.tobytes() for a in chosen.values()))
            with self._lock:
                found = self._specializations.get(key)
                if found is not None:
                    self._specializations.move_to_end(key)
                    return found
                try:
                    by_name = {p.name: s for p, s in zip(self.inputs, shapes, strict=True)}
                    made = specialize(self._graph, device, by_name, chosen, self._named)
                except ContentNeededError as needed:
                    self._add_content(needed, dict(zip(self._ports, shapes, strict=True)))
                    continue
                self._specializations[key] = made
                if len(self._specializations) > MAX_SPECIALIZATIONS:
                    self._specializations.popitem(last=False)
                return made

    def _add_content(self, needed: ContentNeededError, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Take the inputs that a shape depends on among those whose content makes a program of its own."""
        for name in needed.roots:
            if self._ports[name].dtype.is_float or int(np.prod(shapes[name])) > MAX_CONTENT or name in self._content:
                raise ModelError(FUNCTION, f"{needed.what} depends on the content of input {name}") from needed
        self._content = tuple(sorted({*self._content, *needed.roots}))

    def _runner(self, device: Device, tensors: list[Tensor]) -> Runner:
        shapes = tuple(t.shape for t in tensors)
        contents: dict[str, Array] = {}
        while True:
            wanted = self._content
            if wanted:
                contents = {p.name: to_numpy(t) for p, t in zip(self.inputs, tensors, strict=True) if p.name in wanted}
            key = (device, shapes, tuple(contents[name].tobytes() for name in wanted))
            runner = self._runners.get(key)
            if runner is not None:
                return runner
            small = {
                p.name: to_numpy(t)
                for p, t in zip(self.inputs, tensors, strict=True)
                if not p.dtype.is_float and t.size <= MAX_CONTENT
            }
            made = self._specialized(device, shapes, small)
            if self._content != wanted:
                continue
            with self._lock:
                bound = made.bind(device, self._constants.setdefault(device, {}))
                self._runners[key] = bound
                if len(self._runners) > MAX_SPECIALIZATIONS:
                    self._runners.popitem(last=False)
            return bound

    def checked(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """`arrays` (arrays or tensors by input), in the model's order, if they are what the model takes.

        Raises as a call of the model does.
        """
        if arrays.keys() != self._ports.keys():
            for name in self._ports:
                if name not in arrays:
                    raise ArgumentError(FUNCTION, f"input {name} is missing", allowed=self._ports)
            unknown = next(name for name in arrays if name not in self._ports)
            raise ArgumentError(FUNCTION, "there is no such input", got=unknown, allowed=self._ports)
        ordered: dict[str, Any] = {}
        for port in self.inputs:
            value: Any = arrays[port.name]
            if isinstance(value, Tensor):
                got = value.dtype
            else:
                value = np.asarray(value, None if isinstance(value, np.ndarray) else port.dtype.numpy)
                got = of_numpy(value.dtype) or value.dtype
            if got is not port.dtype:
                raise DTypeError(
                    FUNCTION, f"input {port.name} has the wrong dtype", got=str(got), allowed=port.dtype.name
                )
            ordered[port.name] = value
        self._check_shapes({name: value.shape for name, value in ordered.items()})
        return ordered

    def _admit(self, inputs: Mapping[str, Any]) -> tuple[Device, list[Tensor]]:
        """The inputs in the model's order, checked, on one device."""
        values = self.checked(inputs).values()
        devices = list({id(v.device): v.device for v in values if isinstance(v, Tensor)}.values())
        if len(devices) > 1:
            raise DeviceError(FUNCTION, "inputs are on different devices", got=" and ".join(d.name for d in devices))
        device = devices[0] if devices else resolve_device(self._device)
        return device, [v if isinstance(v, Tensor) else asarray(v, device=device) for v in values]

    def _check_shapes(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        sizes: dict[str, tuple[str, int]] = {}
        for name, shape in shapes.items():
            port = self._ports.get(name)
            if port is None:
                raise ArgumentError(FUNCTION, "there is no such input", got=name, allowed=self._ports)
            if port.shape is None:
                continue
            if len(shape) != len(port.shape):
                raise ShapeError(FUNCTION, f"input {name} has the wrong rank", got=str(tuple(shape)), allowed=str(port))
            for dim, n in zip(port.shape, shape, strict=True):
                if isinstance(dim, int) and dim != n:
                    raise ShapeError(
                        FUNCTION, f"input {name} has the wrong shape", got=str(tuple(shape)), allowed=str(port)
                    )
                if isinstance(dim, str):
                    other, size = sizes.setdefault(dim, (name, n))
                    if size != n:
                        raise ShapeError(
                            FUNCTION, f"inputs {other} and {name} do not agree on {dim}", got=f"{size} and {n}"
                        )


def load(source: str | Path | bytes, device: str | Device | None = None) -> Model:
    """Read an ONNX model.

    Parameters
    ----------
    source
        Path of the file, or its bytes.
    device
        Where the model runs when it is called with NumPy arrays; by default the default device.

    Raises
    ------
    ModelError
        The file is damaged or uses nodes that are not supported; the message lists all of them.
    MissingDependencyError
        The onnx package is not installed.
    """
    graph = parse.read(source)
    lines = unsupported(graph)
    if lines:
        shown = "; ".join(lines[:20]) + (f"; and {len(lines) - 20} more" if len(lines) > 20 else "")
        raise ModelError(
            "nbx.onnx.load", counted(len(lines), "node is not supported", "nodes are not supported"), got=shown
        )
    return Model(graph, device)
