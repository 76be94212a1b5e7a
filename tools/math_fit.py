"""Derives the polynomial coefficients of nbxtensor.kernel.math*: ``python tools/math_fit.py [NAME...]``.

Each fit is a weighted minimax polynomial (Remez exchange in mpmath). Its coefficients are then rounded to float32 one
by one, from the one that matters most, and the others are fitted again around what is already rounded. Prints the
coefficients (shortest decimals that give the float32) and the weighted error that is left, as a power of two.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mpmath as mp
import numpy as np

Real = Callable[[mp.mpf], mp.mpf]
mp.mp.prec = 160
POINTS = 301  # odd: zero, where a weight may vanish, is no grid point


def solve(f: Real, weight: Real, powers: Sequence[int], lo: float, hi: float) -> tuple[list[mp.mpf], mp.mpf]:
    """Minimax fit of ``sum c_k x^k`` to `f` on [lo, hi]: the coefficients and the largest ``|weight * error|``."""
    count = len(powers)
    middle, half = mp.mpf(lo + hi) / 2, mp.mpf(hi - lo) / 2
    grid = [middle - half * mp.cos(mp.pi * i / POINTS) for i in range(POINTS + 1)]
    values, weights = [f(x) for x in grid], [weight(x) for x in grid]
    basis = [[x**k for k in powers] for x in grid]
    nodes = [round(POINTS * (i + mp.mpf("0.5")) / (count + 1)) for i in range(count + 1)]
    best: tuple[mp.mpf, list[mp.mpf]] | None = None
    for _ in range(60):
        matrix = mp.matrix(count + 1, count + 1)
        right = mp.matrix(count + 1, 1)
        for row, node in enumerate(nodes):
            for column in range(count):
                matrix[row, column] = basis[node][column] * weights[node]
            matrix[row, count] = (-1) ** row
            right[row] = values[node] * weights[node]
        answer = mp.lu_solve(matrix, right)
        c = [answer[i] for i in range(count)]
        error = [w * (v - mp.fdot(c, b)) for w, v, b in zip(weights, values, basis, strict=True)]
        worst = max(abs(e) for e in error)
        if best is None or worst < best[0]:
            best = worst, c
        moved = exchange(error, count + 1)
        if len(moved) != count + 1 or moved == nodes:
            break
        nodes = moved
    assert best is not None
    return best[1], best[0]


def exchange(error: list[mp.mpf], count: int) -> list[int]:
    """Indices of `count` alternating extrema of `error`: the smallest are dropped where there are more."""
    peaks: list[int] = []
    for i, e in enumerate(error):
        if peaks and (error[peaks[-1]] > 0) == (e > 0):
            if abs(e) > abs(error[peaks[-1]]):
                peaks[-1] = i
        else:
            peaks.append(i)
    while len(peaks) > count:
        low = min(range(len(peaks)), key=lambda i: abs(error[peaks[i]]))
        if low in (0, len(peaks) - 1) or len(peaks) == count + 1:
            peaks.pop(0 if abs(error[peaks[0]]) < abs(error[peaks[-1]]) else -1)
        else:
            other = min((low - 1, low + 1), key=lambda i: abs(error[peaks[i]]))
            for i in sorted((low, other), reverse=True):
                peaks.pop(i)
    return peaks


def solve_ratio(f: Real, weight: Real, above: int, below: int, hi: float, step: float = 1) -> list[mp.mpf]:
    """Denominator, 1 + ..., of the weighted minimax ratio of polynomials of these degrees to `f` on [0, hi].

    `step` is the part of a correction of the error's level that is taken: some ratios need less than 1.
    """
    size, count = above + 1, above + below + 2
    top = hi / (hi + mp.mpf("2.4"))
    steps = [top * (1 - mp.cos(mp.pi * i / POINTS)) / 2 for i in range(POINTS + 1)]
    grid = [mp.mpf("2.4") * u / (1 - u) for u in steps]
    grid[0] = mp.mpf("1e-12")
    values, weights = [f(x) for x in grid], [weight(x) for x in grid]
    nodes = [round(POINTS * (i + mp.mpf("0.5")) / count) for i in range(count)]
    best: tuple[mp.mpf, list[mp.mpf]] | None = None
    level = mp.mpf(0)
    for _ in range(40):
        # numerator - (value + error) * denominator = 0 at the nodes; the error's level enters twice, once as guessed
        for _ in range(round(15 / step)):
            matrix, right = mp.matrix(count, count), mp.matrix(count, 1)
            for row, node in enumerate(nodes):
                x, sign = grid[node], (-1) ** row / weights[node]
                for j in range(size):
                    matrix[row, j] = x**j
                for j in range(1, below + 1):
                    matrix[row, above + j] = -(values[node] + sign * level) * x**j
                matrix[row, count - 1] = -sign
                right[row] = values[node]
            answer = mp.lu_solve(matrix, right)
            guess, level = level, level + step * (answer[count - 1] - level)
            if abs(level - guess) < abs(level) * mp.mpf("1e-8"):
                break
        numerator = [answer[j] for j in range(size)]
        denominator = [mp.mpf(1), *(answer[above + j] for j in range(1, below + 1))]
        error = [
            w * (mp.polyval(numerator[::-1], x) / mp.polyval(denominator[::-1], x) - v)
            for w, v, x in zip(weights, values, grid, strict=True)
        ]
        worst = max(abs(e) for e in error)
        if best is None or worst < best[0]:
            best = worst, denominator
        moved = exchange(error, count)
        if len(moved) != count or moved == nodes:
            break
        nodes = moved
    assert best is not None
    return best[1]


def to_float32(x: mp.mpf, bits: int = 24) -> mp.mpf:
    """`x` rounded once to 24 bits, or as many as are asked for."""
    with mp.workprec(bits):
        return +x


@dataclass(frozen=True)
class Fit:
    """One polynomial: what it stands for, on which interval, how errors are weighed, the bits of its coefficients.

    `first_bits` are those of the first coefficient, where it has more.
    """

    f: Real
    powers: tuple[int, ...]
    lo: float
    hi: float
    weight: Real = lambda x: mp.mpf(1)
    bits: int = 24
    first_bits: int | None = None

    def run(self) -> tuple[list[mp.mpf], mp.mpf, mp.mpf]:
        """Rounded coefficients, the error with them, and the error before rounding."""
        fixed: dict[int, mp.mpf] = {}
        free = list(self.powers)
        ideal = mp.mpf(0)
        while free:
            c, error = self.rest(fixed, free)
            ideal = ideal or error
            bits = self.bits if fixed or self.first_bits is None else self.first_bits
            fixed[free[0]] = to_float32(c[0], bits)
            free = free[1:]
        grid = [mp.mpf(self.lo) + (self.hi - self.lo) * (i + mp.mpf("0.5")) / 2000 for i in range(2000)]
        left = max(abs(self.weight(x) * (self.f(x) - mp.fsum(v * x**k for k, v in fixed.items()))) for x in grid)
        return [fixed[k] for k in self.powers], left, ideal

    def rest(self, fixed: dict[int, mp.mpf], free: list[int]) -> tuple[list[mp.mpf], mp.mpf]:
        """Fit of the terms `free` to what the terms `fixed` leave."""
        # That is x^low times a polynomial: without the factor the basis stays one that Remez can use.
        low = free[0]
        return solve(
            lambda x: (self.f(x) - mp.fsum(v * x**k for k, v in fixed.items())) / x**low,
            lambda x: self.weight(x) * abs(x) ** low,
            [k - low for k in free],
            self.lo,
            self.hi,
        )


def series(f: Real, order: int, count: int) -> Real:
    """``(f(x) - its terms below x^order) / x^order``, by Taylor terms near zero so that nothing cancels."""
    terms = mp.taylor(f, 0, order + count)

    def tail(x: mp.mpf) -> mp.mpf:
        if abs(x) < 0.02:
            return mp.polyval(terms[order:][::-1], x)
        return (f(x) - mp.polyval(terms[:order][::-1], x)) / x**order

    return tail


def log1p_weight(x: mp.mpf) -> mp.mpf:
    """Weight for q in log(1 + x) = x + x^2 * q(x), relative to the result."""
    return abs(x * x / mp.log1p(x))


def odd_weight(f: Real, power: int) -> Real:
    """Weight for a curve in z = x^2 that f has after x * z^power, relative to f(x)."""
    return lambda z: z**power * mp.sqrt(z) / f(mp.sqrt(z))


def alternating(first: int, step: int) -> Real:
    """sum (-1)^k z^(k - start) / (2 k + first)!: what is left of sine or cosine in z = x^2."""
    return lambda z: mp.fsum((-1) ** k * z ** (k - step) / mp.factorial(2 * k + first) for k in range(step, 20))


def erf_near(z: mp.mpf) -> mp.mpf:
    """erf(x) / x - 1 as a function of z = x^2."""
    return mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1


def tanh_near(z: mp.mpf) -> mp.mpf:
    """(tanh(x) / x - 1) / x^2 as a function of z = x^2."""
    return (mp.tanh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z


def mills(t: mp.mpf) -> mp.mpf:
    """Phi(-t) * exp(t^2 / 2)."""
    return mp.exp(t * t / 2) * mp.erfc(t / mp.sqrt(2)) / 2


# gelu's factor of n in a^2 + 2 * n * ln 2 has 16 bits; what it lacks of 2 * ln 2, relative to it, goes to the curves.
SHORT = mp.mpf(0xB172) / 2**15
LACK = 2 * mp.log(2) / SHORT - 1
SLOPE = to_float32(mp.mpf("2.5115"))  # of 1 / R(t), near sqrt(2 * pi); the best of those tried


def rest_of_inverse(t: mp.mpf) -> mp.mpf:
    """1 / R(t) - SLOPE * t, where R is Mills' ratio times exp(LACK * t^2 / 2)."""
    return mp.exp(-LACK * t * t / 2) / mills(t) - SLOPE * t


