"""What to tell where a launch needs a kernel that is in no pack and cannot be compiled: how to pack it."""

import shlex

from nbxtensor.base.errors import NotPackedError
from nbxtensor.compiler.available import mend
from nbxtensor.device.artifact import Target
from nbxtensor.kernel.public_call import running_call


def explained(error: NotPackedError, operator: str, target: Target) -> NotPackedError:
    """`error` with the operator that launches, and the command that packs what the running call needs."""
    what = shlex.quote(running_call() or operator)
    command = f"nbxtensor pack --arch {target} --ops {what} -o my.nbxpack"
    return NotPackedError(operator, error.problem, got=error.got, mend=mend(command))
