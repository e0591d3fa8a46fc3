"""The model of processors, and the files of the base model that comes with it."""

from __future__ import annotations

from pathlib import Path

from ..target_model import TargetModel
from .estimate import FEATURES, VERSION, Estimator
from .roofline import roofline

_FOLDER = Path(__file__).with_name("base")
TABLE = _FOLDER / "samples.jsonl.gz"
"""The table of samples that the base model is trained on."""
MODEL_FILE = _FOLDER / "model.json"
"""The base model."""
MODEL = TargetModel(FEATURES, VERSION, Estimator, roofline, MODEL_FILE)
