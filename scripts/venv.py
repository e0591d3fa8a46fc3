"""Create the virtual environment that the Makefile works in, or say what is missing.

    python3 scripts/venv.py .venv

Written for any Python, Python 2 too, so that an old one can tell what it is short of.
"""

from __future__ import print_function

import subprocess
import sys

OLDEST = (3, 11)


def missing():
    """The reason why this Python cannot create the environment, as text, or `None`."""
    if sys.version_info < OLDEST:
        return (
            "%s is Python %s, which is too old: Tilewright needs %d.%d or newer.\n"
            "Name one that is: make PYTHON=/path/to/python3.12 ..."
            % ((sys.executable, sys.version.split()[0]) + OLDEST)
        )
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError as error:
        return (
            "%s cannot create virtual environments (%s).\n"
            "On Debian and Ubuntu this installs what it needs: apt install python3-venv\n"
            "(for a Python that is not the system's default: apt install python%d.%d-venv)"
            % ((sys.executable, error) + sys.version_info[:2])
        )
    return None


def main(folder):
    """Returns the exit status: 0 when `folder` is a new, empty environment."""
    problem = missing()
    if problem is not None:
        print(problem, file=sys.stderr)
        return 1
    print("creating %s with Python %s" % (folder, sys.version.split()[0]))
    return subprocess.call([sys.executable, "-m", "venv", "--clear", folder])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
