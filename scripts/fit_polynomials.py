"""Fit the polynomials of codegen/cpu/llvm_polynomials.py and print that file.

Interpolation at Chebyshev nodes, in decimal arithmetic of 110 digits: within a small factor of the
best polynomial of the degree. Each degree is the lowest whose relative error in the result of the
function is below the goal of its precision. Run it as `python scripts/fit_polynomials.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from decimal import Decimal, getcontext
from functools import cache
from math import cos, pi

getcontext().prec = 110
D = Decimal
Function = Callable[[Decimal], Decimal]
GOALS = {"float32": D(2) ** -28, "float64": D(2) ** -57}
PI = D(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899"
    "86280348253421170679821480865132823066470938446095505822317253594081"
)
LN2 = D(2).ln()


def exp_tail(r: Decimal) -> Decimal:
    """(exp(r) - 1 - r) / r**2"""
    return series(lambda n: power(r, n) / factorial(n + 2), r)


def exp2_tail(r: Decimal) -> Decimal:
    """(2**r - 1) / r"""
    return series(lambda n: LN2 * power(r * LN2, n) / factorial(n + 1), r)


def log_tail(w: Decimal) -> Decimal:
    """(log((1 + s) / (1 - s)) / s - 2) / w with w = s**2"""
    return series(lambda n: 2 * power(w, n) / (2 * n + 3), w)


def log_second_tail(w: Decimal) -> Decimal:
    """(log_tail(w) - 2/3) / w"""
    return series(lambda n: 2 * power(w, n) / (2 * n + 5), w)


def erf_near(z: Decimal) -> Decimal:
    """erf(x) / x - 1 with z = x**2"""
    total = series(lambda n: (-1) ** n * power(z, n) / (factorial(n) * (2 * n + 1)), z)
    return 2 / PI.sqrt() * total - 1


def erfc_far(t: Decimal) -> Decimal:
    """exp(x**2) * erfc(x) with t = (x - 2) / (x + 2)"""
    x = 2 * (1 + t) / (1 - t)
    return (x * x).exp() * (1 - x * (1 + erf_near(x * x)))


def sin_tail(z: Decimal) -> Decimal:
    """(sin(x) / x - 1) / z with z = x**2"""
    return series(lambda n: (-1) ** (n + 1) * power(z, n) / factorial(2 * n + 3), z)


def cos_tail(z: Decimal) -> Decimal:
    """(cos(x) - 1 + z / 2) / z**2 with z = x**2"""
    return series(lambda n: (-1) ** n * power(z, n) / factorial(2 * n + 4), z)


def asin_tail(z: Decimal) -> Decimal:
    """(asin(x) / x - 1) / z with z = x**2"""

    def term(n: int) -> Decimal:
        k = n + 1
        return factorial(2 * k) / (4**k * factorial(k) ** 2 * (2 * k + 1)) * power(z, n)

    return series(term, z)


def atan_tail(z: Decimal) -> Decimal:
    """(atan(x) / x - 1) / z with z = x**2"""
    return series(lambda n: (-1) ** (n + 1) * power(z, n) / (2 * n + 3), z)


def cube_root(x: Decimal) -> Decimal:
    return (x.ln() / 3).exp()


def series(term: Callable[[int], Decimal], x: Decimal) -> Decimal:
    total, n = D(0), 0
    while True:
        t = term(n)
        total += t
        if x == 0 or abs(t) < D(10) ** -100:
            return total
        n += 1


def power(x: Decimal, n: int) -> Decimal:
    return x**n if n else D(1)


@cache
def factorial(n: int) -> Decimal:
    return D(1) if n == 0 else n * factorial(n - 1)


def interpolate(f: Function, low: Decimal, high: Decimal, degree: int) -> list[Decimal]:
    """Coefficients, constant first, of the polynomial through f at the Chebyshev nodes."""
    count = degree + 1
    middle, half = (low + high) / 2, (high - low) / 2
    nodes = [middle + half * D(cos(pi * (2 * i + 1) / (2 * count))) for i in range(count)]
    table = [f(x) for x in nodes]
    for order in range(1, count):
        for i in range(count - 1, order - 1, -1):
            table[i] = (table[i] - table[i - 1]) / (nodes[i] - nodes[i - order])
    result = [D(0)] * count
    for i in range(count - 1, -1, -1):
        shifted = [D(0), *result[:-1]]
        result = [s - nodes[i] * r for s, r in zip(shifted, result, strict=True)]
        result[0] += table[i]
    return result


def fit(f: Function, low: Decimal, high: Decimal, goal: Decimal, weight: Function) -> list[Decimal]:
    """The shortest polynomial whose error, times `weight`, stays below `goal`."""
    points = [low + (high - low) * i / 60 for i in range(61)]
    exact = [f(x) for x in points]
    for degree in range(1, 40):
        found = interpolate(f, low, high, degree)
        errors = (
            abs(evaluate(found, x) - y) * weight(x) for x, y in zip(points, exact, strict=True)
        )
        if max(errors) < goal:
            return found
    raise SystemExit(f"{f.__name__}: no polynomial is good enough")


def evaluate(coefficients: list[Decimal], x: Decimal) -> Decimal:
    total = D(0)
    for c in reversed(coefficients):
        total = total * x + c
    return total


def main() -> None:
    half_ln2 = LN2 / 2 * D("1.001")
    most = (D(2).sqrt() - 1) / (D(2).sqrt() + 1)
    wide = (most * D("1.001")) ** 2
    quarter = (PI / 4 * D("1.001")) ** 2
    lines = []
    for dtype, goal in GOALS.items():
        end = D(4) if dtype == "float32" else D(6)
        edge = (end - 2) / (end + 2)
        tables = {
            "EXP": fit(exp_tail, -half_ln2, half_ln2, goal, lambda r: r * r),
            "EXP2": fit(exp2_tail, D("-0.501"), D("0.501"), goal, abs),
            "LOG": fit(log_tail, D(0), wide, goal, lambda w: w),
            "ERF": fit(erf_near, D(0), D(1), goal, lambda _: D(1)),
            "ERFC": fit(
                erfc_far,
                D(-1) / 3,
                edge,
                goal,
                lambda t: (-((2 * (1 + t) / (1 - t)) ** 2)).exp(),
            ),
        }
        tables["SIN"] = fit(sin_tail, D(0), quarter, goal, lambda z: z)
        tables["COS"] = fit(cos_tail, D(0), quarter, goal, lambda z: z * z)
        steep = ((D(2).sqrt() - 1) * D("1.001")) ** 2
        tables["ASIN"] = fit(asin_tail, D(0), D("0.2501"), goal, lambda z: z)
        tables["ATAN"] = fit(atan_tail, D(0), steep, goal, lambda z: z)
        # A step of Halley's iteration leaves the third power of the error.
        near = D(2) ** -10 if dtype == "float32" else D(2) ** -20
        tables["CBRT"] = fit(cube_root, D("0.707"), D("1.4143"), near, lambda _: D(1))
        if dtype == "float64":
            tables["LOG2ND"] = fit(log_second_tail, D(0), wide, goal / 4096, lambda w: w * w)
        for name, coefficients in tables.items():
            numbers = "".join(f"        {float(c)!r},\n" for c in coefficients)
            lines.append(f'    ("{name}", "{dtype}"): (\n{numbers}    ),\n')
    sys.stdout.write(HEADER + "".join(lines) + "}\n")


HEADER = '''"""Coefficients of polynomials, constant term first, of llvm_math.py and its neighbours.

Written by scripts/fit_polynomials.py, which names the functions and the intervals.
"""

POLYNOMIALS: dict[tuple[str, str], tuple[float, ...]] = {
'''

if __name__ == "__main__":
    main()
