"""What to tell where a launch needs a kernel that is in no pack and cannot be compiled: how to pack it."""

from nbxtensor.base.errors import NotPackedError
from nbxtensor.compiler.available import mend
from nbxtensor.device.artifact import Target
from nbxtensor.kernel.call_text import argument_text
from nbxtensor.kernel.public_call import outermost_call


def running_call() -> str | None:
    """The outermost call of an operator on this thread's stack, as text; None if there is none."""
    found = outermost_call()
    if found is None:
        return None
    op, frame = found
    code = frame.f_code
    count = code.co_argcount
    names = code.co_varnames[: count + code.co_kwonlyargcount]
    texts = [(n, argument_text(frame.f_locals[n])) for n in names]
    arguments = [text if i < count else f"{n}={text}" for i, (n, text) in enumerate(texts)]
    return f"{op.name}({', '.join(arguments)})"


def explained(error: NotPackedError, operator: str, target: Target) -> NotPackedError:
    """`error` with the operator that launches, and the command that packs what the running call needs."""
    what = running_call() or operator
    command = f"nbxtensor pack --arch {target} --ops '{what}' -o my.nbxpack"
    return NotPackedError(operator, error.problem, got=error.got, mend=mend(command))
