"""Ids on log lines: of the request, the person, the booking, the decision."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_here: ContextVar[dict[str, str] | None] = ContextVar("log_ids", default=None)


@contextmanager
def log_ids(**ids: object) -> Iterator[None]:
    """Adds these ids to every line that is logged inside, with those that `log_id` adds."""
    token = _here.set(log_ids_now() | {name: str(value) for name, value in ids.items()})
    try:
        yield
    finally:
        _here.reset(token)


def log_id(**ids: object) -> None:
    """Adds ids to later lines inside the innermost `log_ids`; does nothing outside of one."""
    here = _here.get()
    if here is not None:
        here.update({name: str(value) for name, value in ids.items()})


def log_ids_now() -> dict[str, str]:
    """The current ids."""
    return dict(_here.get() or {})


def text_of(ids: Mapping[str, str]) -> str:
    """The ids as text for the end of a line; empty without any."""
    return "".join(f" {name}={value}" for name, value in ids.items())
