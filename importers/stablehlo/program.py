"""Reading a program of StableHLO: its arguments, its operations one by one, what it returns.

Functions are written out where they are called, and bodies of loops once for each iteration.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from ...base import dtypes
from ...base.errors import ModelError
from ...graph.builder import Builder
from ...graph.compose.complex import PART_DTYPES, Complex
from ...graph.ir import Constant, Graph, TensorType, Value
from ..translation import Translation, UntranslatedError, checked
from ..unsupported import Reason, Unsupported, unsupported_error
from .module import argument_name, is_complex, parsed, place, tensor_type
from .table import COMPLEX, TABLE, Entry, Op, Tensor, Translate, empty, python

_RETURNS = frozenset({"func.return", "stablehlo.return"})


def import_stablehlo(program: Any, name: str = "") -> Graph:
    """The graph of a program that JAX exports, whose shapes are static.

    `program` is what `jax.export.export(jax.jit(f))(*args)` returns, or a module of StableHLO: its
    text, its bytecode or a portable artifact. Inputs are named as the arguments of the function and
    their keys, outputs by their keys or places in what it returns. An argument that the function
    does not use is an input, too. Raises `UnsupportedError` with all operations that are not
    supported, with open dims and with types that are no tensors; `ModelError` for what is no such
    program.
    """
    try:
        import jax.export
    except ImportError as error:
        raise ModelError("jax is not installed", hint="pip install 'tilewright[jax]'") from error
    from . import operators  # noqa: F401  # registers all

    facts = {"importer": "stablehlo", "jax": jax.__version__}
    if isinstance(program, jax.export.Exported):
        module = parsed(program.mlir_module_serialized)
        graph = _Program(module, name or program.fun_name).translated(_Exported(program))
        return replace(graph, importer=facts)
    if not isinstance(program, str | bytes | bytearray):
        raise ModelError(
            "expected a program of jax.export, or text or bytecode of StableHLO, found {0}",
            type(program).__name__,
            hint="jax.export.export(jax.jit(f))(*args) makes one of a function",
        )
    return replace(_Program(parsed(program), name).translated(None), importer=facts)


class _Exported:
    """How the arguments of an exported function are those of the main function of its module."""

    def __init__(self, program: Any) -> None:
        self.program = program
        if program.nr_devices != 1:
            detail = f"{program.nr_devices} devices"
            raise unsupported_error([("", "module", Reason.ATTRIBUTE, detail)])
        self.platform = None
        if len(program.platforms) > 1:  # the first argument says which one it is
            known = "cpu" in program.platforms
            self.platform = program.platforms.index("cpu") if known else 0

    def unused(self) -> dict[int, tuple[str, Any]]:
        """The names and types of the arguments that the module does not have, by their places."""
        import jax

        kept = set(self.program.module_kept_var_idx)
        tree = jax.tree_util.tree_unflatten(
            self.program.in_tree, list(range(len(self.program.in_avals)))
        )
        named = jax.tree_util.tree_flatten_with_path(tree)[0]
        return {
            k: (_argument_path(path), self.program.in_avals[k])
            for k, (path, _) in enumerate(named)
            if k not in kept
        }


def _argument_path(path: Sequence[Any]) -> str:
    """A name for a leaf of `(args, kwargs)`."""
    import jax

    first, second, *rest = path
    own = jax.tree_util.keystr(tuple(rest))
    return f"{second.key}{own}" if first.idx else f"arg{second.idx}{own}"


class _Program(Translation):
    """The values of a program, and what of it is not supported."""

    def __init__(self, module: Any, name: str) -> None:
        self.module = module  # which owns its operations
        self.functions: dict[str, Any] = {}
        for operation in module.body.operations:
            if operation.operation.name == "func.func" and len(operation.regions[0].blocks):
                self.functions[python(operation.attributes["sym_name"])] = operation
        symbol = module.operation.attributes
        known = python(symbol["sym_name"]) if "sym_name" in symbol else ""
        super().__init__(name or str(known).removeprefix("jit_") or "model")
        self.scope: dict[Any, Tensor] = {}
        self.active: list[str] = []

    def translated(self, exported: _Exported | None) -> Graph:
        main = self._main()
        block = main.regions[0].blocks[0]
        self._inputs(list(block.arguments), exported)
        results: list[Tensor] = []
        with suppress(UntranslatedError):
            results = self._operations(block, lifted=False)
        self.check()
        infos = main.attributes.get("res_attrs", None)
        attributes = ({},) * len(results) if infos is None else python(infos)
        outputs: dict[str, Value] = {}
        for info, value in zip(attributes, results, strict=True):
            own = value.pairs(self.builder) if isinstance(value, Complex) else value
            outputs[_unique(_output_name(info.get("jax.result_info", "")), outputs)] = own
        if not outputs:
            raise ModelError("the program has no outputs")
        return self.graph(outputs)

    def _main(self) -> Any:
        """The main function, or the only one."""
        if "main" in self.functions or len(self.functions) == 1:
            return self.functions.get("main") or next(iter(self.functions.values()))
        raise ModelError(
            "expected a function main, found {0}", ", ".join(self.functions) or "none",
            hint="rename the one that is called from outside to main" if self.functions else None,
        )  # fmt: skip

    def _inputs(self, arguments: list[Any], exported: _Exported | None) -> None:
        unused = exported.unused() if exported else {}
        if exported and exported.platform is not None:
            self.scope[arguments.pop(0)] = self.builder.constant(exported.platform, "int32")
        for k in range(len(arguments) + len(unused)):
            argument = None if k in unused else arguments.pop(0)
            name, aval = unused.get(k, ("", None))
            own = _identifier(name if argument is None else argument_name(argument))
            name = _unique(own or f"arg{k}", self.builder.inputs)
            try:
                if argument is None:
                    self.builder.input(name, _type_of(aval))
                else:
                    self.scope[argument] = self._input(name, argument.type)
            except Unsupported as problem:
                self.refuse(name, "input", problem)

    def _input(self, name: str, type: Any) -> Tensor:
        own = tensor_type(type, part=True)
        if not is_complex(type):
            return self.builder.input(name, own)
        return Complex.of(self.builder, self.builder.input(name, _pairs(own)))

    def block(self, block: Any, values: Sequence[Tensor], *, lifted: bool) -> list[Tensor]:
        """What a block returns for values of its arguments."""
        self.scope.update(zip(block.arguments, values, strict=True))
        return self._operations(block, lifted=lifted)

    def function(self, name: str, values: Sequence[Tensor], *, lifted: bool) -> list[Tensor]:
        """What a function of the module returns."""
        if name not in self.functions or name in self.active:
            why = "calls itself" if name in self.active else "is not in the module"
            raise ModelError("the function {0} {1}", name, why)
        self.active.append(name)
        try:
            return self.block(self.functions[name].regions[0].blocks[0], values, lifted=lifted)
        finally:
            self.active.pop()

    def _operations(self, block: Any, *, lifted: bool) -> list[Tensor]:
        *body, end = (operation.operation for operation in block.operations)
        if end.name not in _RETURNS:
            raise ModelError("a block ends with {0}, expected a return", end.name)
        for raw in body:
            self._operation(raw, lifted=lifted)
        return self._operands(end)

    def _operands(self, raw: Any) -> list[Tensor]:
        try:
            return [self.scope[value] for value in raw.operands]
        except KeyError:
            raise UntranslatedError from None

    def _operation(self, raw: Any, *, lifted: bool) -> None:
        name = raw.name.removeprefix("stablehlo.")
        if name == "custom_call":
            name = f"custom_call @{python(raw.attributes['call_target_name'])}"
        for result in raw.results:  # of the iteration before
            self.scope.pop(result, None)
        with self.node(place(raw), name):
            translate = self._translation(name, raw, lifted=lifted)
            types = [tensor_type(result.type, part=True) for result in raw.results]
            op = Op(name, self._operands(raw), types, raw, self, lifted)
            made = self._made(translate, op)
            parts = [value.parts if isinstance(value, Complex) else (value,) for value in made]
            if lifted:  # of whatever shape: it is declared for scalars
                types = [
                    TensorType(t.dtype, own.shape)
                    for t, (own, *_) in zip(types, parts, strict=True)
                ]
            declared = [own for own, values in zip(types, parts, strict=True) for _ in values]
            flat = checked(list(chain(*parts)), declared, "StableHLO")
            self.scope.update(zip(raw.results, made, strict=True))
            self.source(place(raw), raw.name, op.given, flat)

    def _translation(self, name: str, raw: Any, *, lifted: bool) -> Translate:
        made = [str(result.type) for result in raw.results if is_complex(result.type)]
        if made or any(is_complex(value.type) for value in raw.operands):
            if name in COMPLEX:
                return COMPLEX[name]
            if made:
                raise Unsupported(Reason.DTYPE, made[0])
        entry = _find(name, lifted=lifted)
        if not entry.pointwise or lifted:
            return entry.translate
        return lambda b, op: entry.translate(b, replace(op, given=_narrowed(b, op)))

    def _made(self, translate: Translate, op: Op) -> Sequence[Tensor]:
        is_empty = op.results and not op.lifted and not any(type.size for type in op.results)
        if is_empty:
            parts = [empty(self.builder, type) for type in op.results]
            return [
                Complex(part, part) if is_complex(result.type) else part
                for part, result in zip(parts, op.raw.results, strict=True)
            ]
        made = translate(self.builder, op)
        return (made,) if isinstance(made, Value | Complex) else tuple(made)


def _narrowed(b: Builder, op: Op) -> Sequence[Value]:
    """The operands, of which constants of one number are scalars: no memory is read for them."""
    shape = op.results[0].shape if op.results else ()
    wide = [not isinstance(value, Constant) and value.shape == shape for value in op.operands]
    return [x if not any(wide) else _scalar(b, x) for x in op.operands]


def _scalar(b: Builder, value: Value) -> Value:
    if not isinstance(value, Constant) or value.type.size < 2:
        return value
    bits = value.data.reshape(-1).view(np.dtype(f"u{value.data.itemsize}"))
    return b.constant(value.data.flat[0]) if (bits == bits[0]).all() else value


def _find(name: str, *, lifted: bool) -> Entry:
    entry = TABLE.get(name)
    if entry is None:
        foreign = "." in name and not name.startswith(("chlo.", "custom_call"))
        raise Unsupported(Reason.DOMAIN if foreign else Reason.OPERATOR, name)
    if lifted and not entry.lifts:
        raise Unsupported(Reason.OPERATOR, f"{name} in the body of another operation")
    return entry


def _type_of(aval: Any) -> TensorType:
    import jax

    if jax.numpy.issubdtype(aval.dtype, jax.dtypes.prng_key):  # modules have the words of keys
        like = jax.ShapeDtypeStruct(aval.shape, aval.dtype)
        aval = jax.eval_shape(jax.random.key_data, like)
    part = PART_DTYPES.get(aval.dtype.name)
    if part is not None:
        return _pairs(TensorType(part, tuple(aval.shape)))
    if aval.dtype.name not in dtypes.SCALARS:
        raise Unsupported(Reason.DTYPE, aval.dtype.name)
    return TensorType(str(aval.dtype.name), tuple(aval.shape))


def _pairs(part: TensorType) -> TensorType:
    """The type of complex numbers in memory, given that of their parts."""
    return TensorType(part.dtype, (*part.shape, 2))


def _identifier(path: str) -> str:
    """`p[0]['w']` as `p_0_w`."""
    return re.sub(r"\W+", "_", path).strip("_")


def _output_name(info: str) -> str:
    """A name for what a function returns at `result[0]['y']`."""
    own = _identifier(info.removeprefix("result"))
    return f"output{own and '_'}{own}" if not own or own[0].isdigit() else own


def _unique(name: str, taken: Any) -> str:
    """The name, with a number if there is one of it."""
    found, count = name, 1
    while found in taken:
        count += 1
        found = f"{name}_{count}"
    return found
