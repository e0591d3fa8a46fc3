"""The picture of each kind of value, as HTML."""
