"""Tuning sessions: a budget is spent on measurements, which are recorded and compared."""
