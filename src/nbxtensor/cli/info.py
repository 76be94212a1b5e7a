"""``nbxtensor info``: what is installed and in use here, and which launches no certificate covers."""

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from nbxtensor.base import knobs
from nbxtensor.base.errors import DeviceError, NbxError
from nbxtensor.base.text import counted
from nbxtensor.cli.checks.core import Machine
from nbxtensor.cli.checks.settings import knobs_set
from nbxtensor.cli.checks.software import versions
from nbxtensor.cli.gpus import Gpu
from nbxtensor.cli.show import bandwidth, print_table, size
from nbxtensor.cli.tables import all_tables
from nbxtensor.compiler import packs
from nbxtensor.compiler.store import default_store
from nbxtensor.device.cpu_level import choose_level
from nbxtensor.device.cpu_memory import memory_info
from nbxtensor.device.cuda import profile_of
from nbxtensor.device.profile import load_profile
from nbxtensor.tuning.log import clear_log, read_log

FUNCTION = "nbxtensor info"
Row = dict[str, Any]


def _cpu() -> Row:
    try:
        target = choose_level(knobs.cpu_level.get())
    except NbxError as error:
        return {"name": "cpu", "error": str(error)}
    return {
        "name": "cpu",
        "model": "",
        "target": target,
        "memory": memory_info()[1],
        "copy_bandwidth": load_profile(target).copy_bandwidth,
    }


def _gpu(gpu: Gpu) -> Row:
    row: Row = {"name": gpu.name, "model": gpu.model, "target": gpu.arch, "memory": gpu.memory}
    try:
        return {**row, "copy_bandwidth": profile_of(*gpu.capability).copy_bandwidth}
    except DeviceError as error:
        return {**row, "copy_bandwidth": 0.0, "error": str(error)}


def _cache() -> Row:
    try:
        store = default_store()
        entries = store.entries()
    except NbxError as error:
        return {"error": str(error)}
    place = None if store.root is None else str(store.root)
    used = sum(entry.nbytes for entry in entries)
    return {"directory": place, "entries": len(entries), "bytes": used, "limit": store.limit}


def _packs() -> list[Row]:
    rows: list[Row] = []
    try:
        for pack in packs.in_use():
            rows.append({"path": str(pack.path), "bytes": pack.path.stat().st_size, "manifest": dict(pack.manifest)})
    except (NbxError, OSError) as error:
        rows.append({"error": str(error)})
    return rows


def _entry(key: str, status: str, reason: str, command: str, times: int) -> Row:
    return {"key": key, "status": status, "reason": reason, "command": command, "times": times}


def facts() -> Row:
    """Everything that is printed, as JSON values."""
    return {
        "versions": versions(),
        "devices": [_cpu(), *map(_gpu, Machine().gpus)],
        "settings": knobs_set(),
        "cache": _cache(),
        "tables": [table.facts for table in all_tables()],
        "packs": _packs(),
        "uncertified": [_entry(one.key, one.status, one.reason, one.command, one.count) for one in read_log()],
    }


def _show(found: Row) -> None:
    print_table("versions", ("package", "version"), [(k, v or "not installed") for k, v in found["versions"].items()])
    devices = [
        (d["name"], d.get("model", ""), d["target"], size(d["memory"]), bandwidth(d["copy_bandwidth"]))
        if "target" in d
        else (d["name"], d["error"], "", "", "")
        for d in found["devices"]
    ]
    print_table("devices", ("name", "model", "target", "memory", "copy bandwidth"), devices)
    if found["settings"]:
        print_table("settings", ("switch", "value"), list(found["settings"].items()))
    cache = found["cache"]
    if "error" in cache:
        click.echo(f"kernel cache: {cache['error']}\n")
    else:
        place = cache["directory"] or "memory only"
        entries = counted(cache["entries"], "kernel")
        click.echo(f"kernel cache: {entries}, {size(cache['bytes'])} of {size(cache['limit'])} in {place}\n")
    _show_tables(found["tables"])
    rows = [(p.get("path", p.get("error", "")), size(p["bytes"]) if "bytes" in p else "") for p in found["packs"]]
    if rows:
        print_table("packs", ("path", "size"), rows)
    else:
        click.echo("packs: none in use\n")
    _show_uncertified(found["uncertified"])


