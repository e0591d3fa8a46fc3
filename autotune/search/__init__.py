"""Rows of decisions: drawn, ranked, and told what became of them."""
