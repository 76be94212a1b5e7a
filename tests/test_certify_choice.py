"""Which of several proved settings is used: times, their noise, and where operands lie."""

from typing import Any

import numpy as np
import pytest

import nbxtensor as nbx
from certify_ops import timed
from nbxtensor.certify import timing
from nbxtensor.certify.census import Census
from nbxtensor.certify.timing import Timed, choose, clock_for, operands_of
from nbxtensor.device import get
from nbxtensor.kernel.call_text import Example, call_of


def test_a_winner_must_beat_the_default_by_more_than_the_noise() -> None:
    assert choose([[timed(1.0), timed(0.99)]]).at == 0
    assert choose([[timed(1.0), timed(0.9)]]).at == 1
    assert choose([[timed(1.0, 0.08), timed(0.9, 0.08)]]).at == 0
    assert choose([[timed(1.0), timed(1.1), timed(0.8)]]).at == 2


def test_a_winner_must_not_lose_where_operands_are_in_the_cache() -> None:
    cold, slow = timed(0.8).cold, timed(1.1).cold
    assert choose([[timed(1.0), Timed(cold, slow)]]).at == 0
    assert choose([[timed(1.0), Timed(cold, timed(1.0).cold)]]).at == 1


def test_operators_that_share_a_key_are_weighed_together() -> None:
    assert choose([[timed(1.0), timed(0.8)], [timed(1.0), timed(1.3)]]).at == 0
    found = choose([[timed(1e-6), timed(0.5e-6)], [timed(4e-6), timed(2e-6)]])
    assert found.at == 1
    assert found.figures["us"] == 1.0
    assert found.figures["default"] == 2.0


def test_operands_of_a_second_series_lie_elsewhere(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    census = Census(get(device))
    census.add(call_of("sum(float32[64, 100], axis=0)"))
    (entry,) = census.entries.values()
    places: list[int] = []

    def placed(example: Example, device: Any) -> list[Any]:
        operands = operands_of(example, device)
        places.append(operands[0].ptr)
        return operands

    monkeypatch.setattr(timing, "operands_of", placed)
    for elsewhere in (False, True):
        timing.timed(entry.key, entry.candidates, entry.examples[0], get(device), clock_for(get(device)), elsewhere)
    assert places[0] == places[1] != places[2]


class Queue:
    """A GPU that works through what the host queues, in microseconds: a model of their clocks, that runs nothing."""

    host_accessible = False
    current_stream = 1
    CUstream = int
    ptr = 0

    def __init__(self, host: float, gpu: float) -> None:
        self.host, self.gpu = host, gpu
        self.now = self.free = 0.0
        self.events: dict[int, float] = {}

    def put(self, work: float) -> None:
        self.now += self.host
        self.free = max(self.free, self.now) + work

    def call(self) -> None:
        self.put(self.gpu)

    def allocate(self, nbytes: int) -> "Queue":
        return self

    def synchronize(self) -> None:
        self.now = self.free

    def cuEventCreate(self, flags: int) -> tuple[int, int]:  # noqa: N802 (the driver's names)
        return 0, len(self.events)

    def cuEventRecord(self, event: int, stream: int) -> tuple[int]:  # noqa: N802
        self.events[event] = max(self.free, self.now)
        return (0,)

    def cuEventElapsedTime(self, begin: int, end: int) -> tuple[int, float]:  # noqa: N802
        return 0, (self.events[end] - self.events[begin]) * 1e-3


@pytest.mark.parametrize("cold", [False, True])
def test_the_clock_of_a_gpu_does_not_show_the_host(cold: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue(host=9.0, gpu=3.0)
    monkeypatch.setattr(timing.cuda_driver, "open_driver", lambda: queue)
    monkeypatch.setattr(timing, "set_bytes", lambda *_: queue.put(70.0))
    clock = timing.EventClock(queue)
    for calls in (1, 2, 9, 100):
        assert clock.seconds(queue.call, calls, cold) == pytest.approx(3e-6)


def test_times_are_those_of_the_device(device: str) -> None:
    clock = clock_for(get(device))
    x = nbx.asarray(np.ones(1 << 25, np.float32), device=device)
    small = nbx.asarray(np.ones(16, np.float32), device=device)
    for cold in (True, False):
        nbx.exp(x), nbx.exp(small)
        large = min(clock.seconds(lambda: nbx.exp(x), 5, cold) for _ in range(3))
        little = min(clock.seconds(lambda: nbx.exp(small), 5, cold) for _ in range(3))
        assert 0 < 2 * little < large < 1
