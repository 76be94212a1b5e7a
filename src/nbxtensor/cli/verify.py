"""``nbxtensor verify``: prove certificates again on this machine."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from nbxtensor.base.errors import CertificateError
from nbxtensor.certify.run import calls_of
from nbxtensor.certify.store import read
from nbxtensor.certify.verify import Verified, as_json, summary, verify
from nbxtensor.cli.certify import seconds_of
from nbxtensor.cli.certify_calls import device_for
from nbxtensor.cli.show import print_table
from nbxtensor.compiler import packs
from nbxtensor.compiler.pack_file import SUFFIX, Pack
from nbxtensor.device.protocol import Device
from nbxtensor.kernel.call_text import check_operator
from nbxtensor.tuning.certificate import Certificate, read_table
from nbxtensor.tuning.tables import folders

FUNCTION = "nbxtensor verify"


def certificates_in(places: Sequence[Path], arch: str) -> Iterator[Certificate]:
    """The certificates for an architecture in folders of tables, in table files and in packs, which are then in use.

    Raises
    ------
    CertificateError
        A place does not exist, or a table is damaged.
    PackError
        A pack is damaged.
    """
    for place in places:
        if place.is_dir():
            for path in sorted((place / arch).glob("*.json")):
                yield from read(path).values()
        elif not place.exists():
            allowed = f"folders of tables, tables (*.json), packs (*{SUFFIX})"
            raise CertificateError(FUNCTION, "there is no such table", got=place, allowed=allowed)
        elif place.suffix == SUFFIX:
            yield from _packed(packs.use(place), arch)
        else:
            yield from (one for key, one in read(place).items() if key.endswith(f"|{arch}"))


def _packed(pack: Pack, arch: str) -> Iterator[Certificate]:
    for name, content in pack.certificates().items():
        if name.startswith(f"{arch}/"):
            yield from read_table(content.decode(errors="replace"), f"{pack.path}: {name}").values()


def all_certificates(arch: str) -> Iterator[Certificate]:
    """All that launches look into, in their order: your own before those of packs, these before the shipped ones."""
    *own, shipped = folders()
    yield from certificates_in([folder for folder in own if folder.is_dir()], arch)
    for pack in packs.in_use():
        yield from _packed(pack, arch)
    yield from certificates_in([shipped] if shipped.is_dir() else [], arch)


def _counting(several: Sequence[Certificate], device: Device) -> Verified:
    """The result for the first certificate of a key that is not stale, which is what launches take."""
    first = verify(several[0], device)
    if first.verdict != "stale":
        return first
    return next((found for one in several[1:] if (found := verify(one, device)).verdict != "stale"), first)


def show(found: Sequence[Verified], left: int, where: str) -> None:
    """Print the results as a table and a line."""
    errors = ("" if one.error is None else f"{one.error:.2f}" for one in found)
    rows = [
        (one.verdict, one.certificate.key, str(one.runs or ""), error, one.reason)
        for one, error in zip(found, errors, strict=True)
    ]
    if rows:
        print_table("", ("verdict", "key", "runs", "of the bound", "reason"), rows, right=("runs", "of the bound"))
    counts = ", ".join(f"{n} {verdict}" for verdict, n in summary(found).items() if n) or "no certificates"
    rest = f"; the time was over: {left} left" if left else ""
    click.echo(f"{where}: {counts}{rest}")


@click.command()
@click.argument("tables", nargs=-1, type=click.Path(path_type=Path))
@click.option("--op", "ops", multiple=True, metavar="NAME", help="Only keys of these operators' calls.")
@click.option("--device", "name", default=None, help="Where to run: cpu, cuda, cuda:1.")
@click.option("--arch", default=None, help="The architecture: x86-64-v3, sm_90; chooses the device.")
@click.option("--budget", default=None, metavar="TIME", help="Begin no certificate after this time: 120s, 5min.")
@click.option("--json", "json_wanted", is_flag=True, help="Print the results as JSON.")
def command(
    tables: tuple[Path, ...],
    ops: tuple[str, ...],
    name: str | None,
    arch: str | None,
    budget: str | None,
    json_wanted: bool,
) -> int:
    """Prove certificates again: those in TABLES (folders, files, packs), else all that launches look into.

    The code is compared with what was certified, and every proof is repeated on this machine.

    Exit status: 0; 1 if a certificate fails; 2 for a mistake in the command. Stale ones, and those that
    memory cannot hold here, are listed only.

    \b
    Examples:
      nbxtensor verify
      nbxtensor verify my-tables --device cuda --json
      nbxtensor verify my.nbxpack --op softmax --budget 60s
    """
    end = None if budget is None else time.monotonic() + seconds_of(budget)
    device = device_for(name, arch, False, FUNCTION)
    for operator in ops:
        check_operator(operator)
    target = device.target.arch
    wanted: dict[str, list[Certificate]] = {}
    for one in certificates_in(tables, target) if tables else all_certificates(target):
        if not ops or any(e.operator in ops for e in calls_of(one)):
            wanted.setdefault(one.line() if tables else one.key, []).append(one)  # what is named is proved, all of it
    found: list[Verified] = []
    for several in wanted.values():
        if end is not None and time.monotonic() >= end:
            break
        found.append(_counting(several, device))
        if sys.stderr.isatty():
            print(f"\r{len(found)} of {len(wanted)}", end="", file=sys.stderr, flush=True)
    left = len(wanted) - len(found)
    if json_wanted:
        report = {"device": device.name, "target": str(device.target), "counts": summary(found), "left": left}
        click.echo(json.dumps({**report, "certificates": [as_json(one) for one in found]}, indent=1))
    else:
        show(found, left, f"{device.name} ({device.target})")
    return 1 if any(one.verdict == "failed" for one in found) else 0
