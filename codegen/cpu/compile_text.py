"""Compile the text of an LLVM module in a process of its own, which LLVM may end.

Reads a request from standard input (see `checked_code`), and writes nothing: what LLVM refuses in
the ordinary way is raised where the text is compiled again.
"""

from __future__ import annotations

import json
import sys

from ...base.errors import BuildError
from ...target import CpuTarget
from . import llvm


def main() -> None:
    request = json.load(sys.stdin)
    target = CpuTarget.from_json(request["target"])
    try:
        module = llvm.optimise(request["text"], target)
        llvm.object_code(module, target)
    except BuildError:
        return


if __name__ == "__main__":
    main()