def mills_ratio_fits() -> dict[str, Fit | list[mp.mpf]]:
    """p and b of degree 5 in R(t) = p / (SLOPE * t * p + b), for 0 <= t <= 13.2: p is given, b is fitted to it."""

    def weight(t: mp.mpf) -> mp.mpf:
        return 1 / (rest_of_inverse(t) + SLOPE * t)

    # The first term is 3 / 4: p and b then are far from the powers of two above them where the result is.
    p = [to_float32(c * mp.mpf("0.75")) for c in solve_ratio(rest_of_inverse, weight, 5, 5, 13.2)]

    def bottom(t: mp.mpf) -> mp.mpf:
        return mp.polyval(p[::-1], t)

    b = Fit(
        lambda t: (bottom(t) * rest_of_inverse(t) - 2 * p[0]) / t,
        tuple(range(5)),
        1e-9,
        13.2,
        lambda t: t * weight(t) / bottom(t),
    )
    return {"MILLS_P": p, "MILLS_B": b}  # b without its first term, 2 * p[0], so that R(0) is 1 / 2


def gelu_exp_fit() -> Fit:
    """(exp(-e * (1 + LACK) / 2) - 1) / e for |e| <= ln 2."""
    edge = float(mp.log(2)) * 1.0005
    return Fit(
        lambda e: mp.expm1(-e * (1 + LACK) / 2) / e, tuple(range(5)), -edge, edge, lambda e: abs(e) * mp.exp(e / 2)
    )


