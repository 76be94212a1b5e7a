"""From jobs to a pack: compile them, check what each needs of its target, say what came in and what stayed out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nbxtensor.compiler.compile import Progress, compile_many
from nbxtensor.compiler.jobs import Job, compiler_version
from nbxtensor.compiler.limits import shortages
from nbxtensor.compiler.pack_file import Item
from nbxtensor.compiler.sources import sources_hash
from nbxtensor.compiler.store import ArtifactStore
from nbxtensor.device.profile import load_profile


@dataclass
class Wanted:
    """The jobs that a pack is to cover.

    Attributes
    ----------
    jobs
        Identity -> job.
    origins
        Identity -> the models and calls that launch it.
    """

    jobs: dict[str, Job] = field(default_factory=dict[str, Job])
    origins: dict[str, set[str]] = field(default_factory=dict[str, set[str]])

    def add(self, jobs: Iterable[Job], origin: str) -> None:
        """Note that `origin` launches these jobs."""
        for job in jobs:
            self.jobs.setdefault(job.identity, job)
            self.origins.setdefault(job.identity, set()).add(origin)


@dataclass(frozen=True, slots=True)
class Built:
    """What becomes a pack.

    Attributes
    ----------
    warnings
        Kernels that run, but keep values in slow memory.
    refused
        Kernels that their target cannot launch; they are not among the items.
    """

    items: list[Item]
    manifest: dict[str, Any]
    warnings: list[str]
    refused: list[str]


def build(wanted: Wanted, library: str, progress: Progress | None = None, store: ArtifactStore | None = None) -> Built:
    """Compile everything that is wanted. The result depends on sources and compilers alone.

    Parameters
    ----------
    library
        Version of nbxtensor, for the manifest.

    Raises
    ------
    CompileError
        A kernel does not compile for its target.
    """
    identities = sorted(wanted.jobs)
    artifacts = compile_many([wanted.jobs[i] for i in identities], progress, store=store, from_packs=False)
    items: list[Item] = []
    kernels: list[dict[str, Any]] = []
    warnings: list[str] = []
    refused: list[str] = []
    origins = sorted(set[str]().union(*wanted.origins.values())) if wanted.origins else []
    numbers = {origin: number for number, origin in enumerate(origins)}
    for identity, artifact in zip(identities, artifacts, strict=True):
        job = wanted.jobs[identity]
        lacking = shortages(artifact.resources, load_profile(job.target.arch))
        if lacking:
            refused.append(f"{job.name} for {job.target}: {', '.join(lacking)}")
            continue
        if artifact.resources.stack_bytes and artifact.target.kind != "cpu":
            warnings.append(f"{job.name} for {job.target}: {artifact.resources.stack_bytes} bytes of stack per thread")
        items.append(Item(identity, artifact))
        kernels.append(
            {
                "name": job.name,
                "arch": job.target.arch,
                "from": sorted(numbers[origin] for origin in wanted.origins[identity]),
            }
        )
    kinds = sorted({job.target.kind for job in wanted.jobs.values()})
    manifest = {
        "library": library,
        "sources": sources_hash(),
        "compilers": {kind: compiler_version(kind) for kind in kinds},
        "targets": targets_of(items),
        "origins": origins,
        "kernels": kernels,
        "left_out": sorted(refused),
    }
    return Built(items, manifest, sorted(set(warnings)), sorted(refused))


def targets_of(items: Iterable[Item]) -> Mapping[str, dict[str, Any]]:
    """Architecture -> kind, number of kernels, and the most that one of them needs."""
    found: dict[str, dict[str, Any]] = {}
    for item in items:
        target, needs = item.artifact.target, item.artifact.resources
        entry = found.setdefault(
            target.arch, {"kind": target.kind, "kernels": 0, "registers": 0, "stack_bytes": 0, "shared_bytes": 0}
        )
        entry["kernels"] += 1
        for name in ("registers", "stack_bytes", "shared_bytes"):
            entry[name] = max(entry[name], getattr(needs, name))
    return found
