"""Python's search for circles of references waits until a cycle is over.

A cycle makes none (tested): what it leaves is freed at once, by its counts. Searching meanwhile
goes through everything that it has made, and the whole snapshot, again and again, in vain.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def undisturbed() -> Iterator[None]:
    """No search inside; where it was on it is on afterwards, also after an error."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
