"""What models need beyond the Python Array API standard."""

from nbxtensor.ops.rsqrt import rsqrt as rsqrt
