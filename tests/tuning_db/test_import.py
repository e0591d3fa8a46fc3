"""The records alone come without SQLAlchemy: the processes that measure need nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tilewright.tuning_db as package


def test_records_come_without_sqlalchemy() -> None:
    program = (
        "import sys; from tilewright.tuning_db import Outcome, Measurement; "
        "sys.exit('sqlalchemy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_every_public_name_is_there() -> None:
    for name in package.__all__:
        assert hasattr(package, name), name
    with pytest.raises(AttributeError):
        package.Nothing  # noqa: B018
