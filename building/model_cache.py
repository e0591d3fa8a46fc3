"""Models that were built before, by this process or another: taken from disk, not built again.

The key is a digest of all that determines a model: the graph with its names and constants, the
target with the measured rates of this machine, the options, the sources of everything that takes
part, and the versions of tools and libraries. Where a database is asked, an entry says for which
programs, and in which state it found them: one that has other records of these is built anew.
`codegen/disk_cache.py` keeps the files.

An entry holds the code as the kernel cache has it, the weights, and the facts of `_Facts`.
Operators and rules of sketches from outside of this package may depend on anything: with these,
nothing is kept. Nor is a build that has warned, so that the next one warns too.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import struct
import sys
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..base.checked_json import read
from ..base.errors import ArtifactError, BuildError
from ..codegen.build import to_module
from ..codegen.cache import LIMIT_BYTES, MAX_TEXT_BYTES, decode, encode
from ..codegen.compiled import Compiled
from ..codegen.disk_cache import DiskCache, location, sources_digest
from ..codegen.generator import generator_for, outside_modules
from ..graph.ir import Graph
from ..graph.loops import nodes_of
from ..graph.operator import Array, find
from ..graph.text import graph_text
from ..runtime.evidence import Evidence, Natural
from ..runtime.guards import Guard, check_guards
from ..runtime.model import Model
from ..runtime.module import Origin
from ..runtime.profile import Instrumented, signatures
from ..runtime.signature import Signature
from ..tir.instruction_set import user_instructions
from ..tir.node import CHECK
from .build_program import Ways
from .model_evidence import BuiltEvidence
from .weights import aligned

if TYPE_CHECKING:
    from ..tir.ir import Func
    from .build_model import BuiltGraph

KIND = "model"
MAX_ENTRY_BYTES = 128 << 20
"""Of an entry: models with more weights are not kept."""
_VERSION = 2
_LENGTHS = struct.Struct("<II")  # of the facts, compressed, and of the code; the rest are weights
_SOURCES = (
    *("base/**/*.py", "target/**/*.py", "tir/**/*.py", "schedule/**/*.py", "codegen/**/*.py"),
    *("runtime/**/*.py", "autotune/**/*.py", "ops/**/*.py", "graph/**/*.py", "building/**/*.py"),
    *("tuning_db/**/*.py", "autotune/model/*/base/model.json"),
)
"""The files of this package that take part in building a graph."""
_WARN = ("building", "autotune.search", "tuning_db")
"""The packages whose warnings are about the model."""
FROM_CACHE = "from the cache"
"""The only stage of the build of a model that was kept."""


@dataclass(frozen=True)
class _Asked:
    """The programs that a database was asked about, by families and ids, and its state then."""

    families: tuple[str, ...]
    workloads: tuple[str, ...]
    state: str


@dataclass(frozen=True)
class _Facts:
    """What an entry has beside code and weights; `steps` are those of a profile."""

    signature: Signature
    origin: Origin
    kernels: Mapping[str, Origin]
    guards: tuple[Guard, ...]
    steps: Natural
    evidence: Mapping[str, Any]
    programs: Mapping[str, tuple[str, str]]
    asked: _Asked | None


def kept_model(graph: Graph, ways: Ways) -> KeptModel | None:
    """The place of a model on disk; `None` where none is kept."""
    folder, target = location(os.environ, KIND), ways.target
    if folder is None or not generator_for(target).joins or outside_modules(target):
        return None
    package = __name__.partition(".")[0]
    rules = sys.modules.get(f"{package}.autotune.rules.user_rules")  # loaded by who registers one
    if rules is not None and rules.SKETCH_RULES:
        return None
    for name in {node.operator for node in nodes_of(graph)}:
        record = find(name)
        if record.outside:
            return None
    return KeptModel(_shared(folder), _key(graph, ways), ways, _types(graph))


class KeptModel:
    """The entry of one model."""

    def __init__(self, entries: DiskCache, name: str, ways: Ways, types: Sequence[_Type]) -> None:
        self._entries = entries
        self._name = name
        self._ways = ways
        self._types = types
        self._asked: _Asked | None = None
        self._warned = False

    def recalled(self) -> Model | None:
        """The model, if it was built with what there is now, else `None`."""
        return self._entries.get(self._name, partial(self._decoded, time.perf_counter()))

    def note(self, programs: Sequence[Func]) -> None:
        """Take down what the database has of these programs, before it is asked."""
        from ..autotune.records import workload_record

        if _asks(self._ways):
            records = [workload_record(program) for program in programs]
            families = tuple(sorted({record.family for record in records} - {""}))
            self._asked = self._state(families, tuple(sorted(record.id for record in records)))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Notice warnings of the build meanwhile."""
        watch = logging.Handler(logging.WARNING)
        watch.emit = self._warn  # type: ignore[method-assign]
        package = __name__.partition(".")[0]
        loggers = [logging.getLogger(f"{package}.{name}") for name in _WARN]
        self._warned = not all(logger.isEnabledFor(logging.WARNING) for logger in loggers)
        for logger in loggers:
            logger.addHandler(watch)
        try:
            yield
        finally:
            for logger in loggers:
                logger.removeHandler(watch)

    def keep(self, built: BuiltGraph) -> None:
        """Store what was built, unless it has warned. A failure is logged, and nothing happens."""
        compiled = built.compiled
        assert compiled.weights is not None
        assert compiled.profiled is not None
        if self._warned or compiled.weights.nbytes > MAX_ENTRY_BYTES or not self._entries.keeps():
            return
        facts = _Facts(
            compiled.signature, built.origin, built.kernels, compiled.guards, compiled.profiled,
            built.evidence.plain.to_json(), built.evidence.texts(), self._asked,
        )  # fmt: skip
        told = zlib.compress(json.dumps(asdict(facts)).encode(), level=1)
        code = encode(compiled)
        lengths = _LENGTHS.pack(len(told), len(code))
        self._entries.put(self._name, lengths, told, code, compiled.weights.data)

    def _warn(self, record: logging.LogRecord) -> None:
        del record
        self._warned = True

    def _state(self, families: tuple[str, ...], workloads: tuple[str, ...]) -> _Asked:
        assert self._ways.database is not None
        return _Asked(families, workloads, self._ways.database.state(families, workloads))

    def _decoded(self, began: float, content: bytes) -> Model | None:
        """Raises `ArtifactError` for what is no entry."""
        if len(content) < _LENGTHS.size:
            raise ArtifactError("it ends after {0} bytes", len(content))
        told, code = _LENGTHS.unpack_from(content)
        start, end = _LENGTHS.size + told, _LENGTHS.size + told + code
        if end > len(content):
            raise ArtifactError("parts of {0} bytes in {1} bytes", end, len(content))
        facts = _facts(content[_LENGTHS.size : start])
        if (facts.asked is not None) != _asks(self._ways):
            raise ArtifactError("it says nothing of the database, or of one that is not asked")
        asked = facts.asked
        if asked is not None and asked != self._state(asked.families, asked.workloads):
            return None
        arguments = facts.signature.arguments
        if [(a.role, a.dtype, a.shape) for a in arguments if not a.constant] != [*self._types]:
            raise ArtifactError("its arguments are not those of the graph")
        check_guards(facts.signature, facts.guards)
        held = np.frombuffer(content, np.uint8, offset=end)
        compiled = decode(content[start:end], facts.signature, self._ways.target)
        return _loaded(replace(compiled, guards=facts.guards), facts, held, began)


