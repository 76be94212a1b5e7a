"""Batch invariance: a row gives the same bits alone and among others, in every setting, on every run.

For each declared operator that has rows (`tools.invariance.cases`): the row alone in the declared default, and the same
row first, in the middle and last among 2, 7, 64 and 1,000 in every candidate of every launch key that these calls meet,
and as it is chosen. Then every setting that the shipped tables certify and no case met, on a call it was certified for.
Rows of 257 elements are tried 100 times each, those of other lengths 10 times, large calls less. They hold normal
values, values whose sums cancel, and special ones in turn. All the while another thread launches other operators (on a
GPU on a stream of its own). Exit status 1 if a bit differs.

    PYTHONPATH=src:. python -m tools.invariance --device cpu --json bench/results/invariance_cpu.json
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.harness import machine
from tools.invariance.cases import LENGTHS, LONG, NO_ROWS, QUICK, Case, Extent, all_cases, without_cases
from tools.invariance.certified import Certified, Found, certified_cases, unmet
from tools.invariance.other import OtherWork
from tools.invariance.runs import Check, Tally, jobs_of, takes

from nbxtensor.base import dtypes
from nbxtensor.base.text import counted
from nbxtensor.certify.run import driver_of
from nbxtensor.cli.show import progress_bar
from nbxtensor.compiler.compile import compile_many
from nbxtensor.compiler.sources import sources_hash
from nbxtensor.device import get
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.declare import operators

Advance = Callable[[str], None]
CERTIFIED = "certified calls"


@contextmanager
def progress(what: str, total: int) -> Generator[Advance]:
    """A function that is called before each of `total` steps with its name; a bar on a terminal."""
    if not sys.stderr.isatty():
        yield lambda name: None
        return
    with progress_bar(what, total) as (update, _):
        yield lambda name: update(advance=1, description=f"{what} {name}"[:60])


def compile_all(cases: dict[str, list[Case]], certified: list[Certified], device: Device) -> int:
    """Compile all that will be launched, in parallel; how many kernels that is."""
    jobs = jobs_of([c for some in cases.values() for c in some], device)
    jobs += [job for one in certified for job in jobs_of([one.case], device, one.settings)]
    jobs = list({job.identity: job for job in jobs}.values())
    with progress("compiling", len(jobs)) as advance:
        compile_many(jobs, lambda done, total, name: advance(name))
    return len(jobs)


def check_all(
    cases: dict[str, list[Case]], certified: list[Certified], device: Device, repeats: int
) -> dict[str, Tally]:
    """What came of each operator's cases."""
    check, tallies = Check(device, repeats), dict[str, Tally]()
    with progress("checking", sum(map(len, cases.values())) + len(certified)) as advance:
        for name, some in cases.items():
            tally = tallies[name] = Tally()
            for case in some:
                advance(str(case))
                check.run(case, tally)
        for one in certified:
            advance(str(one.case))
            check.run(one.case, tallies.setdefault(CERTIFIED, Tally()), one.settings)
    return tallies


def table(tallies: dict[str, Tally]) -> str:
    """A line for each operator."""
    head = ("operator", "cases", "settings", "calls", "repeats", "rows compared", "differing")
    body = [
        (
            name,
            str(t.cases),
            str(len(t.settings)),
            f"{t.runs:,}",
            f"{t.fewest} to {t.most}" if t.fewest != t.most else str(t.most),
            f"{t.compared:,}",
            str(t.differing),
        )
        for name, t in tallies.items()
    ]
    total = [sum(getattr(t, what) for t in tallies.values()) for what in ("cases", "runs", "compared", "differing")]
    settings = len(set[str]().union(*(t.met for t in tallies.values())))
    body.append(("all", str(total[0]), str(settings), f"{total[1]:,}", "", f"{total[2]:,}", str(total[3])))
    widths = [max(len(line[i]) for line in (head, *body)) for i in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in (head, *body)
    )


