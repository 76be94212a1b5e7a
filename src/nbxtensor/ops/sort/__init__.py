"""Sorting: ``sort``, ``argsort``, ``sort_with_indices`` and ``topk``.

Shapes
    Any with at least one axis, any strides; rows may be empty. Results have the shape of `x`; topk: `k` on the axis.
Dtypes
    All that have arithmetic. Indices are int64 and always a permutation of the row's positions.
Errors
    DTypeError for a storage-only dtype, AxisError for a bad axis (a 0-d tensor has none), ArgumentError for a bad `k`,
    ShapeError, DTypeError or ArgumentError for an unsuitable `out`.
Special values
    NaN (any sign, any payload) comes last ascending and first descending; -0.0 equals 0.0. Equal elements keep the
    order of their indices in both directions. Raw bits travel: NaN payloads and signs of zeros survive.
Guarantee
    universal; exact. Always stable, also where that is not asked for.

`launches` chooses the kernels; the functions are in `functions`.
"""

from nbxtensor.ops.sort.functions import argsort as argsort
from nbxtensor.ops.sort.functions import sort as sort
from nbxtensor.ops.sort.functions import sort_with_indices as sort_with_indices
from nbxtensor.ops.sort.functions import topk as topk
