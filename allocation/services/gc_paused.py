"""Pausing Python's cyclic garbage collector while the solver runs.

`solve` creates no reference cycles (tested): reference counts free everything it leaves. The
collector would traverse the whole snapshot and everything made so far, again and again, and find
nothing; that took a sixth of the solver's time. The solver is a pure function and knows nothing of
the interpreter it runs in, so its callers pause the collector.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the collector; afterwards, also after an error, it is as it was before."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
