"""Load what `FILE.py:FUNCTION` makes, with parameters given as text, a model, or a kernel."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

import typer

from .graph_options import import_graph

if TYPE_CHECKING:
    from ..graph.ir import Graph
    from ..importers.onnx.summary import Summary
    from ..schedule import Schedule
    from ..tir.ir import Func


@dataclass(frozen=True)
class Options:
    """What a command is told about the programs and models that it takes."""

    parameters: list[str] | None = None
    shape: list[str] | None = None
    constant: list[str] | None = None
    target: str = "cpu"
    """What a program is built for: its kernels depend on it."""
    foreign: bool = False
    """Nodes of a model without a kernel are kept in the graph, for other providers."""
    taken: set[str] | None = None
    """Of several programs each takes the parameters that it has: those that were, by name."""

    def of(self, source: str) -> Options:
        """Those of one of several sources: a model has no parameters, and a function no shapes."""
        if source.endswith(".onnx") or ".onnx:" in source:
            return replace(self, parameters=None)
        return replace(self, shape=None, constant=None)

    @property
    def words(self) -> list[str]:
        """They as words of a command line."""
        given = (("-p", self.parameters), ("--shape", self.shape), ("--constant", self.constant))
        return [word for flag, texts in given for text in texts or () for word in (flag, text)]


def load_program(name: str, options: Options) -> Func:
    """Returns the program that a function makes, or that of a kernel of a program or model."""
    from ..tir.ir import Func

    made = load_buildable(name, options)
    if isinstance(made, Func):
        return made
    kernels = ", ".join(func.name for func in made.kernels()) or "none"
    raise typer.BadParameter(
        f"{name} is a model of several programs; expected one, {name}:KERNEL, of {kernels}"
    )


def load_buildable(name: str, options: Options) -> Func | Graph:
    """Returns the program or graph that a function makes, a model's graph, or a kernel of these."""
    made = load_tunable(name, options)
    if isinstance(made, list):
        raise typer.BadParameter(f"{name} gives schedules, expected a program (Func) or a Graph")
    return made


def load_all(sources: Sequence[str], options: Options) -> dict[str, Func | Graph]:
    """Returns the programs and graphs that sources stand for, by their names.

    `NAME=SOURCE` has another name than its own. Options are those of all, and each takes those that
    it has. Raises `typer.BadParameter` for two of one name, and for an option that none has.
    """
    found: dict[str, Func | Graph] = {}
    several = replace(options, taken=set())
    for source in sources:
        files = (source, source.rpartition(":")[0], source.rsplit(":", 2)[0])
        named = None if any(map(os.path.isfile, files)) else _NAMED.fullmatch(source)
        name, place = (None, source) if named is None else (named["name"], named["of"])
        own = options if len(sources) == 1 else several.of(place)
        made = load_buildable(place, own)
        name = made.name if name is None else name
        if name in found:
            raise typer.BadParameter(
                f"two programs are called {name!r}; give one another name: {name}_2={place}"
            )
        found[name] = made
    if len(sources) > 1:
        models = [source for source in sources if ".onnx" in source]
        given = (
            ("-p", several.parameters, several.taken),
            ("--shape", options.shape, models),
            ("--constant", options.constant, models),
        )
        for flag, texts, takers in given:
            for text in texts or ():
                if not takers or (flag == "-p" and text.partition("=")[0] not in takers):
                    raise typer.BadParameter(f"{flag} {text}: no program takes it")
    return found


def load_graph(name: str, options: Options, told: Summary | None = None) -> Graph:
    """Returns the graph of a model, whose file `told` is of, or that a function makes."""
    if name.endswith(".onnx"):
        return _imported(name, options, told)
    from ..graph.ir import Graph

    made = load_tunable(name, options)
    if not isinstance(made, Graph):
        raise typer.BadParameter(f"{name} is a program; expected a model: a Graph or a module")
    return made


def _imported(name: str, options: Options, told: Summary | None = None) -> Graph:
    if options.parameters:
        raise typer.BadParameter("-p sets what functions take; a model has --shape, --constant")
    shape, constant = options.shape, options.constant
    return import_graph(Path(name), shape, constant, told, foreign=options.foreign)


def load_tunable(name: str, options: Options) -> Func | Graph | list[Schedule]:
    """Returns what a name stands for: a program, schedules of one, or a graph.

    `FILE.py:FUNCTION` is what the function makes, see `_made`; where it returns a module of PyTorch
    with a tuple of example inputs, the graph of that. `MODEL.onnx` the graph of a model.
    With `:KERNEL` behind it is the program of one of the kernels that are built of that.
    """
    from ..graph.ir import Graph
    from ..schedule import Schedule
    from ..tir.ir import Func

    if (kernel := _KERNEL.fullmatch(name)) is not None:
        return _kernel(load_buildable(kernel["of"], options), kernel["name"], options.target)
    if name.endswith(".onnx"):
        return _imported(name, options)
    if options.shape or options.constant:
        raise typer.BadParameter(f"--shape and --constant are of models (.onnx), found {name!r}")
    made = _made(name, options.parameters or (), options.taken)
    schedules = [made] if isinstance(made, Schedule) else made
    if isinstance(schedules, list) and schedules and isinstance(schedules[0], Schedule):
        return schedules
    if isinstance(made, tuple) and len(made) == 2:
        from ..importers.torch import import_module

        return import_module(*made, name=name.rpartition(":")[2])
    if not isinstance(made, Func | Graph):
        raise typer.BadParameter(
            f"{name} gives a {type(made).__name__}, expected a program (Func), schedules of one, "
            "a Graph, or a torch.nn.Module with example inputs: return module, (x,)"
        )
    return made


