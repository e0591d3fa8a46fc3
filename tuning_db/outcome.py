"""The outcome of a candidate, which processes that build and run candidates need alone."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """The outcome of a candidate. Only `OK` has a time; every other one has an error text."""

    OK = "ok"
    ILLEGAL = "illegal"
    BUILD_ERROR = "build_error"
    BUILD_TIMEOUT = "build_timeout"
    RUN_TIMEOUT = "run_timeout"
    CRASH = "crash"
    OUT_OF_MEMORY = "out_of_memory"
    WRONG_RESULT = "wrong_result"
