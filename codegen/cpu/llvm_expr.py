"""Emit expressions as LLVM instructions; `llvm_index.value` dispatches to the functions here."""

from __future__ import annotations

from ...base import dtypes
from ...tir.ir import (
    COMPARISONS,
    INDEX,
    SHIFTS,
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Dot,
    Expr,
    Load,
    Matmul,
    Op,
    Ramp,
    Select,
    Shuffle,
    Var,
)
from ...tir.visit import walk
from ..passes.rewrite import may_trap
from . import llvm_index, llvm_math, llvm_whole
from .llvm_float import computed_in, convert, operand, result
from .llvm_index import VALUE, index, value
from .llvm_load import load
from .llvm_product import product
from .llvm_text import (
    NARROW,
    Builder,
    call,
    calling,
    constant,
    operand_type,
    shuffled,
    spread,
    suffix,
    value_type,
)


def is_lazy(e: Expr) -> bool:
    """Whether `e` may only be evaluated on demand: it loads, or it may trap."""
    return any(type(n) is Load or (type(n) is Binary and may_trap(n)) for n in walk(e))


def _var(b: Builder, e: Var) -> str:
    return b.value_of(e)[0]


def _const(b: Builder, e: Const) -> str:
    del b
    return constant(e.value, e.dtype)


_INDEX_OPS = frozenset({Op.ADD, Op.SUB, Op.MUL, Op.FLOORDIV, Op.MOD, Op.MIN, Op.MAX})


def _binary(b: Builder, e: Binary) -> str:
    if e.dtype == INDEX and e.op in _INDEX_OPS and not _divides_by_variable(e):
        return index(b, e).text
    dtype = e.a.dtype
    if not dtypes.is_float(dtype):
        of_indices = llvm_index.binary(b, e)
        if of_indices is not None:
            return of_indices
        if e.op in SHIFTS:
            return _shift(b, e)
        return _integer_op(b, e.op, dtype, value(b, e.a), value(b, e.b))
    inner = computed_in(b, dtype, native=e.op not in (Op.FLOORDIV, Op.MOD))
    fused = _fused(b, e) if inner == dtype else None
    if fused is not None:
        return fused
    quotient = llvm_whole.quotient(b, e, rounded=False)
    if quotient is not None:
        return quotient
    x, y = value(b, e.a), value(b, e.b)
    x, y = (operand(b, dtype, inner, v) for v in (x, y))
    found = _float_op(b, e.op, inner, x, y, b.module.fast if inner == dtype else "")
    if e.op in COMPARISONS:
        return found
    return result(b, dtype, inner, found, exact=e.op in (Op.MIN, Op.MAX))


def _fused(b: Builder, e: Binary) -> str | None:
    """A sum with a product as one operation, which is an fma where the target has it."""
    product, other = (e.b, e.a) if _is_product(e.b) else (e.a, e.b)
    if not (e.op is Op.ADD and b.module.fast and _is_product(product)):
        return None
    assert isinstance(product, Binary)
    terms = [operand(b, e.dtype, e.dtype, value(b, v)) for v in (product.a, product.b, other)]
    return result(b, e.dtype, e.dtype, call(b, "llvm.fmuladd", e.dtype, e.dtype, *terms))


def _is_product(e: Expr) -> bool:
    return type(e) is Binary and e.op is Op.MUL


def _divides_by_variable(e: Binary) -> bool:
    return e.op in (Op.FLOORDIV, Op.MOD) and not (type(e.b) is Const and e.b.value > 0)


_FLOAT = {Op.ADD: "fadd", Op.SUB: "fsub", Op.MUL: "fmul", Op.DIV: "fdiv"}
_FLOAT_COMPARE = {
    Op.EQ: "oeq", Op.NE: "une", Op.LT: "olt", Op.LE: "ole", Op.GT: "ogt", Op.GE: "oge",
}  # fmt: skip
_INT = {
    Op.ADD: "add", Op.SUB: "sub", Op.MUL: "mul", Op.AND: "and", Op.OR: "or", Op.XOR: "xor",
}  # fmt: skip
_INT_COMPARE = {Op.EQ: "eq", Op.NE: "ne", Op.LT: "lt", Op.LE: "le", Op.GT: "gt", Op.GE: "ge"}