def exp_fits() -> dict[str, Fit]:
    """exp(r) = 1 + r + r^2 * q(r), and 2^r = 1 + r * ln 2 + r^2 * q(r), and the one of gelu with tanh."""
    ln2 = mp.log(2)
    edge = float(ln2 / 2) * 1.0001
    curve = series(mp.exp, 2, 12)
    out = {f"EXP_{d}": Fit(curve, tuple(range(d + 1)), -edge, edge, lambda x: x * x / mp.exp(x)) for d in (4, 5)}
    curve = series(lambda x: mp.exp(x * ln2), 2, 12)
    out["EXP2"] = Fit(curve, tuple(range(5)), -0.50001, 0.50001, lambda x: x * x)
    # 2^(r * (1 + delta)) = 1 + r * q(r), where 2^-18 * 603446 * (1 + delta) is 2 * sqrt(2 / pi) / ln 2.
    factor = 2 * mp.sqrt(2 / mp.pi) * 2**18 / 603446
    curve = series(lambda x: mp.exp(x * factor), 1, 14)
    return {**out, "EXP_GELU": Fit(curve, tuple(range(6)), -0.505, 0.505, abs)}


def log_fits() -> dict[str, Fit]:
    """log(1 + f) = f + f^2 * q(f), the same to base 2, for 0 < f <= 1, and by s = f / (2 + f) for pow."""
    curve = series(mp.log1p, 2, 14)
    binary = series(lambda x: mp.log1p(x) / mp.log(2), 2, 14)
    two = 2 / mp.log(2)
    out = {"LOG": Fit(curve, tuple(range(9)), -0.293, 0.4143, log1p_weight)}
    out["LOG2"] = Fit(binary, tuple(range(9)), -0.293, 0.4143, log1p_weight)
    out["SOFTPLUS_8"] = Fit(curve, tuple(range(9)), 1e-9, 1.00001, log1p_weight)
    out["POW"] = Fit(
        lambda z: mp.fsum(two / (2 * k + 1) * z ** (k - 2) for k in range(2, 30)),
        (0, 1, 2),
        1e-12,
        0.02946,
        lambda z: z * z / two,
    )
    return out


