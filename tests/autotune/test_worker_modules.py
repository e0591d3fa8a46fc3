"""Worker processes load what they need: each new one takes as long as its modules."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewright import Schedule
from tilewright.autotune.measure.program_text import program_fields
from tilewright.autotune.measure.protocol import Message
from tilewright.autotune.measure.reference import new_memory
from tilewright.autotune.measure.worker_process import Worker, turn
from tilewright.codegen.calling_convention import signature_of
from tilewright.codegen.detect import resolve

from .kernels import matmul

NEEDLESS = {
    "numpy.ma",
    "subprocess",
    "tilewright.autotune.model",
    "tilewright.autotune.rules",
    "tilewright.tuning_db.values",
}
"""Of all workers. Builders alone need schedules."""

Asked = Callable[[str, str], str]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """The value of an expression in a worker of a role that has done its first work."""
    monkeypatch.syspath_prepend(tmp_path)
    func, memory = matmul(), 8 << 30
    program = {"do": "program", **program_fields(func, resolve("cpu -threads=1"))}

    def ask(role: str, expression: str) -> str:
        code = f"import gc, sys\nprint({expression})\n"
        (tmp_path / "printing_module.py").write_text(code)
        outputs = new_memory(signature_of(func))
        start = {**program, "memory": memory, "seed": 0, "outputs": outputs}
        work = {
            "builder": [start, {"do": "build", "trace": Schedule(func).trace.to_json()}],
            "runner": [start, {**program, "do": "reference"}],
            "compiler": [{**program, "way": None, "strict_fp": False, "cached": False}],
        }[role]
        last = {**work[0], "modules": ["printing_module"]}
        worker = Worker([role], {}, [outputs])
        try:
            for fields in (*work, last):
                worker.send(Message(fields), 60.0)
                ((_, answer),) = turn([worker], lambda: None)
                assert isinstance(answer, Message)
                assert not answer.fields.get("error")
            return worker.output()
        finally:
            worker.kill()
            os.close(outputs)

    return ask


@pytest.mark.parametrize("role", ["builder", "runner", "compiler"])
def test_it_loads_what_its_work_needs(asked: Asked, role: str) -> None:
    needless = NEEDLESS if role == "builder" else {*NEEDLESS, "tilewright.schedule"}
    assert asked(role, f"sorted({needless} & set(sys.modules))") == "[]"


@pytest.mark.parametrize("role", ["builder", "runner", "compiler"])
def test_collections_of_garbage_leave_out_its_modules(asked: Asked, role: str) -> None:
    most = "gc.get_freeze_count() > len(gc.get_objects())"
    assert asked(role, f"[gc.isenabled(), {most}]") == "[True, True]"
