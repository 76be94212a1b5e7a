"""Programs: models as ordered calls of operators, made by tracing, run on any device."""

from nbxtensor.program.calls import Call, Program, Slot
from nbxtensor.program.execute import Runner
from nbxtensor.program.trace import Traced, Tracer, Value

__all__ = ["Call", "Program", "Runner", "Slot", "Traced", "Tracer", "Value"]
