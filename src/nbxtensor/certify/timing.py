"""Timing proved settings: they take turns, with operands in the cache and without."""

import math
import statistics
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from nbxtensor.certify.calls import values_for
from nbxtensor.certify.memory import set_bytes
from nbxtensor.certify.variants import Case
from nbxtensor.device import cuda_driver
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.call_text import Example, Spec, place
from nbxtensor.kernel.tuned import forget_plans
from nbxtensor.tensor.host import raw
from nbxtensor.tensor.tensor import Tensor
from nbxtensor.tuning.choose import forced, observed
from nbxtensor.tuning.key import LaunchKey

NOISE = 0.02
"""Part of the default's time by which a winner must be faster, and more than the spread."""
ROUNDS = 9
SAMPLE = 2e-3
"""Seconds of one sample, at least one call."""
LONGEST = 2.0
"""Seconds of all samples of one setting, beyond which there are fewer rounds."""
FEWEST = 3
GPU_CACHE, CPU_CACHE = 256 << 20, 64 << 20
"""Bytes that are written, or read, so that nothing of the operands is left in a cache."""

RUN = 4
"""Calls between two events where the operands are in the cache."""

Call = Callable[[], object]


class Clock(Protocol):
    """Measures seconds of a call."""

    def seconds(self, call: Call, calls: int, cold: bool) -> float:
        """The median of `calls` calls; `cold`: the operands are in no cache when each begins."""
        ...


class HostClock:
    """Wall time."""

    def __init__(self) -> None:
        self._buffer = np.zeros(CPU_CACHE // 8)

    def seconds(self, call: Call, calls: int, cold: bool) -> float:
        if cold:
            taken: list[float] = []
            for _ in range(min(calls, 3)):
                self._buffer.sum()
                begin = time.perf_counter()
                call()
                taken.append(time.perf_counter() - begin)
            return statistics.median(taken)
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - begin) / calls


