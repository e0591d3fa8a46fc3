"""Packing candidates for a machine elsewhere: what the search asks for, compiled into a folder.

`runtime/measure/` measures it there, and `pack_import.py` makes records of the results.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from ...base.errors import IRError, ScheduleError, TilewrightError, TuningError
from ...base.files import File, replace_files
from ...codegen.calling_convention import signature_of
from ...codegen.compiled import Compiled
from ...codegen.detect import resolve, usable_processors
from ...codegen.generator import generator_for
from ...runtime.artifact import parse_manifest
from ...runtime.host_memory import HostMemory
from ...runtime.manifest import Provenance
from ...runtime.measure.pack import PACK, Limits, Pack, PackedCandidate, PackedFile
from ...runtime.measure.results import now
from ...runtime.module import Origin
from ...target import Target
from ...tir.ir import Func
from ...tir.verify import verify
from ...tir.widen import widened
from ...tuning_db import TuningDatabase
from ...tuning_db.arguments import opened_or_none
from ...tuning_db.store import DatabaseOrPath
from ...tuning_db.values import Outcome, TargetRecord, to_plain
from ..config import TuneConfig
from ..model.cost_model import PARAMETERS
from ..records import toolchain_record, workload_record
from ..search.drawing import Drawn, drawn_by_search, model_or_none
from .compile_in_child import compile_in_child
from .host_sample import NotSampled, host_sample
from .interchange import reference_program
from .numeric_check import arguments_of, needs_positive, require_tolerance, tolerance_of

Compile: TypeAlias = Callable[[Func, Target], Compiled]


@dataclass(frozen=True)
class Packed:
    """What was written: the pack, and whether a search chose its candidates."""

    pack: Pack
    folder: Path
    searched: bool

    @property
    def built(self) -> int:
        return sum(c.file is not None for c in self.pack.candidates)


def write_pack(  # noqa: PLR0913 - each option of a search has a name
    func: Func,
    target: Target | str,
    folder: Path,
    *,
    trials: int = 64,
    seed: int = 0,
    config: TuneConfig | None = None,
    database: DatabaseOrPath | None = None,
    tolerance: float | None = None,
    chosen: Sequence[Drawn] = (),
    compile_program: Compile = compile_in_child,
    tell: Callable[[str], object] = lambda _: None,
) -> Packed:
    """Compile the candidates that the search asks for into a new folder, and what to expect.

    Those that are `chosen` already take their place, if there are any.

    The folder is there when all of it is written. Candidates that do not compile are in it with
    their errors, for the records. What `database` knows of such machines warms the search, and is
    not packed again. `tolerance` is as for `tune`.

    Raises `TuningError` for a folder that is there, for fewer than 1 trials, and where nothing is
    left to measure; `BuildError` where the unscheduled program does not compile; and what drawing
    candidates raises.
    """
    if trials < 1:
        raise TuningError("{0} trials: expected 1 at least", trials)
    require_tolerance(tolerance, TuningError)
    known = opened_or_none(database, TuningError)
    verify(func)
    resolved = resolve(target)
    if os.path.lexists(folder):
        raise TuningError("{0} is there already", folder, hint="name a new folder")
    unfinished = folder.with_name(f".{folder.name}.unfinished-{os.getpid()}")
    try:
        unfinished.mkdir()
    except OSError as error:
        raise TuningError("cannot write {0}: {1}", folder, error.strerror or error) from error
    try:
        pack = _Packer(resolved, unfinished, compile_program, tell).pack(
            func, trials, seed, config or TuneConfig(), known, tolerance, chosen
        )
        unfinished.rename(folder)
    except OSError as error:
        raise TuningError("cannot write {0}: {1}", folder, error.strerror or error) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return Packed(pack, folder, not chosen and model_or_none(resolved) is not None)


class _Packer:
    """Writes the files of a pack for a target into a folder."""

    def __init__(
        self, target: Target, folder: Path, compile_program: Compile, tell: Callable[[str], object]
    ) -> None:
        self._target, self._folder, self._tell = target, folder, tell
        self._generator = generator_for(target)
        self._compile = compile_program
        self._versions = toolchain_record(target)

    def pack(
        self,
        func: Func,
        trials: int,
        seed: int,
        config: TuneConfig,
        database: TuningDatabase | None,
        tolerance: float | None,
        chosen: Sequence[Drawn],
    ) -> Pack:
        drawn = chosen or drawn_by_search(
            func, self._target, trials, seed, database=database, tolerance=tolerance
        )
        if not drawn:
            raise TuningError(
                "the database has a result of each candidate of {0}",
                func.name,
                hint="build it with the database: tilewright build",
            )
        reference = self._written("reference", self._reference(func))
        model = model_or_none(self._target)
        version = None if model is None else model.feature_version
        created = now()
        pack = Pack(
            records=self._records(
                func,
                version,
                {
                    "trials": len(drawn),
                    "seconds": None,
                    "seed": seed,
                    "search": {**config.to_json(), "tolerance": tolerance},
                    "started": created,
                },
            ),
            feature_version=version,
            created=created,
            seed=config.measure.seed,
            positive=needs_positive(func),
            tolerance=tolerance_of(func),
            accepted_error=None if tolerance is None else float(tolerance),
            limits=_limits(config),
            reference=reference,
            wide=self._wide(func),
            candidates=tuple(self._candidates(func, drawn)),
            samples=self._samples(func, config.measure.seed),
        )
        replace_files([File(self._folder / PACK, _text(pack))])
        return pack

    def _records(
        self, func: Func, version: str | None, session: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The records that do not depend on who measures. The session has not started."""
        # Who measures knows the class of its machine.
        target = TargetRecord(str(self._target), self._target.compat_class, perf="")
        return {
            "workload": to_plain(workload_record(func)),
            "target": to_plain(target),
            "toolchain": to_plain(self._versions),
            "session": {**session, "model": {"features": version, **PARAMETERS}},
        }

    def _candidates(self, func: Func, drawn: Sequence[Drawn]) -> list[PackedCandidate]:
        def build(numbered: tuple[int, Drawn]) -> PackedCandidate:
            number, candidate = numbered
            found = self._candidate(func, f"c{number:04d}", candidate)
            self._tell(f"{number + 1}/{len(drawn)}: {candidate.sketch}: {found.outcome or 'built'}")
            return found

        with ThreadPoolExecutor(usable_processors()) as pool:
            return list(pool.map(build, enumerate(drawn)))

    def _candidate(self, func: Func, name: str, drawn: Drawn) -> PackedCandidate:
        predicted = None if drawn.predicted is None else float(drawn.predicted)
        packed = partial(
            PackedCandidate,
            to_plain(drawn.schedule),
            drawn.features,
            float(drawn.trace.error_factor),
            predicted=predicted,
        )
        try:
            compiled = self._compile(drawn.trace.apply(func).func, self._target)
            file = self._written(name, compiled, drawn.schedule.id)
        except TilewrightError as error:
            illegal = isinstance(error, ScheduleError)
            outcome = Outcome.ILLEGAL if illegal else Outcome.BUILD_ERROR
            return packed(None, outcome.value, str(error))
        return packed(file, resources=self._generator.resources(compiled))

    def _wide(self, func: Func) -> PackedFile | None:
        try:
            wide = widened(func)
        except IRError:  # products of instructions have no other dtypes
            return None
        return self._written("wide", self._reference(wide))

    def _samples(self, func: Func, seed: int) -> list[dict[str, Any]] | None:
        """Elements of the outputs for random inputs: a device is not judged by itself alone."""
        if not self._generator.on_device:
            return None
        try:
            arguments = arguments_of(func, signature_of(func), seed, HostMemory())
            return [sample.to_json() for sample in host_sample(func, arguments.on_host)]
        except (NotSampled, MemoryError) as reason:
            why = str(reason) or "there is no memory for its arguments"
            self._tell(f"nothing is compared with float64 on the host: {why}")
            return None

    def _reference(self, func: Func) -> Compiled:
        return self._compile(reference_program(func, self._target), self._target)

    def _written(self, name: str, compiled: Compiled, schedule: str | None = None) -> PackedFile:
        """Write compiled code as an artifact of the folder."""
        path = self._folder / f"{name}{self._generator.suffix}"
        versions = {key: str(text) for key, text in self._versions.versions.items()}
        provenance = Provenance(Origin("schedule", schedule_id=schedule))
        files = self._generator.files([(compiled, provenance)], path, versions, intermediate=False)
        replace_files(files)
        manifest = path.with_name(path.name + ".json")
        return PackedFile(path.name, parse_manifest(manifest.read_bytes(), manifest).code.sha256)


def _limits(config: TuneConfig) -> Limits:
    measure = config.measure
    return Limits(
        min_samples=measure.min_samples,
        max_samples=measure.max_samples,
        sample_seconds=measure.sample_seconds,
        timing_seconds=measure.timing_seconds,
        slack=measure.slack,
        # By the clock: another machine may be busy.
        run_timeout=4 * measure.run_timeout,
        reference_timeout=measure.reference_timeout,
        finalists=config.finalists,
        margin=config.margin,
        rounds=config.rounds,
        final_seconds=config.final_seconds,
    )


def _text(pack: Pack) -> bytes:
    return json.dumps(pack.to_json(), sort_keys=True).encode() + b"\n"