def wave_fits() -> dict[str, Fit]:
    """sin(r) = r + r * z * s(z) and cos(r) = 1 - z / 2 + z^2 * c(z), 1 % beyond pi / 4, and the sine to pi / 2."""
    quarter, half = (float((mp.pi / k * mp.mpf("1.01")) ** 2) for k in (4, 2))
    return {
        "SIN": Fit(alternating(1, 1), (0, 1, 2), 1e-9, quarter, odd_weight(mp.sin, 1)),
        "COS": Fit(alternating(0, 2), (0, 1, 2), 1e-9, quarter, lambda z: z * z),
        "SIN_HALF": Fit(alternating(1, 1), (0, 1, 2, 3), 1e-9, half, odd_weight(mp.sin, 1)),
    }


def sigmoid_like_fits() -> dict[str, Fit]:
    """tanh and erf near zero, ln(erfc) farther out, the exponential of gelu."""
    return {
        "TANH": Fit(tanh_near, tuple(range(5)), 1e-10, 0.36, odd_weight(mp.tanh, 1)),
        "ERF": Fit(erf_near, tuple(range(6)), 1e-12, 0.8**2, odd_weight(mp.erf, 0)),
        "ERFC": Fit(lambda t: mp.log(mp.erfc(t)), tuple(range(7)), 0.8, 3.95, mp.erfc),
        "EXP_MILLS": gelu_exp_fit(),
    }


def ratio_fits(
    name: str, f: Real, degrees: tuple[int, int], hi: float, first: str | None
) -> dict[str, Fit | list[mp.mpf]]:
    """Numerator and denominator of a ratio near `f`, relative to it; `first` is the numerator at 0 if that is given."""
    above, below = degrees
    q = [to_float32(c) for c in solve_ratio(f, lambda x: 1 / f(x), above, below, hi, 0.5)]
    start = mp.mpf(first or 0)
    low = 0 if first is None else 1  # the terms from here on are fitted
    p = Fit(
        lambda x: (f(x) * mp.polyval(q[::-1], x) - start) / x**low,
        tuple(range(above + 1 - low)),
        1e-9,
        hi,
        lambda x: x**low / (f(x) * mp.polyval(q[::-1], x)),
    )
    return {f"{name}_P": p, f"{name}_Q": q}


