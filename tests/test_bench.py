"""The measuring harness: medians of turns, ratios, tables."""

from bench.harness import COPY, OURS, Call, Case, measure, slower, table


class ScriptedClock:
    """Answers with the cost that a contestant states by itself; notes who was called when."""

    def __init__(self) -> None:
        self.order: list[str] = []

    def seconds(self, call: Call, calls: int) -> float:
        name, cost = call()  # type: ignore[misc]
        self.order.append(name)
        return cost


def contestant(name: str, *costs: float) -> Call:
    remaining = list(costs)
    return lambda: (name, remaining.pop(0) if len(remaining) > 1 else remaining[0])


def test_the_figure_is_the_median_of_interleaved_rounds() -> None:
    clock = ScriptedClock()
    # four calls come first: one to warm up, three to choose the number of calls
    ours = contestant(OURS, 9, 9, 9, 9, 1, 5, 2, 7, 3)
    row = measure(Case("exp", "1", {OURS: ours, "torch": contestant("torch", 6.0)}), clock, rounds=5)
    assert row.seconds == {OURS: 3, "torch": 6.0}
    assert row.ratio("torch") == 2.0
    assert clock.order[-10:] == [OURS, "torch", "torch", OURS] * 2 + [OURS, "torch"]


def test_share_of_copy_counts_bytes() -> None:
    calls = {OURS: contestant(OURS, 3.0), "numpy": contestant("numpy", 2.4), COPY: contestant(COPY, 2.0)}
    row = measure(Case("add", "8", calls, nbytes=96, copy_nbytes=64), ScriptedClock(), rounds=1)
    assert row.share_of_copy() == 1.0
    assert row.peers == ["numpy"]
    assert slower([row]) == ["add 8 (0 threads): numpy takes 0.80 of our time"]
    assert slower([row], 0.75) == []
    assert "0.80" in table([row])
    assert "100%" in table([row])
