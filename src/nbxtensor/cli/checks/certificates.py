"""Tables of certificates and packs: whether they can be read, and still hold for what runs here."""

from collections import Counter
from typing import Any

from nbxtensor.base.errors import NbxError
from nbxtensor.base.text import counted
from nbxtensor.cli.checks.core import Check, Machine, explained
from nbxtensor.cli.checks.software import RANGES, present
from nbxtensor.cli.tables import Table, all_tables
from nbxtensor.compiler import packs
from nbxtensor.compiler.jobs import compiler_version
from nbxtensor.compiler.pack_file import Pack
from nbxtensor.device.profile import target_of
from nbxtensor.tuning import log


def compilers_here(arches: list[str]) -> dict[str, str]:
    """Architecture -> what compiles for it here; empty without a compiler, since only packed kernels run then."""
    if not all(present(package) for package in RANGES["compile"]):
        return {}
    return {arch: compiler_version(target_of(arch).kind) for arch in arches}


def packed_compilers() -> set[str]:
    """What compiled the packs in use."""
    try:
        return {str(name) for pack in packs.in_use() for name in dict(pack.manifest.get("compilers", {})).values()}
    except (NbxError, OSError):  # the check of packs says more
        return set()


def stale(tables: list[Table], compilers: dict[str, str]) -> Counter[tuple[str, str]]:
    """(architecture, compiler) -> certificates of code that another compiler than the one here made.

    Code that is in a pack keeps its certificate, whatever is installed.
    """
    packed = packed_compilers()
    found: Counter[tuple[str, str]] = Counter()
    for table in tables:
        for one in table.certificates:
            if table.arch in compilers and one.compiler not in (compilers[table.arch], *packed):
                found[table.arch, one.compiler] += 1
    return found


def check_tables(check: Check, machine: Machine) -> None:
    """The tables of certificates in use."""
    tables = all_tables()
    compilers = compilers_here(machine.arches)
    total = sum(len(table.certificates) for table in tables)
    check.facts = {
        "tables": [table.facts for table in tables],
        "certificates": total,
        "compilers": compilers,
    }
    check.summary = f"{counted(total, 'certificate')} in {counted(len(tables), 'table')}"
    for table in tables:
        if table.error:
            check.problem(
                f"certificates are not used: {table.error}", "restore that file, or remove it and certify again"
            )
    for (arch, compiler), count in sorted(stale(tables, compilers).items()):
        check.warning(
            f"{counted(count, 'certificate')} for {arch} {'is' if count == 1 else 'are'} stale for what is compiled "
            f"here: made by {compiler}, here is {compilers[arch]}; the declared defaults run instead",
            f"nbxtensor certify --arch {arch}",
        )


def check_log(check: Check, machine: Machine) -> None:
    """The launches that ran without a valid certificate."""
    place, found = log.log_path(), log.read_log()
    worn = [one for one in found if one.status == "stale"]
    others = len(found) - len(worn)
    check.facts = {"log": None if place is None else str(place), "uncertified": others, "stale": len(worn)}
    check.summary = f"{counted(others, 'key')} without a certificate (nbxtensor info lists them)"
    if worn:
        several = f", and {len(worn) - 1} more" if len(worn) > 1 else ""
        check.warning(
            f"launches found a stale certificate: {worn[0].key} ({worn[0].reason}){several}",
            f"{worn[0].command}; then nbxtensor info --clear",
        )


def check_packs(check: Check, machine: Machine) -> None:
    """The packs in use, every kernel of them."""
    rows: list[dict[str, Any]] = []
    check.facts["packs"] = rows
    found = packs.in_use()
    check.summary = counted(len(found), "pack") + " in use"
    for pack in found:
        try:
            rows.append({"path": str(pack.path), "kernels": _read(pack), "manifest": dict(pack.manifest)})
        except NbxError as error:
            check.problem(explained(error), error.mend)
        except OSError as error:
            check.problem(f"{pack.path} cannot be read ({error.strerror or error})", "name another file in NBX_PACKS")


def _read(pack: Pack) -> int:
    return sum(1 for _ in pack.artifacts())