def record(tallies: dict[str, Tally]) -> dict[str, Any]:
    """The tallies as JSON values."""
    return {
        name: {
            "cases": t.cases,
            "settings": sorted(t.settings),
            "calls": t.runs,
            "repeats": [t.fewest, t.most],
            "rows": t.compared,
            "differing": t.differing,
        }
        for name, t in tallies.items()
    }


def extent_of(options: argparse.Namespace) -> Extent:
    """Lengths and dtypes that the options ask for."""
    if options.quick:
        return QUICK
    lengths = tuple(int(n) for n in options.lengths.split(","))
    kinds = tuple(dtypes.dtype(name) for name in options.dtypes.split(","))
    return Extent(tuple(n for n in lengths if n < LONG), kinds, any(n >= LONG for n in lengths))


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, help="file to write")
    parser.add_argument(
        "--repeats",
        type=int,
        default=100,
        help="of each call in each setting (100): rows of 257, up to 2^18 elements in all",
    )
    parser.add_argument("--quick", action="store_true", help="one length, two dtypes")
    parser.add_argument("--op", action="append", default=[], help="only this operator (may be repeated)")
    parser.add_argument("--part", default="1/1", help="of the operators, as in 1/3")
    parser.add_argument("--lengths", default=",".join(map(str, (*LENGTHS, LONG))), help="of rows")
    parser.add_argument("--dtypes", default="float32,bfloat16,int32", help="all lengths of the first")
    parser.add_argument("--compile-only", action="store_true", help="run nothing (--device null:sm_90 needs no GPU)")
    options = parser.parse_args(argv)
    unknown = sorted(set(options.op) - {*operators, *all_cases(QUICK)})
    if unknown:
        parser.error(f"no such operator: {', '.join(unknown)}")
    return options


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    left_out = without_cases()
    if left_out:
        print(f"operators without cases and without a reason: {', '.join(left_out)}", file=sys.stderr)
        return 1
    device = get(options.device)
    begin = time.monotonic()
    number, parts = (int(n) for n in options.part.split("/"))
    wanted = {
        name: [c for c in some if takes(c, device)] for name, some in all_cases(extent_of(options), options.op).items()
    }
    cases = dict(list(wanted.items())[number - 1 :: parts])
    empty = [name for name, some in cases.items() if not some and not options.quick]
    beyond = Found()
    if number == parts and not (options.quick or options.op):
        beyond = certified_cases(unmet(device, [c for some in wanted.values() for c in some]), device)
    certified = beyond.cases
    if options.compile_only:
        print(f"{counted(compile_all(cases, certified, device), 'kernel')}, {time.monotonic() - begin:.0f} s")
        return 0
    kernels = compile_all(cases, certified, device)
    compiled = time.monotonic()
    with OtherWork(device) as other:
        tallies = check_all(cases, certified, device, options.repeats)
    faults = [fault for t in tallies.values() for fault in t.faults]
    print(table(tallies))
    took = f"{compiled - begin:.0f} s to plan and compile, {time.monotonic() - compiled:.0f} s to run"
    print(f"{counted(kernels, 'kernel')}, {took}; {other.launched:,} other calls meanwhile")
    for name, reason in NO_ROWS.items() if not options.op else ():
        print(f"{name}: {reason}")
    for what, settings in (("certified, not tried", beyond.left), ("stale certificate", beyond.stale)):
        for setting in settings:
            print(f"{what}: {setting}")
    print("\n".join(faults or ["no bit differs"]))
    if options.json:
        content = {
            "title": "Rows alone and among others",
            "machine": {**machine(), "device": driver_of(device), "arch": device.target.arch},
            "sources": sources_hash(),
            "part": options.part,
            "seconds": {"compile": round(compiled - begin, 1), "run": round(time.monotonic() - compiled, 1)},
            "kernels": kernels,
            "other_calls": other.launched,
            "no_rows": NO_ROWS,
            "certified_not_tried": beyond.left,
            "certified_stale": beyond.stale,
            "faults": faults,
            "operators": record(tallies),
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(content, indent=1) + "\n")
        print(f"written: {options.json}")
    return int(bool(faults or empty or beyond.left))


if __name__ == "__main__":
    raise SystemExit(main())
