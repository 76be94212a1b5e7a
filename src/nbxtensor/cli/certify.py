"""``nbxtensor certify``: prove and time settings, write certificates."""

import json
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from nbxtensor.base.errors import ArgumentError
from nbxtensor.base.text import counted
from nbxtensor.certify.census import Census, Entry
from nbxtensor.certify.run import Certifier, Outcome, Report, Status, certify, standing
from nbxtensor.certify.store import read, table_path
from nbxtensor.cli.certify_calls import call_options, census_of, device_for
from nbxtensor.cli.outputs import require_tables, tables_folder
from nbxtensor.cli.show import progress_bar
from nbxtensor.device.protocol import Device
from nbxtensor.tuning.certificate import encode
from nbxtensor.tuning.tables import named_tables

FUNCTION = "nbxtensor certify"
MANY = 10
STATUSES: tuple[Status, ...] = ("certified", "partly", "stale", "uncertified")
"""The best first."""
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600}


def seconds_of(text: str) -> float:
    """``120``, ``120s``, ``5min`` or ``1h`` in seconds."""
    number = text.rstrip("smhin")
    try:
        value = float(number) * _UNITS[text[len(number) :] or "s"]
    except (ValueError, KeyError):
        value = -1.0
    if not 0 <= value < 1e9:
        raise ArgumentError(FUNCTION, "--budget needs a time", got=text, allowed="as in 120s, 5min or 1h")
    return value


def setting_text(setting: Any) -> str:
    """A setting in a few words: what it says beyond zeros."""
    return " ".join(f"{n}={v}" for n, v in encode(setting).items() if v not in (0, False, "")) or "-"


@contextmanager
def progress(total: int) -> Generator[Callable[[Outcome], None]]:
    """A function that shows each outcome: a bar on a terminal, else a line each, on standard error."""

    def lines(outcome: Outcome) -> Iterator[str]:
        yield outcome.line
        yield from (f"           thrown out: {setting_text(s)}: {reason}" for s, reason in outcome.thrown_out)

    if not sys.stderr.isatty():
        yield lambda outcome: print("\n".join(lines(outcome)), file=sys.stderr, flush=True)
        return
    with progress_bar("certifying", total) as (update, line):

        def advance(outcome: Outcome) -> None:
            update(advance=1, description=str(outcome.key)[:50])
            if outcome.verdict == "refused" or outcome.thrown_out:
                line("\n".join(lines(outcome)))

        yield advance


def best_standing(entry: Entry, device: Device, folder: Path) -> tuple[Status, str]:
    """What the tables that launches look into, and those of `folder`, say of a key at best, and which one says it."""
    key, own = entry.key, table_path(folder, entry.key.arch, entry.key.operator)
    found: list[tuple[Status, str]] = []
    for where, table in ({str(own): read(own)} | named_tables(key.arch, key.operator)).items():
        if str(key) in table:
            found.append((standing(entry, table[str(key)], device).status, where))
    return min(found, key=lambda one: STATUSES.index(one[0]), default=("uncertified", ""))


def show_list(census: Census, entries: Sequence[Entry], folder: Path, as_json: bool) -> None:
    """Print the keys, their candidates, and what which table says of them."""
    rows: list[dict[str, Any]] = []
    for entry in entries:
        status, where = best_standing(entry, census.device, folder)
        candidates, calls = [encode(c) for c in entry.candidates], [str(e) for e in entry.examples]
        rows.append({"key": str(entry.key), "status": status, "table": where, "candidates": candidates, "calls": calls})
    if as_json:
        click.echo(json.dumps({"keys": rows, "left_out": census.left_out}, indent=1))
        return
    for row in rows:
        calls = row["calls"]
        more = f" and {len(calls) - 1} more" if len(calls) > 1 else ""
        candidates = counted(len(row["candidates"]), "candidate")
        by = f"  by {row['table']}" if row["table"] else ""
        click.echo(f"{row['status']:11}  {candidates:>12}  {row['key']}  {calls[0]}{more}{by}")
    counts = Counter((row["status"], row["table"]) for row in rows)
    for (status, where), count in sorted(counts.items()):
        click.echo(f"{count:5} {status}{f' by {where}' if where else ''}")
    click.echo(f"{counted(len(rows), 'key')}")


