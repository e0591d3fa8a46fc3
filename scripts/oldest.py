"""Print pip constraints that pin every dependency to the lower end of its range.

python scripts/oldest.py pyproject.toml > constraints.txt
"""

import re
import sys
import tomllib
from pathlib import Path


def constraints(pyproject: str) -> list[str]:
    """One line `name==version` per core dependency; those without a lower end raise ValueError."""
    lines = []
    for text in tomllib.loads(pyproject)["project"]["dependencies"]:
        found = re.match(r"([\w-]+)>=([\d.]+),<[\d.]+(;.*)?$", text)
        if found is None:
            raise ValueError(f"expected name>=oldest,<next, found {text!r}")
        name, oldest, marker = found.groups(default="")
        lines.append(f"{name}=={oldest}{marker}")
    return lines


if __name__ == "__main__":
    print(*constraints(Path(sys.argv[1]).read_text()), sep="\n")
