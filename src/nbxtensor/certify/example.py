"""What calls ask for: the launch keys of an example, found without running it."""

from typing import Any

from nbxtensor.base.errors import CertificateError, NbxError
from nbxtensor.device.null import NullDevice
from nbxtensor.device.protocol import Device, Profile
from nbxtensor.kernel.call_text import Example, Spec, call_of, place, plain, signature
from nbxtensor.kernel.declare import operators
from nbxtensor.tuning.choose import Use, observed
from nbxtensor.tuning.key import LaunchKey

__all__ = ["Example", "Spec", "decode", "keys_of", "place", "plain", "signature", "takes_out"]


def decode(call: Any) -> Example:
    """The call that a certificate names.

    Raises
    ------
    CertificateError
        It is not one.
    """
    try:
        return call_of(call)
    except (TypeError, NbxError) as error:
        raise CertificateError("read certificates", "a call in a certificate is not one", got=call) from error


def keys_of(example: Example, profile: Profile, device: Device) -> dict[LaunchKey, Use]:
    """The launch keys of a call, without running it: `device` and `profile` say where it would run."""
    with observed() as seen:
        example.run(NullDevice(device.target, profile))  # a fresh one: forms are new, and so are plans
    return seen


def takes_out(example: Example) -> bool:
    """Whether the call may write into its first operand."""
    op = operators.get(example.operator)
    return op is not None and "out" in signature(op.function)
