"""What log lines are about: the request, the person, the booking, the decision at hand."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_here: ContextVar[dict[str, str] | None] = ContextVar("log_ids", default=None)


@contextmanager
def log_ids(**ids: object) -> Iterator[None]:
    """Every line that is logged inside carries these ids, and those that `log_id` adds."""
    token = _here.set(log_ids_now() | {name: str(value) for name, value in ids.items()})
    try:
        yield
    finally:
        _here.reset(token)


def log_id(**ids: object) -> None:
    """Adds ids to the lines that follow inside the innermost `log_ids`; nothing outside of one."""
    here = _here.get()
    if here is not None:
        here.update({name: str(value) for name, value in ids.items()})


def log_ids_now() -> dict[str, str]:
    """The ids of a line that is logged now."""
    return dict(_here.get() or {})


def text_of(ids: Mapping[str, str]) -> str:
    """The ids as they stand at the end of a line; empty without any."""
    return "".join(f" {name}={value}" for name, value in ids.items())
