"""The ground floor: errors, dtypes, texts, files; every package may import it."""
