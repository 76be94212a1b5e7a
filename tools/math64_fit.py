"""Derives the polynomial coefficients of nbxtensor.kernel.math64_*: ``python tools/math64_fit.py [NAME...]``.

As `math_fit.py`, whose fits are those of float32. A coefficient in two parts is printed as their sum.
"""

import sys
from collections.abc import Callable

import mpmath as mp

from math_fit import Fit, alternating, erf_near, mills, odd_weight, series

BITS = 53


def arctanh_tail(start: int) -> Callable[[mp.mpf], mp.mpf]:
    """(log((1 + s) / (1 - s)) / s - its terms below s^(2 start)) / s^(2 start) as a function of z = s^2."""
    return lambda z: mp.fsum(mp.mpf(2) / (2 * k + 1) * z ** (k - start) for k in range(start, 90))


def mills_in_ratio(z: mp.mpf) -> mp.mpf:
    """Mills' ratio times t + 5, in z = (t - 5) / (t + 5)."""
    t = 5 * (1 + z) / (1 - z)
    return mills(t) * (t + 5)


def fits() -> dict[str, Fit]:
    """All polynomials that the sources use."""
    edge = float(mp.log(2) / 2) * 1.0001
    ratio = (float((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) * 1.0001) ** 2
    quarter = float((mp.pi / 4 * mp.mpf("1.0001")) ** 2)
    exp = series(mp.exp, 2, 24)

    def terms(count: int) -> tuple[int, ...]:
        return tuple(range(count))

    return {
        "EXP": Fit(exp, terms(11), -edge, edge, lambda x: x * x / mp.exp(x), BITS),
        "LOG": Fit(arctanh_tail(1), terms(8), 1e-12, ratio, lambda z: z / 2, BITS),
        "POW": Fit(arctanh_tail(2), terms(8), 1e-12, ratio, lambda z: z * z / 2, BITS),
        "SIN": Fit(alternating(1, 1), terms(6), 1e-12, quarter, odd_weight(mp.sin, 1), BITS),
        "COS": Fit(alternating(0, 2), terms(6), 1e-12, quarter, lambda z: z * z, BITS),
        "ERF": Fit(erf_near, terms(13), 1e-14, 1.0001, odd_weight(mp.erf, 0), BITS),
        "MILLS": Fit(mills_in_ratio, terms(24), -1.0, 34 / 44, lambda z: 1 / mills_in_ratio(z), BITS, 2 * BITS),
    }


def decimal(value: mp.mpf) -> str:
    """Shortest decimals that give a float64, or the two whose sum it is."""
    high = float(value)
    low = float(value - mp.mpf(high))
    return f"{high!r} + {low!r}" if low else repr(high)


def main(names: list[str]) -> None:
    mp.mp.prec = 260
    for name, fit in fits().items():
        if names and name not in names:
            continue
        c, left, ideal = fit.run()
        print(f"{name} = ({', '.join(map(decimal, c))})")
        print(f"  # error 2^{float(mp.log(left, 2)):.2f}, before rounding 2^{float(mp.log(ideal, 2)):.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
