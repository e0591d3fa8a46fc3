"""The lab, and what people see elsewhere: pictures of values, plots, reports.

`tw.lab(func, target, database)` opens the lab. The root binds that function to the name of this
package as soon as it is imported: modules of the package are reached by `from tilewright.lab.plot
import ...`. Nothing heavy is imported before the lab is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.errors import TilewrightError, checked_call, system_errors

if TYPE_CHECKING:
    from ..schedule import Schedule
    from ..target import Target
    from ..tir.ir import Func
    from ..tuning_db.store import DatabaseOrPath
    from .front.widget import Lab

__all__ = ["lab"]


@checked_call(TilewrightError, 'tw.lab(func, "cpu", tw.TuningDatabase("tuning.db"))')
def lab(
    func: Func | Schedule, target: Target | str = "cpu", database: DatabaseOrPath | None = None
) -> Lab:
    """Open the lab for a program, or a schedule of one, as the output of a notebook's cell.

        tw.lab(func, "cpu -threads=2", tw.TuningDatabase("tuning.db"))

    It shows which steps are legal at each loop and block with their predicted times, and why others
    are not. Versions are tried and compared; what is measured goes to `database` (or the one at
    that path), and what that has is where one can start from. `schedule` of the result is that of
    the version that is shown.

    Raises `VerifyError` for a program that breaks a rule, `TargetError` for a text that is no
    target, and `TilewrightError` for what is no program or database, and without anywidget, which
    the extra `notebook` installs.
    """
    with system_errors(TilewrightError, "importing lab"):
        from ..schedule import Schedule
        from ..tir.ir import Func
        from ..tir.program import program_hint, shown
        from ..tuning_db.arguments import opened_or_none

        try:
            from .front.widget import Lab
            from .workbench.workbench import Workbench
        except ModuleNotFoundError as error:
            raise TilewrightError(
                "the lab needs {0}, which is not installed",
                error.name,
                hint="pip install 'tilewright[notebook]'",
            ) from error
    if not isinstance(func, (Func, Schedule)):
        raise TilewrightError(
            "expected a program (Func) or a schedule of one, found {0}",
            shown(func),
            hint=program_hint(func, "tw.lab"),
        )
    store = opened_or_none(database, TilewrightError, write=True)
    return Lab(Workbench(func, target, store))
