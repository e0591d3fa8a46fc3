"""The cell of a notebook that runs now, by which one finds what its run before has left."""

from __future__ import annotations

from typing import NamedTuple

from IPython import get_ipython


class CellRun(NamedTuple):
    """A cell, by the id that the notebook has for it, and one of its runs."""

    cell: str
    run: str

    def replaces(self, other: CellRun | None) -> bool:
        """Whether it is another run of the same cell: its output takes the place of the other's."""
        return other is not None and other.cell == self.cell and other.run != self.run


def running_cell() -> CellRun | None:
    """The cell that runs; `None` outside of a notebook, and where its front end names no cells."""
    shell = get_ipython()
    request = getattr(shell, "parent_header", None)  # the whole request, of which it has the header
    if not request:
        return None
    cell = request.get("metadata", {}).get("cellId")
    return CellRun(str(cell), str(request["header"]["msg_id"])) if cell else None
