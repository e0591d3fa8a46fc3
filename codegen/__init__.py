"""Lowering passes and code generation."""
