"""Pausing Python's cyclic garbage collector while the solver runs.

`solve` creates no reference cycles (tested), so reference counting frees everything. The collector
would only traverse the snapshot again and again, which took a sixth of the solver's time. The
solver is a pure function and does not touch the interpreter, so its callers pause the collector.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the collector, and restore its previous state afterwards, also after an error."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
