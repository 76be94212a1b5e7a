"""The operators. Importing this package enters all of them into the dispatch table."""

from nbxtensor.ops import arithmetic as arithmetic
from nbxtensor.ops import comparison as comparison
from nbxtensor.ops import copy as copy
from nbxtensor.ops import divide as divide
from nbxtensor.ops import rsqrt as rsqrt
from nbxtensor.ops import sqrt as sqrt
