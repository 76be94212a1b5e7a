"""``nbxtensor doctor``: what is wrong with this installation and this machine, and how to mend it."""

import json
from typing import Any

import click

from nbxtensor.base.text import counted
from nbxtensor.cli.checks import certificates, devices, places, settings, software
from nbxtensor.cli.checks.core import ORDER, Body, Check, Machine, run_check, worst
from nbxtensor.cli.show import print_table

CHECKS: dict[str, Body] = {
    "settings": settings.check_knobs,
    "python": software.check_python,
    "packages": software.check_packages,
    "compilers": software.check_compilers,
    "processor": devices.check_processor,
    "threads": settings.check_threads,
    "gpus": devices.check_gpus,
    "home": places.check_home,
    "cache": places.check_cache,
    "cached kernels": places.check_entries,
    "certificates": certificates.check_tables,
    "launches": certificates.check_log,
    "packs": certificates.check_packs,
    "a kernel": devices.check_kernels,
}


def examine() -> list[Check]:
    """Run every check."""
    machine = Machine()
    return [run_check(name, body, machine) for name, body in CHECKS.items()]


def report(checks: list[Check]) -> dict[str, Any]:
    """The checks as JSON values."""
    return {
        "status": worst(check.status for check in checks),
        "counts": {status: sum(check.status == status for check in checks) for status in ORDER},
        "checks": [
            {
                "name": check.name,
                "status": check.status,
                "facts": check.facts,
                "findings": [{"status": f.status, "text": f.text, "mend": f.mend} for f in check.findings],
            }
            for check in checks
        ],
    }


def _show(checks: list[Check]) -> None:
    rows: list[tuple[str, str, str]] = []
    for check in checks:
        if not check.findings:
            rows.append((check.status, check.name, check.summary))
        for finding in check.findings:
            mend = f"; {finding.mend}" if finding.mend else ""
            rows.append((finding.status, check.name, finding.text + mend))
    print_table("doctor", ("status", "check", "what was found, and the mend"), rows)
    counts = report(checks)["counts"]
    words = [counted(counts["problem"], "problem"), counted(counts["warning"], "warning"), f"{counts['ok']} ok"]
    click.echo(", ".join(words))


@click.command(short_help="Find what is wrong here, and how to mend it.")
@click.option("--json", "as_json", is_flag=True, help="Print all facts and findings as JSON.")
def command(as_json: bool) -> int:
    """Check packages, compilers, devices, caches, certificates and packs.

    Every check is ok, a warning (it works, but not as well as it could) or a problem, each with what to do about it.
    The exit status is 1 if there is a problem, else 0.

    \b
    Examples:
      nbxtensor doctor
      nbxtensor doctor --json | jq '.checks[] | select(.status != "ok")'
    """
    checks = examine()
    if as_json:
        click.echo(json.dumps(report(checks), indent=2))
    else:
        _show(checks)
    return int(any(check.status == "problem" for check in checks))