_NAMED = re.compile(r"(?P<name>[A-Za-z]\w*)=(?P<of>.+)")
_KERNEL = re.compile(r"(?P<of>.+\.onnx|.+\.py:\w+):(?P<name>\w+)")


def _kernel(made: Func | Graph, name: str, target: str) -> Func:
    from ..building.build import kernels
    from ..tir.ir import Func

    programs = kernels(made, target).values() if isinstance(made, Func) else made.kernels()
    named = {func.name: func for func in programs}
    if name not in named:
        listed = ", ".join(named) or "none"
        raise typer.BadParameter(f"{made.name} has no kernel {name!r}; it has {listed}")
    return named[name]


def _made(name: str, parameters: Sequence[str], taken: set[str] | None = None) -> Any:
    """Returns what the function of `FILE.py:FUNCTION` returns, or the object that has this name.

    The file is run like an imported Python module, and can import its neighbours. `parameters` are
    texts such as `n=512`, converted by the annotations of the function: int, float, bool, str, a
    union of them (with None), a `Literal`. With `taken` it takes those that it has, which are added
    there. Raises `typer.BadParameter`, a wrong usage, for anything
    that does not fit; errors of the file itself are passed on.
    """
    file, _, function = name.rpartition(":")
    if not file or not function.isidentifier():
        more = "; a database is given by --db" if Path(name).suffix == ".db" else ""
        if Path(name).is_dir():
            more = ", which is a folder"
        elif Path(name).is_file() and name.endswith(".py"):
            more = f": name one of its functions, {name}:FUNCTION"
        raise typer.BadParameter(f"expected FILE.py:FUNCTION or MODEL.onnx, found {name!r}{more}")
    if not Path(file).is_file():
        raise typer.BadParameter(f"there is no file {file!r}")
    module = _run(Path(file))
    maker = getattr(module, function, None)
    if hasattr(maker, "forward"):
        raise typer.BadParameter(
            f"{name} is a module itself; expected a function that returns it with example inputs, "
            f"return {function}, (x,), or a name for such a tuple"
        )
    if maker is None:
        defined = [n for n, v in vars(module).items() if _may_be_named(v, module)]
        raise typer.BadParameter(
            f"{file} has no function {function!r}; it defines {', '.join(defined) or 'none'}"
        )
    if not callable(maker):
        if parameters and taken is None:
            raise typer.BadParameter(f"{name} is no function, and has no parameters")
        return maker
    return maker(**_arguments(maker, name, parameters, taken))


def load_module(name: str) -> None:
    """Run a file, or import a module, that registers operators or providers, for example."""
    if name.endswith(".py"):
        if not Path(name).is_file():
            raise typer.BadParameter(f"there is no file {name!r}", param_hint="--load")
        _run(Path(name))
        return
    try:
        found = find_spec(name)
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise typer.BadParameter(
            f"there is no module {name!r}; a file is given as {name}.py", param_hint="--load"
        )
    importlib.import_module(name)


def _run(file: Path) -> ModuleType:
    spec = spec_from_file_location(f"_tilewright_user_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise typer.BadParameter(f"{str(file)!r} is no Python file: the name of one ends in .py")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses, for instance, look themselves up
    sys.path.insert(0, str(file.resolve().parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return module


def _may_be_named(value: object, module: ModuleType) -> bool:
    from ..graph.ir import Graph
    from ..tir.ir import Func

    own = inspect.isfunction(value) and value.__module__ == module.__name__
    return own or isinstance(value, Func | Graph)


def _arguments(
    maker: Callable[..., Any], name: str, texts: Iterable[str], taken: set[str] | None
) -> dict[str, Any]:
    known = inspect.signature(maker, eval_str=True).parameters
    arguments: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise typer.BadParameter(f"expected NAME=VALUE, found {text!r}")
        if key not in known and taken is not None:
            continue
        if key not in known:
            listed = ", ".join(known) or "none"
            raise typer.BadParameter(f"{text}: {name} has no parameter {key!r}; it has {listed}")
        if key in arguments:
            raise typer.BadParameter(f"{text}: {key!r} is given twice")
        try:
            arguments[key] = _value(value, _kind(known[key]))
        except ValueError as error:
            raise typer.BadParameter(f"{text}: {error}") from None
    if taken is not None:
        taken.update(arguments)
    missing = [n for n, p in known.items() if p.default is p.empty and n not in arguments]
    if missing:
        raise typer.BadParameter(f"{name} needs a value for {', '.join(missing)}")
    return arguments


def _kind(parameter: inspect.Parameter) -> Any:
    """The annotation of a parameter; without one, the type of its default."""
    if parameter.annotation is not parameter.empty:
        return parameter.annotation
    known = parameter.default is not parameter.empty and parameter.default is not None
    return type(parameter.default) if known else int | float | str


def _value(text: str, kind: Any) -> Any:
    """Convert a text to a value. Raises `ValueError` that says what was expected."""
    if get_origin(kind) is Literal:
        choices = {str(choice): choice for choice in get_args(kind)}
        if text not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}")
        return choices[text]
    union = get_origin(kind) in (Union, UnionType)
    readers = [_READERS[k] for k in (get_args(kind) if union else (kind,)) if k in _READERS]
    shown = getattr(kind, "__name__", str(kind))
    if not readers:
        raise ValueError(f"a {shown} cannot be given as text")
    for read in readers:
        try:
            return read(text)
        except ValueError:
            continue
    raise ValueError(f"expected {shown}, found {text!r}")


def _truth(text: str) -> bool:
    values = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if text.lower() not in values:
        raise ValueError(text)
    return values[text.lower()]


def _nothing(text: str) -> None:
    if text.lower() != "none":
        raise ValueError(text)


_READERS: dict[Any, Callable[[str], Any]] = {
    int: int,
    float: float,
    bool: _truth,
    NoneType: _nothing,
    str: str,
}
