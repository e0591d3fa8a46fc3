"""What each step costs, beside its budget: `python -m benchmarks.budgets`."""
