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


def all_certificates(arch: str) -> dict[str, Certificate]:
    """The certificate of each key that counts: your own before those of packs, these before the shipped ones."""
    *own, shipped = folders()
    found = {one.key: one for one in certificates_in([shipped] if shipped.is_dir() else [], arch)}
    for pack in reversed(packs.in_use()):
        found |= {one.key: one for one in _packed(pack, arch)}
    return found | {one.key: one for one in certificates_in([folder for folder in own if folder.is_dir()], arch)}


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
    wanted = {one.key: one for one in certificates_in(tables, target)} if tables else all_certificates(target)
    chosen = [one for one in wanted.values() if not ops or any(e.operator in ops for e in calls_of(one))]
    found: list[Verified] = []
    for one in chosen:
        if end is not None and time.monotonic() >= end:
            break
        found.append(verify(one, device))
        if sys.stderr.isatty():
            print(f"\r{len(found)} of {len(chosen)}", end="", file=sys.stderr, flush=True)
    left = len(chosen) - len(found)
    if json_wanted:
        report = {"device": device.name, "target": str(device.target), "counts": summary(found), "left": left}
        click.echo(json.dumps({**report, "certificates": [as_json(one) for one in found]}, indent=1))
    else:
        show(found, left, f"{device.name} ({device.target})")
    return 1 if any(one.verdict == "failed" for one in found) else 0