def _show_tables(tables: Sequence[Row]) -> None:
    if not tables:
        click.echo("certificates: none\n")
        return
    rows = [
        (t["folder"], t["arch"], t["operator"], t["error"] or str(t["certificates"]), size(t["bytes"])) for t in tables
    ]
    print_table("certificates", ("folder", "target", "operator", "certificates", "size"), rows)


def _show_uncertified(keys: Sequence[Row]) -> None:
    if not keys:
        click.echo("no launch on record ran without a certificate")
        return
    columns = ("status", "times", "key", "why", "certified by")
    rows = [tuple(str(k[n]) for n in ("status", "times", "key", "reason", "command")) for k in keys]
    print_table("launches without a certificate", columns, rows)
    click.echo(f"{counted(len(keys), 'key')}; nbxtensor info --clear forgets them")


def census(path: Path, dims: Sequence[str], device: str | None) -> Row:
    """The launch keys of a model, and the status of each; nothing is run."""
    from nbxtensor.cli.run import chosen_dims, input_shapes, small_contents  # onnx, which the rest does not need
    from nbxtensor.device.null import NullDevice
    from nbxtensor.kernel.tuned import forget_plans
    from nbxtensor.onnx.model import load
    from nbxtensor.tensor.defaults import resolve_device
    from nbxtensor.tuning.choose import observed

    model = load(path)
    shapes = input_shapes(model.inputs, chosen_dims(dims, model.inputs, FUNCTION), FUNCTION)
    target = resolve_device(device).target
    forget_plans()
    with observed() as seen:
        model.specialize(shapes, NullDevice(target), small_contents(model.inputs, shapes))
    keys = [
        _entry(str(use.key), use.status, use.reason, use.key.command, use.count)
        for use in sorted(seen.values(), key=lambda use: str(use.key))
    ]
    counts = Counter(row["status"] for row in keys)
    named = [part for dim in dims for part in ("--dim", dim)]
    return {
        "model": str(path),
        "target": str(target),
        "command": shlex.join(["nbxtensor", "certify", "--model", str(path), *named, "--arch", target.arch]),
        "shapes": {name: list(shape) for name, shape in shapes.items()},
        "keys": keys,
        "counts": {status: counts[status] for status in ("certified", "uncertified", "stale")},
    }


def _show_census(found: Row) -> None:
    rows = [tuple(str(row[n]) for n in ("status", "times", "key", "reason")) for row in found["keys"]]
    title = f"launch keys of {found['model']} for {found['target']}"
    print_table(title, ("status", "times", "key", "why"), rows)
    click.echo(", ".join(f"{n} {status}" for status, n in found["counts"].items()))
    if found["counts"]["certified"] < len(rows):
        click.echo(f"certify them with: {found['command']}")


@click.command(short_help="Versions, devices, caches, certificates, and launches without one.")
@click.option("--model", type=click.Path(path_type=Path), help="List the launch keys of this ONNX file instead.")
@click.option("--dim", "dims", multiple=True, metavar="NAME=N", help="Size of a named dimension of its inputs (1).")
@click.option("--device", default=None, help="Whose launch keys: cpu, cuda, null:sm_90.")
@click.option("--clear", is_flag=True, help="Forget the launches that ran without a certificate.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(model: Path | None, dims: tuple[str, ...], device: str | None, clear: bool, as_json: bool) -> int:
    """Show what is installed and in use here, and the launches that ran without a certificate.

    With --model, the launch keys of that model: certified, uncertified, or with a certificate that is stale. Nothing
    is run for that, and no device is needed.

    \b
    Examples:
      nbxtensor info
      nbxtensor info --json | jq '.uncertified[].command'
      nbxtensor info --model model.onnx --dim batch=8 --device null:sm_90
      nbxtensor info --clear
    """
    if clear:
        if model is not None:
            raise click.UsageError("--clear does not go with --model")
        count = len(read_log())
        clear_log()
        click.echo(json.dumps({"removed": count}) if as_json else f"forgot {counted(count, 'key')}")
        return 0
    if model is None:
        if dims or device is not None:
            raise click.UsageError("--dim and --device need --model")
        found, show = facts(), _show
    else:
        found, show = census(model, dims, device), _show_census
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        show(found)
    return 0
