"""``nbxtensor pack``: compiled kernels in one file, for machines without compilers."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from nbxtensor import __version__
from nbxtensor.base.errors import ArgumentError
from nbxtensor.base.text import counted
from nbxtensor.cli.compiling import progress
from nbxtensor.cli.outputs import require_file
from nbxtensor.cli.pack_calls import ops_option
from nbxtensor.cli.pack_census import common_census, model_census, operator_census
from nbxtensor.cli.pack_demo import demo_census
from nbxtensor.cli.show import artifact_facts, print_table
from nbxtensor.compiler.pack_build import Wanted, build
from nbxtensor.compiler.pack_file import SUFFIX, Pack, write_pack
from nbxtensor.device.profile import known_profiles, target_of
from nbxtensor.tuning.certificate import write_table
from nbxtensor.tuning.tables import named_tables, operators

FUNCTION = "nbxtensor pack"


def chosen_arches(texts: Sequence[str]) -> list[str]:
    """The architectures in ``--arch sm_80,sm_90``, each once."""
    known = [a for a in known_profiles() if target_of(a).kind != "none"]
    found = list(dict.fromkeys(part for text in texts for part in text.split(",") if part))
    for arch in found:
        if arch not in known:
            raise ArgumentError(FUNCTION, "kernels are not compiled for this architecture", got=arch, allowed=known)
    if not found:
        raise ArgumentError(FUNCTION, "no architecture was named", allowed=known, mend="say --arch")
    return found


def tables_of(arches: Iterable[str]) -> dict[str, bytes]:
    """The tables of certificates for these architectures, by the name that they have in a pack.

    Of several certificates for a key the one that counts here goes in: the settings that were packed are those that it
    chose.
    """
    found: dict[str, bytes] = {}
    for arch in arches:
        for operator in operators(arch):
            found_in = reversed(named_tables(arch, operator).values())
            counting = {key: one for table in found_in for key, one in table.items()}
            found[f"{arch}/{operator}.json"] = write_table(counting.values()).encode()
    return found


def _about(manifest: dict[str, Any], number: int) -> dict[str, Any]:
    """What the manifest says of a kernel: its ``name`` and ``from``; a manifest may say anything, or nothing."""
    try:
        found = manifest["kernels"][number]
        name, origins = found["name"], found["from"]
    except (KeyError, IndexError, TypeError):
        return {"name": "", "from": []}
    return {
        "name": name if isinstance(name, str) and name.isprintable() else "",
        "from": origins if isinstance(origins, list) else [],
    }


def summary(pack: Pack) -> dict[str, Any]:
    """What a pack holds, each kernel read and checked."""
    manifest = pack.manifest
    kernels: list[dict[str, Any]] = []
    for number, (identity, artifact) in enumerate(zip(pack.identities, pack.artifacts(), strict=True)):
        about = _about(manifest, number)
        kernels.append(
            {
                "identity": identity,
                "key": artifact.key,
                "name": about["name"] or artifact.symbol,
                "arch": artifact.target.arch,
                **artifact_facts(artifact),
                "bytes": pack.stored_bytes(number),
                "binary_bytes": len(artifact.binary),
                "from": about["from"],
            }
        )
    certificates = {name: len(content) for name, content in pack.certificates().items()}
    facts = {name: value for name, value in manifest.items() if name != "kernels"}
    return {**facts, "file": str(pack.path), "bytes": pack.nbytes, "certificates": certificates, "kernels": kernels}


def _groups(kernels: Iterable[dict[str, Any]], *names: str) -> list[tuple[tuple[str, ...], list[dict[str, Any]]]]:
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for kernel in kernels:
        found.setdefault(tuple(kernel[name] for name in names), []).append(kernel)
    return sorted(found.items())


def show(report: dict[str, Any], kernels_too: bool) -> None:
    """Print the summary of a pack as tables."""
    figures = ("registers", "stack_bytes", "shared_bytes")

    def line(group: list[dict[str, Any]]) -> list[str]:
        most = [str(max(kernel[name] for kernel in group)) for name in figures]
        return [str(len(group)), f"{sum(kernel['bytes'] for kernel in group):,}", *most]

    counts = ("kernels", "bytes", "registers", "stack", "shared")
    if kernels_too:
        rows = [[*key, *line(group)] for key, group in _groups(report["kernels"], "arch", "name")]
        print_table("kernels", ("arch", "kernel", *counts), rows, right=counts)
    rows = [[*key, *line(group)] for key, group in _groups(report["kernels"], "arch")]
    print_table("targets", ("arch", *counts), rows, right=counts)
    tables = f", {counted(len(report['certificates']), 'table')} of certificates" if report["certificates"] else ""
    click.echo(f"{report['file']}: {counted(len(report['kernels']), 'kernel')}, {report['bytes']:,} bytes{tables}")


@click.command()
@click.option("--arch", "arches", multiple=True, metavar="ARCH[,ARCH...]", help="What to compile for.")
@click.option("--model", "models", multiple=True, type=click.Path(path_type=Path), help="An ONNX file (give several).")
@click.option(
    "--dim",
    "dims",
    multiple=True,
    metavar="NAME=N[,N...]",
    help="Sizes of a dimension of the models' inputs (1): numbers and ranges like 1-8. "
    "INPUT.AXIS names one that has no name.",
)
@ops_option("Operators at their usual sizes")
@click.option("--common", is_flag=True, help="The operators at the sizes that the package's own pack covers.")
@click.option("--demo", is_flag=True, help="The two models of nbxtensor demo.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help=f"The file to write, *{SUFFIX}.")
@click.option("--list", "listed", type=click.Path(path_type=Path), metavar="FILE", help="Show what a pack holds.")
@click.option("--json", "as_json", is_flag=True, help="Print everything that is known, as JSON.")
def command(
    arches: tuple[str, ...],
    models: tuple[Path, ...],
    dims: tuple[str, ...],
    ops: tuple[str, ...],
    common: bool,
    demo: bool,
    output: Path | None,
    listed: Path | None,
    as_json: bool,
) -> int:
    """Compile kernels into one file. What is in it runs without Triton and LLVM.

    A pack is used with nbxtensor run --pack FILE, or when NBX_PACKS names it. It holds native code: trust it as you
    would trust a shared library. No GPU is needed to make one.

    \b
    Examples:
      nbxtensor pack --arch sm_80,sm_90 --model model.onnx --dim batch=1,8 --dim length=1-64 -o model.nbxpack
      nbxtensor pack --arch x86-64-v3 --ops softmax,sigmoid -o ops.nbxpack
      nbxtensor pack --arch gfx942 --ops 'softmax(float16[64, 1000], axis=0)' -o one.nbxpack
      nbxtensor pack --list model.nbxpack
    """
    if listed is not None:
        report = summary(Pack(listed))
        click.echo(json.dumps(report, indent=2)) if as_json else show(report, kernels_too=True)
        return 0
    if output is None or output.suffix != SUFFIX:
        raise ArgumentError(FUNCTION, "no pack to write was named", got=output, allowed=f"-o FILE{SUFFIX}")
    require_file(output, FUNCTION, "name another file with -o")
    targets = chosen_arches(arches)
    wanted = Wanted()
    model_census(wanted, targets, models, dims)
    operator_census(wanted, targets, ops)
    if common:
        common_census(wanted, targets)
    if demo:
        demo_census(wanted, targets)
    if not wanted.jobs:
        raise ArgumentError(FUNCTION, "there is nothing to pack", mend="say --model, --ops, --common or --demo")
    with progress(", ".join(targets)) as advance:
        built = build(wanted, __version__, advance)
    write_pack(output, built.items, built.manifest, tables_of(targets))
    for text in built.warnings:
        click.echo(f"nbxtensor: warning: {text}", err=True)
    for text in built.refused:
        click.echo(f"nbxtensor: left out: {text}", err=True)
    report = summary(Pack(output))
    click.echo(json.dumps(report, indent=2)) if as_json else show(report, kernels_too=False)
    return 1 if built.refused else 0
