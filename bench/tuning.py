"""What tuning gives and what buckets cost: certified settings, the default, and the exact best of each call.

For each certificate of a key with several candidates, all of them are timed on the call that it was given for, and on
a smaller call of the same bucket (shapes reduced by an eighth), which takes the same setting without having been
timed. ``gain``: the default's time over the certified setting's; ``loss``: the certified setting's over that of the
best candidate for exactly this call, which is 1 where nothing is lost.

The best is the fastest in a first series; all times come from a second one. The least of several noisy times is too
low, and a loss that uses it says more about the noise than about the settings. What seems to lose more than 5 % is
repeated, and the series with the middle loss is kept.

    PYTHONPATH=src:. python -m bench.tuning --device cuda --tables src/nbxtensor/tuning/tables --json OUT.json

With ``--second FOLDER``, tables that another run of the certifier wrote, it compares the two runs instead: where they
chose different settings, these are timed beside each other.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nbxtensor.base.errors import NbxError
from nbxtensor.base.shapes import contiguous_strides
from nbxtensor.certify.census import Census, Entry
from nbxtensor.certify.prove import Prover
from nbxtensor.certify.run import calls_of, driver_of
from nbxtensor.certify.timing import Clock, clock_for, timed
from nbxtensor.device import get
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.call_text import Example, Spec
from nbxtensor.tuning.certificate import Certificate, encode, read_table
from nbxtensor.tuning.tables import SHIPPED

EXACT = 64
"""Sizes up to this are buckets of their own."""
LOST, AGAIN = 1.05, 4
"""A loss beyond which a call is timed again, and how often."""


@dataclass(frozen=True)
class Row:
    """One call: microseconds of three settings."""

    key: str
    call: str
    certified_here: bool
    default_us: float
    certified_us: float
    best_us: float

    @property
    def gain(self) -> float:
        return self.default_us / self.certified_us

    @property
    def loss(self) -> float:
        return self.certified_us / self.best_us


def smaller(example: Example) -> Example:
    """The call with all long axes an eighth shorter, multiples of 16 where they were."""

    def shrink(size: int) -> int:
        if size <= EXACT:
            return size
        less = size - size // 8
        return less // 16 * 16 if size % 16 == 0 else less

    def change(spec: Spec) -> Spec:
        shape = tuple(map(shrink, spec.shape))
        return Spec(shape, contiguous_strides(shape), spec.dtype)

    return example.with_specs(change)


def entry_of(example: Example, key: str, device: Device) -> Entry | None:
    """The entry of a key among those that a call asks for."""
    census = Census(device)
    try:
        census.add(example)
    except NbxError:
        return None
    return next((e for k, e in census.entries.items() if str(k) == key), None)


def certificates(folder: Path, arch: str, only: str) -> Iterator[Certificate]:
    for path in sorted((folder / arch).glob("*.json")):
        for one in read_table(path.read_text(), str(path)).values():
            if only in one.key:
                yield one


def allowed(entry: Entry, call: Example, device: Device) -> list[Any]:
    """The candidates that are not thrown out from their binaries, which a certifier would not time either."""
    prover = Prover(entry, device, examples=[call])
    prover.compile()
    return [p.setting for p in prover.proofs if not p.reason]


def row_of(
    entry: Entry, settings: list[Any], chosen: int, call: Example, here: bool, device: Device, clock: Clock
) -> Row:
    """The best of a first series, and its time, the default's and the chosen setting's in a second one."""

    def series() -> list[float]:
        return [1e6 * t.cold.median for t in timed(entry.key, settings, call, device, clock)]

    first, second = series(), series()
    best = min(range(len(first)), key=first.__getitem__)
    return Row(str(entry.key), str(call), here, second[0], second[chosen], second[best])


def rows_of(certificate: Certificate, device: Device, clock: Clock) -> Iterator[Row]:
    example = calls_of(certificate)[0]
    for here, call in ((True, example), (False, smaller(example))):
        entry = entry_of(call, certificate.key, device)
        if entry is None or len(entry.candidates) < 2 or (not here and call == example):
            continue
        settings = allowed(entry, call, device)
        chosen = next((i for i, s in enumerate(settings) if encode(s) == certificate.setting), None)
        if chosen is None or len(settings) < 2:
            continue
        rows = [row_of(entry, settings, chosen, call, here, device, clock)]
        if rows[0].loss > LOST:
            rows += [row_of(entry, settings, chosen, call, here, device, clock) for _ in range(AGAIN)]
        yield sorted(rows, key=lambda row: row.loss)[len(rows) // 2]


def summary(rows: list[Row]) -> dict[str, Any]:
    def of(values: list[float]) -> dict[str, float]:
        return {"median": round(statistics.median(values), 3), "worst": round(max(values), 3)} if values else {}

    found: dict[str, Any] = {}
    for name, here in (("the certified call", True), ("another call of its bucket", False)):
        some = [r for r in rows if r.certified_here is here]
        gains = [r.gain for r in some]
        found[name] = {
            "calls": len(some),
            "loss": of([r.loss for r in some]),
            "gain": {"median": round(statistics.median(gains), 3), "most": round(max(gains), 3)} if gains else {},
            "over 5 % lost": sorted(f"{r.call} {r.loss:.2f}" for r in some if r.loss > LOST),
        }
    return found


def compared(first: Certificate, second: Certificate, device: Device, clock: Clock) -> float:
    """Time of what a second run of the certifier chose, as a part of the time of what the first one did."""
    entry = entry_of(call := calls_of(first)[0], first.key, device)
    assert entry is not None
    a, b = (next(s for s in entry.candidates if encode(s) == one.setting) for one in (first, second))
    before, after = (t.cold.median for t in timed(entry.key, (a, b), call, device, clock))
    return after / before


def twice(tables: Path, second: Path, device: Device, clock: Clock, only: str) -> dict[str, Any]:
    """What two runs of the certifier chose for the keys that both know."""
    known = {one.key: one for one in certificates(tables, device.target.arch, only)}
    pairs = [(known[b.key], b) for b in certificates(second, device.target.arch, only) if b.key in known]
    differing: dict[str, dict[str, Any]] = {}
    for a, b in pairs:
        if a.setting != b.setting:
            ratio = sorted(compared(a, b, device, clock) for _ in range(3))[1]
            differing[a.key] = {"first": a.setting, "second": b.setting, "time": round(ratio, 3)}
    return {"keys": len(pairs), "same": len(pairs) - len(differing), "differing": differing}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tables", type=Path, default=SHIPPED)
    parser.add_argument("--second", type=Path, help="tables of another run of the certifier")
    parser.add_argument("--only", default="", help="keys that contain this")
    parser.add_argument("--budget", type=float, default=600.0, help="seconds")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device = get(options.device)
    clock, end = clock_for(device), time.monotonic() + options.budget
    if options.second:
        found = twice(options.tables, options.second, device, clock, options.only)
        write(options.json, {"arch": device.target.arch, "driver": driver_of(device), **found})
        return
    rows: list[Row] = []
    left = 0
    for certificate in certificates(options.tables, device.target.arch, options.only):
        if time.monotonic() > end:
            left += 1
            continue
        for row in rows_of(certificate, device, clock):
            rows.append(row)
            print(f"{row.loss:5.2f} loss {row.gain:5.2f} gain  {row.certified_us:10.2f} us  {row.call}", flush=True)
    found = summary(rows)
    print(f"{left} certificates left out when the time was over")
    report = {"arch": device.target.arch, "driver": driver_of(device), "left": left, "summary": found}
    write(options.json, report, {"rows": [asdict(r) for r in rows]})


def write(path: Path | None, report: dict[str, Any], more: dict[str, Any] | None = None) -> None:
    """Print the report, and write it with the rest to a file."""
    print(json.dumps(report, indent=1))
    if path:
        path.write_text(json.dumps({**report, **(more or {})}, indent=1) + "\n")


if __name__ == "__main__":
    main()
