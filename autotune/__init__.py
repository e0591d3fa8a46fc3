"""The search for good schedules."""
