"""xgboost's C API, compared with its Python package."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.autotune.model import boosting
from tilewright.autotune.model.boosting import Booster
from tilewright.base.errors import TuningError

PARAMETERS = {"objective": "reg:squarederror", "max_depth": 3, "nthread": 1, "base_score": 0.0}
ROUNDS = 5


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_training_and_predicting_are_those_of_the_package(
    dtype: type[np.float32 | np.float64],
) -> None:
    import xgboost

    rng = np.random.default_rng(0)
    features: boosting.Floats = rng.normal(size=(50, 4)).astype(dtype)
    label = features[:, 0] ** 2 + features[:, 1]
    weight = rng.uniform(size=50)
    ours = boosting.train(PARAMETERS, ROUNDS, features, label, weight=weight)
    data = xgboost.DMatrix(features, label=label, weight=weight)
    theirs = xgboost.train(PARAMETERS, data, num_boost_round=ROUNDS)
    assert ours.to_json() == bytes(theirs.save_raw("json"))
    asked: boosting.Floats = rng.normal(size=(30, 4)).astype(dtype, order="F")
    expected = theirs.inplace_predict(asked)
    np.testing.assert_array_equal(ours.predict(asked), expected)
    np.testing.assert_array_equal(Booster.load(ours.to_json()).predict(asked), expected)
    assert np.ptp(expected) > 0


def test_attributes_are_saved() -> None:
    booster = boosting.train(PARAMETERS, 1, np.ones((2, 1)), np.ones(2))
    booster.note(rows="2")
    assert b'"rows":"2"' in booster.to_json()


def test_no_rows_have_no_predictions() -> None:
    booster = boosting.train(PARAMETERS, 1, np.ones((2, 1)), np.ones(2))
    assert booster.predict(np.empty((0, 1))).shape == (0,)


def test_what_xgboost_refuses_is_passed_on() -> None:
    with pytest.raises(TuningError):
        boosting.train({**PARAMETERS, "max_depth": "deep"}, 1, np.ones((2, 1)), np.ones(2))


@pytest.mark.parametrize(
    ("library", "message"),
    [
        (None, "xgboost does not load: Cannot find XGBoost Library"),
        ("", "xgboost does not load: .*file too short"),
        ("2.1.4", "found xgboost 2.1.4; expected 3"),
    ],
)
def test_a_library_that_is_of_no_use(
    library: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import xgboost

    (tmp_path / "lib").mkdir()
    shutil.copy(Path(xgboost.__file__).with_name("libpath.py"), tmp_path)
    place = tmp_path / "lib" / "libxgboost.so"
    if library is not None:
        place.write_bytes(b"")
    if library:
        monkeypatch.setattr(ctypes, "CDLL", lambda _path: Other(library))
    other = spec_from_file_location("xgboost", tmp_path / "__init__.py")
    monkeypatch.setattr(boosting, "find_spec", lambda _name: other)
    with pytest.raises(TuningError, match=message) as found:
        boosting._library.__wrapped__()
    assert found.value.hint == "pip install 'xgboost-cpu==3.*'"


class Other:
    """The library of another version."""

    def __init__(self, version: str) -> None:
        self._version = [int(n) for n in version.split(".")]

    def XGBoostVersion(self, *numbers: Any) -> None:
        for number, value in zip(numbers, self._version, strict=True):
            number._obj.value = value


def test_the_package_is_not_imported() -> None:
    code = (
        "import sys\n"
        "from tilewright.autotune.model.base_model import SHIPPED, named\n"
        "from tilewright.autotune.model.cpu.model import MODEL\n"
        "assert named(SHIPPED, MODEL) is not None\n"
        "assert not {'xgboost', 'scipy'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
