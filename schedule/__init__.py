"""Schedule primitives, schedules and traces."""
