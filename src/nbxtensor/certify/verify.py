"""Proving certificates again, on the machine at hand."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from nbxtensor.base.errors import CertificateError, OutOfMemoryError
from nbxtensor.certify.census import Census
from nbxtensor.certify.prove import Proof, Prover
from nbxtensor.certify.run import calls_of, covered, standing
from nbxtensor.compiler.available import missing_compilers
from nbxtensor.device.protocol import Device
from nbxtensor.tuning.certificate import Certificate

Verdict = Literal["proved", "failed", "stale", "skipped"]


@dataclass(frozen=True, slots=True)
class Verified:
    """What became of a certificate.

    Attributes
    ----------
    verdict
        ``proved``; ``failed``: the code differs, or its results do; ``stale``: it is for code that this version does
        not have; ``skipped``: memory cannot hold its calls here.
    reason
        Why it is not proved.
    runs, error
        Calls that were made, and the largest error as a part of the bound.
    """

    certificate: Certificate
    verdict: Verdict
    reason: str = ""
    runs: int = 0
    error: float | None = None


def verify(certificate: Certificate, device: Device) -> Verified:
    """Prove one certificate again, by the calls that it names."""
    try:
        census = Census(device)
        census.add_all(calls_of(certificate))
    except CertificateError as error:
        return Verified(certificate, "failed", error.problem)
    entry = next((e for k, e in census.entries.items() if str(k) == certificate.key), None)
    if entry is None:
        return Verified(certificate, "stale", "its calls do not ask for this key")
    known = standing(entry, certificate, device)
    if known.setting is None:
        return Verified(certificate, "stale", "its setting is not a candidate of this version")
    examples = [e for e in entry.examples if covered(certificate, known.setting, entry.key, e, device)]
    if not examples:
        return Verified(certificate, "stale", "its code is not that of this version and compiler")
    ready_only = bool(missing_compilers(device.target.kind))
    prover = Prover(entry, device, [known.setting], examples, ready_only)
    if not prover.cases:
        return Verified(certificate, "stale", "its code is in no pack in use, and nothing can be compiled")
    try:
        prover.require_memory()
    except OutOfMemoryError as error:
        return Verified(certificate, "skipped", str(error))
    prover.compile()
    prover.prove()
    proof = prover.proofs[-1]
    reason = proof.reason or _differs(certificate, proof)
    if not reason and len(examples) < len(entry.examples):
        missing = ", ".join(e.operator for e in entry.examples if e not in examples)
        return Verified(certificate, "stale", f"not the present code of {missing}", proof.runs, proof.error)
    return Verified(certificate, "failed" if reason else "proved", reason, proof.runs, proof.error)


def _differs(certificate: Certificate, proof: Proof) -> str:
    """Which of the certificate's artifacts have other code here; "" if none."""
    wrong = [key for key, code in proof.artifacts.items() if certificate.artifacts.get(key, code) != code]
    return f"other code than was certified: {', '.join(sorted(wrong))}" if wrong else ""


def summary(found: Sequence[Verified]) -> dict[str, int]:
    """How many have each verdict."""
    counts: dict[str, int] = dict.fromkeys(get_args(Verdict), 0)
    for one in found:
        counts[one.verdict] += 1
    return counts


def as_json(one: Verified) -> dict[str, Any]:
    """A result as plain values."""
    return {
        "key": one.certificate.key,
        "verdict": one.verdict,
        "reason": one.reason,
        "runs": one.runs,
        "error": None if one.error is None else round(one.error, 3),
        "setting": dict(one.certificate.setting),
    }