class EventClock:
    """Time between two events on the stream, as the GPU sees it."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._driver = cuda_driver.open_driver()
        self._buffer = device.allocate(GPU_CACHE)
        self._events: list[Any] = []

    def _event(self, number: int) -> Any:
        while len(self._events) <= number:
            self._events.append(self._checked("making an event", self._driver.cuEventCreate(0)))
        return self._events[number]

    def _record(self, event: Any) -> None:
        stream = self._driver.CUstream(self._device.current_stream)
        self._checked("recording an event", self._driver.cuEventRecord(event, stream))

    def _checked(self, doing: str, result: tuple[Any, ...]) -> Any:
        return cuda_driver.call(self._driver, "certify", doing, result)

    def seconds(self, call: Call, calls: int, cold: bool) -> float:
        """The GPU empties its cache first, while the host queues what is timed: the host's own time does not show."""
        run = 1 if cold else min(calls, RUN)
        count = -(-calls // run)
        for number in range(count):
            set_bytes(self._device, self._buffer.ptr, GPU_CACHE, number & 1)
            if not cold:
                call()  # brings the operands back
            self._record(self._event(2 * number))
            for _ in range(run):
                call()
            self._record(self._event(2 * number + 1))
        self._device.synchronize()
        return statistics.median(self._between(2 * n, 2 * n + 1) / run for n in range(count))

    def _between(self, begin: int, end: int) -> float:
        result = self._driver.cuEventElapsedTime(self._events[begin], self._events[end])
        return float(self._checked("reading an event", result)) * 1e-3


def clock_for(device: Device) -> Clock:
    """How calls on a device are timed."""
    return HostClock() if device.host_accessible else EventClock(device)


@dataclass(frozen=True, slots=True)
class Time:
    """Median and quartiles over the rounds, in seconds."""

    median: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """Half the distance of the quartiles, as a part of the median."""
        return (self.high - self.low) / 2 / self.median


@dataclass(frozen=True, slots=True)
class Timed:
    """Times of one setting on one call, with the operands in no cache and in the cache."""

    cold: Time
    warm: Time


def _time(samples: list[float]) -> Time:
    low, middle, high = (float(q) for q in np.quantile(samples, (0.25, 0.5, 0.75)))
    return Time(middle, low, high)


def operands_of(example: Example, device: Device) -> list[Any]:
    """Operands of random values."""
    large = Case(example, "timed", "huge")
    left = iter(values_for(large, "normal"))

    def placed(spec: Spec) -> Tensor:
        tensor = place(spec, device)
        device.copy_from_host(tensor.buffer.ptr, raw(next(left)))
        return tensor

    return example.map(placed)


def timed(
    key: LaunchKey, settings: Sequence[Any], example: Example, device: Device, clock: Clock, elsewhere: bool = False
) -> list[Timed]:
    """Times of each setting on a call; `elsewhere`: operands that fit a cache do not lie where others did."""
    operands = operands_of(example, device)
    if elsewhere and sum((s.span[1] - s.span[0]) * s.dtype.itemsize for s in example.specs) <= CPU_CACHE:
        operands, _taken = operands_of(example, device), operands

    def call() -> object:
        return example.call(operands, device)

    rounds, calls = _plan(key, settings, call, clock)
    samples: dict[tuple[int, bool], list[float]] = {}
    order = list(range(len(settings)))
    for number in range(rounds):
        turn = number % len(order)
        for at in order[turn:] + order[:turn]:
            with _chosen(key, settings[at], call):
                for cold in (True, False):
                    samples.setdefault((at, cold), []).append(clock.seconds(call, calls[at], cold))
    forget_plans()
    return [Timed(_time(samples[at, True]), _time(samples[at, False])) for at in order]


@contextmanager
def _chosen(key: LaunchKey, setting: Any, call: Call) -> Generator[None]:
    forget_plans()
    with forced(key.operator, key.variant, setting), observed():
        call()
        call()
        yield


def _plan(key: LaunchKey, settings: Sequence[Any], call: Call, clock: Clock) -> tuple[int, list[int]]:
    """Rounds, and calls of a sample of each setting."""
    calls: list[int] = []
    longest = 0.0
    for setting in settings:
        with _chosen(key, setting, call):
            once = min(clock.seconds(call, 1, False) for _ in range(2))
        calls.append(max(1, min(100, math.ceil(SAMPLE / max(once, 1e-7)))))
        longest = max(longest, 2 * once * calls[-1])
    most = ROUNDS if len(settings) > 1 else FEWEST
    return max(FEWEST, min(most, int(LONGEST / longest))), calls


@dataclass(frozen=True, slots=True)
class Choice:
    """The setting that is used.

    Attributes
    ----------
    at
        Its position among those timed; 0 is the default.
    figures
        For the certificate: microseconds and spread, of the setting and of the default.
    """

    at: int
    figures: dict[str, Any]


def _ratio(pairs: Sequence[tuple[Time, Time]]) -> float:
    """Geometric mean of the first times as parts of the second ones."""
    return math.exp(statistics.fmean(math.log(a.median / b.median) for a, b in pairs))


def choose(times: Sequence[Sequence[Timed]]) -> Choice:
    """The best of several settings, timed on the same calls.

    A setting's time is the geometric mean over the calls of its cold time as a part of the default's. The default
    stays unless the best is faster by more than `NOISE` and by more than the spread of both, and no slower when warm.

    Parameters
    ----------
    times
        For each call, the times of each setting, the default's first.
    """
    count = len(times[0])
    ratio = [_ratio([(t[at].cold, t[0].cold) for t in times]) for at in range(count)]
    spread = [statistics.fmean(t[at].cold.spread for t in times) for at in range(count)]
    best = min(range(count), key=ratio.__getitem__)
    warm = _ratio([(t[best].warm, t[0].warm) for t in times])
    if 1 - ratio[best] <= max(NOISE, spread[best] + spread[0]) or warm > 1 + NOISE:
        best = 0

    def micro(at: int, cold: bool) -> float:
        medians = [(t[at].cold if cold else t[at].warm).median for t in times]
        return float(f"{1e6 * math.exp(statistics.fmean(map(math.log, medians))):.3f}")

    figures = {
        "us": micro(best, True),
        "warm": micro(best, False),
        "default": micro(0, True),
        "default_warm": micro(0, False),
        "spread": round(max(spread[best], spread[0]), 3),
        "timed": count,
    }
    return Choice(best, figures)
