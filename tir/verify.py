"""The verifier: `verify` raises for the first rule of the IR that a program breaks.

Rules are checked in this order: structure (`wellformed.py`); reduce iterations may run in any order
(`reductions.py`); accesses in bounds, divisors not zero, iteration variables in their domain
(`inbounds.py`); declared regions cover what blocks touch; no predicate skips an init
(`starts.py`); reads see written elements (`initialised.py`); updates visit each point once, and
reductions begin at their zero point (`visits.py`); parallel, vectorized and thread loops
carry no dependence (`independence.py`), and neither do spatial iterations. All
checks are sound: what cannot be shown is refused, with the reason.
"""

from __future__ import annotations

from ..base.errors import VerifyError, depth_errors
from .inbounds import InBounds
from .independence import Independence, check_promises
from .initialised import Initialised
from .ir import Func
from .reductions import check_reductions
from .starts import check_starts
from .survey import Survey
from .visits import check_visits
from .wellformed import check_structure


def verify(func: Func) -> None:
    """Raise `VerifyError` if `func` breaks a rule of the IR, or is not shown to keep it.

    `func` is concrete: symbolic extents are not verified. The error names the place, what was found
    and what was expected.
    """
    with depth_errors(VerifyError, f"the program {func.name}", "verified"):
        check_structure(func)
        check_reductions(func)
        survey = Survey(func)
        bounds = InBounds(survey)
        bounds.check()
        _check_regions(survey, bounds)
        check_starts(survey)
        Initialised(func, survey).check()
        check_visits(survey)
        Independence(func, survey).check()
        check_promises(func, survey)


def _check_regions(survey: Survey, bounds: InBounds) -> None:
    for t in survey.touches:
        block = t.place.block
        if block is None:
            continue
        declared = block.writes if t.is_write else block.reads
        if not bounds.covered(t, declared):
            raise VerifyError(
                "{0}: {1} {2}[{3}], which its declared {4} do not cover", t.place.name,
                "stores to" if t.is_write else "reads", t.buffer.name,
                lambda t=t: ", ".join(map(str, t.indices)), "writes" if t.is_write else "reads",
                hint="declare the region that the block touches",
            )  # fmt: skip
