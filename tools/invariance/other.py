"""Other work on the device while rows are compared."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np

import nbxtensor as nbx
from nbxtensor.device.protocol import Device
from nbxtensor.tuning.choose import observed


class OtherWork:
    """A thread that launches other operators all the while, on a stream of its own where the device has streams.

    Attributes
    ----------
    launched
        Calls so far.
    error
        What ended it.
    """

    SHAPE = (61, 1031)  # of no case: plans are kept by shape, and this thread's are in no forced setting

    def __init__(self, device: Device, pause: float = 0.0002) -> None:
        self.device = device
        self.launched = 0
        self.error: BaseException | None = None
        self._pause = pause
        self._end = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="other work", daemon=True)
        self._interval = sys.getswitchinterval()

    def __enter__(self) -> "OtherWork":
        sys.setswitchinterval(1e-4)  # else every launch waits long for the other thread's Python
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        sys.setswitchinterval(self._interval)
        if self.error is not None:
            raise RuntimeError("the other work on the device failed") from self.error

    def _run(self) -> None:
        try:
            new_stream: Any = getattr(self.device, "new_stream", None)
            with nullcontext() if new_stream is None else nbx.stream(new_stream(), self.device):
                self._launch()
        except BaseException as error:  # raised again by the thread that waits for this one
            self.error = error
        finally:
            self._ready.set()

    def _launch(self) -> None:
        values = np.random.default_rng(0).standard_normal(self.SHAPE).astype(np.float32)
        x = nbx.asarray(values, device=self.device)
        calls: Iterator[Callable[[], Any]] = _in_turn(
            lambda: nbx.exp(x), lambda: nbx.nn.softmax(x), lambda: nbx.sum(x, axis=-1), lambda: nbx.add(x, x)
        )
        with observed():
            while not self._end.is_set():
                next(calls)()
                self.launched += 1
                if self.launched >= 4:  # all are compiled
                    self._ready.set()
                self._end.wait(self._pause)


def _in_turn(*calls: Callable[[], Any]) -> Iterator[Callable[[], Any]]:
    while True:
        yield from calls
