"""The lab in a notebook: the widget, and the scripts that draw it."""