def inverse_steps() -> list[mp.mpf]:
    """K, A and B of 1 / d = r1 * (B - d * r1), r1 = r0 * (A - d * r0), r0 by its bits 0x7F000000 - K - (bits of d).

    The largest relative error is least where powers of two are exact.
    """
    f = np.linspace(0, 1, 4000, endpoint=False)
    best = (1.0, 0.0, 0.0, 0.0)
    center, width = (0.1, 2.0), (0.05, 0.01)
    for _ in range(3):
        for k in np.linspace(center[0] - width[0], center[0] + width[0], 81):
            product = np.where(f < 1 - k, (1 + f) * (2 - f - k) / 2, (1 + f) * (3 - f - k) / 4)  # d * r0
            for a in np.linspace(center[1] - width[1], center[1] + width[1], 81):
                r = product * (a - product)
                b = 1 / r[0] + r[0]
                best = min(best, (float(np.abs(r * (b - r) - 1).max()), float(k), float(a), float(b)))
        center, width = best[1:3], (width[0] / 20, width[1] / 20)
    whole, a, b = round(best[1] * 2**23), np.float32(best[2]), np.float32(best[3])
    for k in sorted(range(whole - 1000, whole + 1000), key=lambda k: abs(k - whole)):
        r = np.uint32(0x7F000000 - k - 0x3F800000).view(np.float32)
        r = r * np.float32(a - np.float64(r))
        if r * np.float32(b - np.float64(r)) == 1:  # in fp32 too
            return [mp.mpf(k), mp.mpf(float(a)), mp.mpf(float(b))]
    raise SystemExit("no K makes powers of two exact")


def half_fits() -> dict[str, Fit | list[mp.mpf]]:
    """Functions of 16-bit floats, whose fits may end where the result no longer changes.

    exp(r) = 1 + r * q(r) within ln(2) / 2; log(1 + e) = e * q(e); sin(r) = r * s(r^2) within
    pi / 2; erf(x) = x * p(x^2), tanh(x) = x * p(x^2) / q(x^2); Mills' ratio = p(t) / q(t).
    """
    ln2 = float(mp.log(2)) * 1.0001
    half_turn = float((mp.pi / 2 * mp.mpf("1.01")) ** 2)
    out: dict[str, Fit | list[mp.mpf]] = {"INVERSE_BF16": inverse_steps()}
    for kind, degree in (("BF16", 3), ("F16", 4)):
        out[f"EXP_{kind}"] = Fit(
            series(mp.exp, 1, 14), tuple(range(degree + 1)), -ln2 / 2, ln2 / 2, lambda x: abs(x) / mp.exp(x)
        )
    for kind, degree in (("BF16", 6), ("F16", 7)):
        out[f"LOG1P_{kind}"] = Fit(
            series(mp.log1p, 1, 20), tuple(range(degree + 1)), 1e-9, 1.00001, lambda x: abs(x / mp.log1p(x))
        )
    out["SIN_BF16"] = Fit(alternating(1, 0), (0, 1, 2, 3), 1e-9, half_turn, odd_weight(mp.sin, 0))
    for kind, degree, edge in (("BF16", 8, 2.25), ("F16", 11, 2.75)):
        out[f"ERF_{kind}"] = Fit(
            lambda z: 1 + erf_near(z), tuple(range(degree + 1)), 1e-12, edge**2, odd_weight(mp.erf, 0)
        )
    for kind, degrees, edge in (("BF16", (2, 3), 3.6), ("F16", (3, 3), 4.6)):
        out |= ratio_fits(f"TANH_{kind}", lambda z: mp.tanh(mp.sqrt(z)) / mp.sqrt(z), degrees, edge**2, None)
    for kind, edge in (("BF16", 13.4), ("F16", 5.9)):
        out |= ratio_fits(f"MILLS_{kind}", mills, (3, 4), edge, "0.5")
    return out


def fits() -> dict[str, Fit | list[mp.mpf]]:
    """All polynomials that the sources use."""
    return {**exp_fits(), **log_fits(), **wave_fits(), **sigmoid_like_fits(), **mills_ratio_fits(), **half_fits()}


def decimals(values: Sequence[mp.mpf]) -> str:
    """Shortest decimals that give the float32 values."""
    return f"({', '.join(str(np.float32(float(v))) for v in values)})"


def main(names: list[str]) -> None:
    for name, fit in fits().items():
        if names and name not in names:
            continue
        if isinstance(fit, list):
            print(f"{name} = {decimals(fit)}")
            continue
        c, left, ideal = fit.run()
        print(f"{name} = {decimals(c)}")
        print(f"  # error 2^{float(mp.log(left, 2)):.2f}, before rounding 2^{float(mp.log(ideal, 2)):.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