def _float_op(b: Builder, op: Op, dtype: str, x: str, y: str, fast: str) -> str:
    t = operand_type(dtype)
    if op in _FLOAT:
        return b.op(f"{_FLOAT[op]} {fast}{t} {x}, {y}")
    if op in _FLOAT_COMPARE:
        return b.op(f"fcmp {_FLOAT_COMPARE[op]} {t} {x}, {y}")
    if op in (Op.MIN, Op.MAX):
        return _extremum(b, op, dtype, x, y)
    return _float_division(b, op, dtype, x, y)


def _extremum(b: Builder, op: Op, dtype: str, x: str, y: str) -> str:
    """NaN if one operand is. The first select is one x86 instruction, which returns x for NaN.

    LLVM would merge the selects to one of a combined condition if both chose y where it holds.
    """
    t, i1 = operand_type(dtype), value_type(dtypes.vector("bool", dtypes.info(dtype).lanes))
    beyond = b.op(f"fcmp {'olt' if op is Op.MIN else 'ogt'} {t} {y}, {x}")
    chosen = b.op(f"select {i1} {beyond}, {t} {y}, {t} {x}")
    is_number = b.op(f"fcmp ord {t} {y}, {y}")
    return b.op(f"select {i1} {is_number}, {t} {chosen}, {t} {y}")


def _float_division(b: Builder, op: Op, dtype: str, x: str, y: str) -> str:
    """Quotient and remainder that floor, as numpy's `divmod` computes them."""
    t, i1 = value_type(dtype), value_type(dtypes.vector("bool", dtypes.info(dtype).lanes))
    zero, one, half = (constant(v, dtype) for v in (0.0, 1.0, 0.5))
    rest = b.op(f"frem {t} {x}, {y}")
    nonzero = b.op(f"fcmp une {t} {rest}, {zero}")
    signs = [b.op(f"fcmp olt {t} {v}, {zero}") for v in (y, rest)]
    differ = b.op(f"xor {i1} {signs[0]}, {signs[1]}")
    adjust = b.op(f"and {i1} {nonzero}, {differ}")
    up = b.op(f"fadd {t} {rest}, {y}")
    moved = b.op(f"select {i1} {adjust}, {t} {up}, {t} {rest}")
    if op is Op.MOD:
        signed_zero = call(b, "llvm.copysign", dtype, dtype, zero, y)
        return b.op(f"select {i1} {nonzero}, {t} {moved}, {t} {signed_zero}")
    plain = b.op(f"fdiv {t} {x}, {y}")
    quotient = b.op(f"fdiv {t} {b.op(f'fsub {t} {x}, {rest}')}, {y}")
    down = b.op(f"fsub {t} {quotient}, {one}")
    quotient = b.op(f"select {i1} {adjust}, {t} {down}, {t} {quotient}")
    floor = call(b, "llvm.floor", dtype, dtype, quotient)
    excess = b.op(f"fsub {t} {quotient}, {floor}")
    above = b.op(f"fcmp ogt {t} {excess}, {half}")
    raised = b.op(f"fadd {t} {floor}, {one}")
    floor = b.op(f"select {i1} {above}, {t} {raised}, {t} {floor}")
    signed_zero = call(b, "llvm.copysign", dtype, dtype, zero, plain)
    some = b.op(f"fcmp une {t} {quotient}, {zero}")
    floor = b.op(f"select {i1} {some}, {t} {floor}, {t} {signed_zero}")
    by_zero = b.op(f"fcmp oeq {t} {y}, {zero}")
    return b.op(f"select {i1} {by_zero}, {t} {plain}, {t} {floor}")


