"""The command `tilewright`."""
