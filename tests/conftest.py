"""What every test needs: the checks are on, and randomness is the same in every run."""

from __future__ import annotations

import os

os.environ["TILEWRIGHT_CHECK"] = "1"  # before anything imports tilewright
