"""Measuring what another machine packed: `python -m tilewright.runtime.measure`."""