def show_report(report: Report, certifier: Certifier, as_json: bool) -> None:
    """Print what a run did."""
    counts = {
        v: sum(o.verdict == v for o in report.outcomes) for v in ("chosen", "tie", "extended", "covered", "refused")
    }
    took = sum(o.seconds for o in report.outcomes)
    if as_json:
        keys = [
            {
                "key": str(o.key),
                "verdict": o.verdict,
                "setting": None if o.setting is None else encode(o.setting),
                "seconds": round(o.seconds, 3),
                "time": {} if o.certificate is None else dict(o.certificate.time),
                "thrown_out": [{"setting": encode(s), "reason": r} for s, r in o.thrown_out],
            }
            for o in report.outcomes
        ]
        click.echo(json.dumps({"counts": counts, "left": report.left, "folder": str(certifier.folder), "keys": keys}))
        return
    parts = [f"{n} {verdict}" for verdict, n in counts.items() if n]
    click.echo(f"{', '.join(parts) or 'nothing done'}; {took:.1f} s; tables in {certifier.folder}")
    if report.left:
        click.echo(f"the time was over: {counted(report.left, 'key')} left; the same command goes on there")


@click.command()
@call_options
@click.option("--output", default=None, type=click.Path(path_type=Path), help="Folder of the tables (NBX_TABLES).")
@click.option("--budget", default=None, metavar="TIME", help="Begin no key after this time: 120s, 5min.")
@click.option("--again", is_flag=True, help="Prove and time also what is certified.")
@click.option(
    "--list", "only_list", is_flag=True, help="Print keys, candidates, and which table certifies them; run nothing."
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(
    name: str | None,
    arch: str | None,
    output: Path | None,
    budget: str | None,
    again: bool,
    only_list: bool,
    as_json: bool,
    **calls: Any,
) -> int:
    """Prove every setting of launch keys, time those that are right, and write certificates.

    Without --op and --model the calls of the benchmarks and one of each operator are certified. What is done is on
    disk at once: a run that is cut off goes on where it was, and several may run side by side.

    Exit status: 0; 1 if the declared default of a key is not proved; 2 for a mistake in the command.

    \b
    Examples:
      nbxtensor certify --op softmax --shapes 65536x1024 --dtype bfloat16
      nbxtensor certify --op add --shapes 64x1024 --shapes 1024
      nbxtensor certify --op 'topk(float32[64, 32000], k=50), exp(float16[64:1, 1000:64])'
      nbxtensor certify --model model.onnx --dim batch=1,8 --budget 5min
      nbxtensor certify --arch sm_90 --list
    """
    end = None if budget is None else seconds_of(budget)
    device = device_for(name, arch, only_list, FUNCTION)
    census = census_of(device, function=FUNCTION, **calls)
    folder = tables_folder(output, FUNCTION)
    # Keys that many operators share come last: they take longest.
    entries = sorted(census.entries.values(), key=lambda entry: len(entry.examples) > MANY)
    if only_list:
        show_list(census, entries, folder, as_json)
        return 0
    if not entries:
        mend = "name calls that launch a kernel, as in --op 'softmax(float32[64, 1000])'"
        raise ArgumentError(FUNCTION, "these calls launch nothing", mend=mend)
    require_tables(folder, device.target.arch, (entry.key.operator for entry in entries), FUNCTION)
    certifier = Certifier(device, folder, again)
    with progress(len(entries)) as show:
        report = certify(certifier, entries, end, show)
    for call, reason in census.left_out.items():
        print(f"left out: {call}: {reason}", file=sys.stderr)
    show_report(report, certifier, as_json)
    return 1 if any(o.verdict == "refused" for o in report.outcomes) else 0
