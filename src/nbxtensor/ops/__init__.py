"""The operators. Importing this package enters all of them into the dispatch table."""

from nbxtensor.ops import arithmetic as arithmetic
from nbxtensor.ops import comparison as comparison
from nbxtensor.ops import copy as copy
from nbxtensor.ops import cos as cos
from nbxtensor.ops import create as create
from nbxtensor.ops import divide as divide
from nbxtensor.ops import erf as erf
from nbxtensor.ops import exp as exp
from nbxtensor.ops import expm1 as expm1
from nbxtensor.ops import gelu as gelu
from nbxtensor.ops import log as log
from nbxtensor.ops import log1p as log1p
from nbxtensor.ops import pow as pow
from nbxtensor.ops import relu as relu
from nbxtensor.ops import rsqrt as rsqrt
from nbxtensor.ops import sigmoid as sigmoid
from nbxtensor.ops import silu as silu
from nbxtensor.ops import sin as sin
from nbxtensor.ops import softplus as softplus
from nbxtensor.ops import sqrt as sqrt
from nbxtensor.ops import tanh as tanh
