"""The command `tilewright`, which is `python -m tilewright`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit, after Ctrl-C with 130: also while modules are imported."""
    try:
        from .cli.main import main as command

        command()
    except KeyboardInterrupt:
        sys.stderr.write("tilewright: interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