def _shift(b: Builder, e: Binary) -> str:
    """LLVM's shift, whose result is poison where all bits are moved out."""
    facts, t = dtypes.info(e.dtype), value_type(e.dtype)
    left, signed = e.op is Op.SHL, facts.kind == "int"
    name = "shl" if left else "ashr" if signed else "lshr"
    x, y = value(b, e.a), value(b, e.b)
    if not b.module.intervals.may_shift_out(e):
        return b.op(f"{name} {t} {x}, {y}")
    if not left and signed:
        last = call(b, "llvm.umin", e.dtype, e.dtype, y, constant(facts.bits - 1, e.dtype))
        return b.op(f"ashr {t} {x}, {last}")
    i1 = value_type(dtypes.vector("bool", facts.lanes))
    within = b.op(f"icmp ult {t} {y}, {constant(facts.bits, e.dtype)}")
    shifted = b.op(f"{name} {t} {x}, {y}")
    return b.op(f"select {i1} {within}, {t} {shifted}, {t} {constant(0, e.dtype)}")


def _integer_op(b: Builder, op: Op, dtype: str, x: str, y: str) -> str:
    facts = dtypes.info(dtype)
    t = value_type(dtype)
    signed = facts.kind == "int"
    if facts.kind == "bool" and op in (Op.MIN, Op.MAX):
        op = Op.AND if op is Op.MIN else Op.OR
    if op in _INT:
        return b.op(f"{_INT[op]} {t} {x}, {y}")
    if op in _INT_COMPARE:
        name = _INT_COMPARE[op]
        sign = "" if op in (Op.EQ, Op.NE) else "s" if signed else "u"
        return b.op(f"icmp {sign}{name} {t} {x}, {y}")
    if op in (Op.MIN, Op.MAX):
        name = f"llvm.{'s' if signed else 'u'}{op.value}"
        return call(b, name, dtype, dtype, x, y)
    if not signed:
        return b.op(f"{'udiv' if op is Op.FLOORDIV else 'urem'} {t} {x}, {y}")
    return _signed_division(b, op, dtype, x, y)


def _signed_division(b: Builder, op: Op, dtype: str, x: str, y: str) -> str:
    """Floors. A division by -1, which traps for the least integer, is done as a negation."""
    t, i1 = value_type(dtype), value_type(dtypes.vector("bool", dtypes.info(dtype).lanes))
    zero, one, minus = (constant(v, dtype) for v in (0, 1, -1))
    by_minus = b.op(f"icmp eq {t} {y}, {minus}")
    divisor = b.op(f"select {i1} {by_minus}, {t} {one}, {t} {y}")
    rest = b.op(f"srem {t} {x}, {divisor}")
    nonzero = b.op(f"icmp ne {t} {rest}, {zero}")
    differ = b.op(f"icmp slt {t} {b.op(f'xor {t} {rest}, {divisor}')}, {zero}")
    adjust = b.op(f"and {i1} {nonzero}, {differ}")
    if op is Op.MOD:
        up = b.op(f"add {t} {rest}, {divisor}")
        return b.op(f"select {i1} {adjust}, {t} {up}, {t} {rest}")
    quotient = b.op(f"sdiv {t} {x}, {divisor}")
    borrow = b.op(f"sext {i1} {adjust} to {t}")
    floor = b.op(f"add {t} {quotient}, {borrow}")
    negated = b.op(f"sub {t} {zero}, {x}")
    return b.op(f"select {i1} {by_minus}, {t} {negated}, {t} {floor}")


