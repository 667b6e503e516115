"""The nouns of sentences: one or many, and GPUs or cores of hosts.

Sentences are written for GPUs. Whoever knows that one is about cores says so here, and nowhere else.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Plural:
    """A sentence for one and for any other number; `number` names the fact that decides."""

    one: str
    many: str
    number: str

    def __mod__(self, facts: Mapping[str, object]) -> str:
        """Returns the sentence for the facts. KeyError: a fact is missing."""
        return plural(self.one, self.many, facts[self.number]) % facts


Sentence: TypeAlias = str | Plural
Read = Callable[[], Collection[str]]

_classes: ContextVar[Read] = ContextVar("core_classes", default=frozenset)
_is_about_cores: ContextVar[bool] = ContextVar("is_about_cores", default=False)
# “GPU class” is what every class is called, and memory of a GPU is never a host's.
_GPU = re.compile(r"\bGPU(s?)\b(?! class| memory)")


@contextmanager
def core_classes(read: Read) -> Iterator[None]:
    """Sentences about the classes that `read` returns have cores. It is called once, when one needs it."""
    token = _classes.set(cache(read))
    try:
        yield
    finally:
        _classes.reset(token)


@contextmanager
def about_cores(*, are_cores: bool) -> Iterator[None]:
    """Refusals are about cores, or about GPUs."""
    token = _is_about_cores.set(are_cores)
    try:
        yield
    finally:
        _is_about_cores.reset(token)


def has_cores(gpu_class: str) -> bool:
    """Whether the units of a class are cores; `gpu_class` is its slug, perhaps with a pool."""
    return gpu_class.partition("@")[0] in _classes.get()()


def unit_text(text: str, gpu_class: str = "", *, are_cores: bool = False) -> str:
    """Returns a sentence about a class, or about what is known to be cores, with the noun of its units."""
    if are_cores or _is_about_cores.get() or (gpu_class and has_cores(gpu_class)):
        return _GPU.sub(r"core\1", text)
    return text


def unit_noun(gpu_class: str = "", *, are_cores: bool = False) -> str:
    """Returns `GPU` or `core`."""
    return unit_text("GPU", gpu_class, are_cores=are_cores)


def plural(one: str, many: str, count: object) -> str:
    """Returns the text for so many."""
    return one if count == 1 else many
