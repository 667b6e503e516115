"""The names of GPU classes in sentences: the labels that pages show, not the slugs of requests.

Who answers people opens `class_names`; elsewhere, as in a cycle of the solver, a sentence has the
slug. What is stored keeps the slug, so a label that changes is in old sentences, too.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

Read = Callable[[], Mapping[str, str]]

_read: ContextVar[Read] = ContextVar("class_names", default=dict)


@contextmanager
def class_names(read: Read) -> Iterator[None]:
    """Sentences have the labels by slug that `read` returns. It is called once, by the first
    sentence that names a class."""
    token = _read.set(cache(read))
    try:
        yield
    finally:
        _read.reset(token)


def class_name(slug: str) -> str:
    """Returns the label of a class; without one its slug."""
    return _read.get()().get(slug, slug)