def _call(b: Builder, e: Call) -> str:
    facts = dtypes.info(e.dtype)
    rounded = llvm_whole.quotient(b, e.args[0], rounded=True) if e.fn == "round" else None
    args = [value(b, a) for a in e.args] if rounded is None else [rounded]
    t = value_type(e.dtype)
    if e.fn == "not":
        return b.op(f"xor {t} {args[0]}, {_all_ones(e.dtype)}")
    if facts.kind != "float":
        if e.fn == "neg":
            return b.op(f"sub {t} {constant(0, e.dtype)}, {args[0]}")
        if facts.kind == "uint":
            return args[0]
        return b.op(calling(b, f"llvm.abs.{suffix(e.dtype)}", t, (t, args[0]), ("i1", "false")))
    if facts.scalar in NARROW and e.fn in ("neg", "abs"):
        sign = 1 << (facts.bits - 1)
        mask = sign if e.fn == "neg" else sign - 1
        bits = dtypes.vector(f"uint{facts.bits}", facts.lanes)
        return b.op(f"{'xor' if e.fn == 'neg' else 'and'} {t} {args[0]}, {constant(mask, bits)}")
    inner = computed_in(b, e.dtype, native=e.fn in llvm_math.INTRINSICS)
    args = [operand(b, e.dtype, inner, a) for a in args]
    return result(b, e.dtype, inner, llvm_math.function(b, e.fn, inner, args))


def _all_ones(dtype: str) -> str:
    facts = dtypes.info(dtype)
    if facts.kind == "bool":
        return constant(True, dtype)
    return constant(dtypes.int_limits(facts.scalar)[1] if facts.kind == "uint" else -1, dtype)


def _cast(b: Builder, e: Cast) -> str:
    held = llvm_whole.held(b, e)
    return held if held is not None else convert(b, value(b, e.value), e.value.dtype, e.dtype)


def _select(b: Builder, e: Select) -> str:
    t = value_type(e.dtype)
    cond = value(b, e.cond)
    if dtypes.info(e.cond.dtype).lanes > 1 or not (is_lazy(e.then) or is_lazy(e.other)):
        i1 = value_type(e.cond.dtype)
        then, other = value(b, e.then), value(b, e.other)
        return b.op(f"select {i1} {cond}, {t} {then}, {t} {other}")
    then_block, other_block = b.new_block("then"), b.new_block("else")
    end = b.new_block("select")
    b.branch(cond, then_block, other_block)
    b.start(then_block)
    then = value(b, e.then)
    then_end = b.block
    b.jump(end)
    b.start(other_block)
    other = value(b, e.other)
    other_end = b.block
    b.jump(end)
    b.start(end)
    return b.op(f"phi {t} [ {then}, %{then_end.label} ], [ {other}, %{other_end.label} ]")


def _broadcast(b: Builder, e: Broadcast) -> str:
    facts = dtypes.info(e.dtype)
    if type(e.value) is Const:
        return constant(e.value.value, e.dtype)
    return spread(b, value(b, e.value), value_type(facts.scalar), facts.lanes)


def _ramp(b: Builder, e: Ramp) -> str:
    facts = dtypes.info(e.dtype)
    t, scalar = value_type(e.dtype), value_type(facts.scalar)
    if type(e.stride) is Const:
        step = int(e.stride.value)
        steps = f"<{', '.join(f'{scalar} {step * i}' for i in range(e.lanes))}>"
    else:
        numbers = f"<{', '.join(f'{scalar} {i}' for i in range(e.lanes))}>"
        stride = spread(b, value(b, e.stride), scalar, e.lanes)
        steps = b.op(f"mul {t} {stride}, {numbers}")
    base = spread(b, value(b, e.base), scalar, e.lanes)
    return b.op(f"add {t} {base}, {steps}")


def _shuffle(b: Builder, e: Shuffle) -> str:
    shuffle = b.pure(shuffled(value_type(e.a.dtype), value(b, e.a), value(b, e.b), e.order))
    vector = value_type(e.dtype)
    target = b.module.target
    if vector != "<64 x i8>" or target.vector_bits < 512 or target.arch != "x86_64":
        return shuffle
    # LLVM 22 does not return from `x + x`, nor from `x * 2`, where it sees that such a vector is a
    # shuffle. Assembly of no instructions hides that.
    return b.pure(f'call {vector} asm "", "=v,0"({vector} {shuffle})')


VALUE.update(
    {
        Var: _var,
        Const: _const,
        Binary: _binary,
        Call: _call,
        Cast: _cast,
        Select: _select,
        Load: load,
        Ramp: _ramp,
        Broadcast: _broadcast,
        Dot: product,
        Matmul: product,
        Shuffle: _shuffle,
    }
)