def _loaded(compiled: Compiled, facts: _Facts, held: Array, began: float) -> Model:
    last = facts.signature.arguments[-1:]
    wanted = last[0].size if last and last[0].constant else 0
    if wanted != held.nbytes:
        raise ArtifactError("{0} bytes of weights, expected {1}", held.nbytes, wanted)
    weights = aligned(held.nbytes)
    weights[:] = held
    weights.flags.writeable = False
    try:
        module = to_module(compiled, facts.origin)
    except BuildError as error:
        raise ArtifactError("its code does not load: {0}", error) from error
    spent = time.perf_counter() - began

    def evidence() -> Evidence:
        plain = Evidence.from_json(facts.evidence)
        return BuiltEvidence(plain, facts.programs, compiled.target, {FROM_CACHE: spent})()

    def instrumented() -> Instrumented:
        own = signatures(compiled.signature, facts.steps)
        return Instrumented(*(to_module(replace(compiled, signature=s)) for s in own))

    return Model(
        module, weights, facts.kernels, evidence, instrumented, guards=facts.guards, kept=True
    )


def _facts(told: bytes) -> _Facts:
    stream = zlib.decompressobj()
    try:
        text = stream.decompress(told, MAX_TEXT_BYTES)
        if not stream.eof:
            raise ArtifactError("facts that are cut off, or larger than {0} bytes", MAX_TEXT_BYTES)
        return read(_Facts, json.loads(text), "the facts of a model")
    except (zlib.error, ValueError, RecursionError) as error:
        raise ArtifactError("its facts cannot be read: {0}", error) from error


_Type: TypeAlias = tuple[str, str, tuple[int, ...]]
"""The role, dtype and shape of an argument."""


def _types(graph: Graph) -> list[_Type]:
    given = [("in", v.dtype, v.shape) for v in graph.inputs.values()]
    return [*given, *(("out", v.dtype, v.shape) for v in graph.outputs.values())]


def _asks(ways: Ways) -> bool:
    return ways.database is not None and not {"record", "transfer"}.isdisjoint(ways.allow)


def _key(graph: Graph, ways: Ways) -> str:
    """The digest (SHA-256, hex) of what determines a model, but for records."""
    from ..autotune.measure.machine import with_rates
    from ..autotune.model import boosting

    tools = generator_for(ways.target).tools()
    named = [
        (s.name, s.operator, s.passes, [v and v.name for v in s.outputs]) for s in graph.sources
    ]
    parts = [
        graph.digest,
        graph_text(graph, own_names=True),
        repr(named),
        json.dumps(with_rates(ways.target).to_json()),
        repr((tuple(ways.allow), ways.tolerance, ways.strict_fp, CHECK)),
        ways.database.location if ways.database is not None and _asks(ways) else "",
        f"{ways.require_tuned} {'' if ways.locked is None else ways.locked.digest}",
        f"{tools.generation} {dict(tools.versions)} {sources_digest(*_SOURCES)}",
        f"numpy {np.__version__}, xgboost {boosting.installed_version()}",
        repr(sorted(i.text for i in user_instructions())),
        repr(_own_primitives()),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _own_primitives() -> list[tuple[str, int]]:
    """The primitives of the user's own that are beyond their first version."""
    package = __name__.partition(".")[0]
    primitive = sys.modules.get(f"{package}.schedule.primitive")  # loaded by who registers one
    known = {} if primitive is None else primitive.PRIMITIVES
    own = (p for p in known.values() if p.home is not None and p.version > 1)
    return sorted((p.name, p.version) for p in own)


@cache
def _shared(folder: Path) -> DiskCache:
    return DiskCache(folder, KIND, _VERSION, LIMIT_BYTES, MAX_ENTRY_BYTES)
