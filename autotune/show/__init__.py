"""How a session shows itself while it runs, and afterwards from its records."""
