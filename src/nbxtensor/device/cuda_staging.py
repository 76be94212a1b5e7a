"""Copies between the host and the GPU through pinned memory.

A copy from ordinary host memory makes the driver wait for the GPU's earlier work first; through pinned slots the host
goes on as soon as the bytes have left its buffer. Slots are used in turn, so filling one overlaps with the transfer of
another.
"""

import ctypes
import threading
from collections import deque
from typing import Any

import numpy as np

from nbxtensor.base.errors import ArgumentError
from nbxtensor.device.cuda_driver import call
from nbxtensor.device.cuda_stream import Context, Event

SLOT_BYTES = 4 << 20
_SLOTS = 4
_PORTABLE = 1


def _address(host: memoryview, function: str) -> int:
    if not host.c_contiguous:
        raise ArgumentError(function, "the host memory is not contiguous")
    return np.frombuffer(host, dtype=np.uint8).ctypes.data if host.nbytes else 0


class Staging:
    """Pinned slots of one device; made when first used, kept for the life of the process."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._driver: Any = context.driver
        self._lock = threading.Lock()
        self._slots: deque[tuple[int, Event]] = deque()

    def _turn(self) -> tuple[int, Event]:
        """The next slot, free to be used."""
        if len(self._slots) < _SLOTS:
            ptr = call(
                self._driver, "copy", "allocating pinned memory", self._driver.cuMemHostAlloc(SLOT_BYTES, _PORTABLE)
            )
            slot = int(ptr), Event(self._driver)
        else:
            slot = self._slots.popleft()
            slot[1].wait()
        self._slots.append(slot)
        return slot

    def to_device(self, ptr: int, host: memoryview) -> None:
        """Copy `host` to `ptr` in the order of the current stream; `host` may be reused on return."""
        line = self._context.line
        source, total = _address(host, "copy_from_host"), host.nbytes
        with self._lock, self._context.current():
            for at in range(0, total, SLOT_BYTES):
                size = min(SLOT_BYTES, total - at)
                slot, event = self._turn()
                ctypes.memmove(slot, source + at, size)
                result = self._driver.cuMemcpyHtoDAsync(ptr + at, slot, size, line.stream)
                call(self._driver, "copy_from_host", "copying to the GPU", result)
                event.record(line.stream)

    def to_host(self, host: memoryview, ptr: int) -> None:
        """Copy from `ptr` to `host` after all work on the current stream; complete on return."""
        line = self._context.line
        if host.readonly:
            raise ArgumentError("copy_to_host", "the host memory is read-only")
        target, total = _address(host, "copy_to_host"), host.nbytes
        with self._lock, self._context.current():
            arriving: deque[tuple[int, Event, int, int]] = deque()
            for at in range(0, total, SLOT_BYTES):
                if len(arriving) == _SLOTS:
                    self._arrive(target, *arriving.popleft())
                size = min(SLOT_BYTES, total - at)
                slot, event = self._turn()
                result = self._driver.cuMemcpyDtoHAsync(slot, ptr + at, size, line.stream)
                call(self._driver, "copy_to_host", "copying from the GPU", result)
                event.record(line.stream)
                arriving.append((slot, event, at, size))
            while arriving:
                self._arrive(target, *arriving.popleft())

    @staticmethod
    def _arrive(target: int, slot: int, event: Event, at: int, size: int) -> None:
        event.wait()
        ctypes.memmove(target + at, slot, size)
