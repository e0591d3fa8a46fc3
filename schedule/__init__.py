"""Schedule primitives, schedules and traces."""

from .index_map import IndexMap, parse_index_map
from .primitive import PRIMITIVES, Primitive, primitive
from .require import Constraint, Space, certain, require
from .schedule import Schedule
from .trace import Step, Trace

__all__ = [
    "PRIMITIVES",
    "Constraint",
    "IndexMap",
    "Primitive",
    "Schedule",
    "Space",
    "Step",
    "Trace",
    "certain",
    "parse_index_map",
    "primitive",
    "require",
]
