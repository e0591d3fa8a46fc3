"""The sketch rules for processors."""
