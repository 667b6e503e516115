"""Where exactly: `on n0003`, `on n0003/2 or n0004`, `pin gpu n0003/2`. Each GPU has its node's name
and its number there."""

import re

from allocation.errors import AskError
from allocation.rules.ask_document import pin_of
from allocation.rules.ask_reader import Reader
from allocation.rules.ask_shapes import is_shape
from allocation.rules.ask_times import moment_in

_LEADS = ("on", "pin")
_KINDS = ("gpu", "node", "to")
_OR = ("or", "and", "|")
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_INDEX = re.compile(r"[0-9]{1,3}")


def read_pin(reader: Reader, at: int) -> int:
    """Names of nodes and GPUs; whether they exist is not known here."""
    if reader.word(at) not in _LEADS:
        return 0
    used = 1
    while reader.word(at + used) in _KINDS:
        used += 1
    more, name = _name_at(reader, at + used)
    if not more or (used == 1 and name[0].isdigit()):
        # `on 2026-02-30` is a day that there is not, and no machine.
        return 0
    names, used = [name], used + more
    while reader.word(at + used) in _OR:
        more, name = _name_at(reader, at + used + 1)
        if not more:
            break
        names.append(name)
        used += 1 + more
    span = reader.span(at, used)
    try:
        pin = pin_of(names)
        reader.say("pin", pin, f"only on {pin_words(pin)}", span)
    except AskError as error:
        reader.trouble(error.code, error.sentence, span)
    return used


def pin_words(pin: tuple[str, ...]) -> str:
    """`n0003`, `GPU 2 of n0003 or n0004`."""
    split = (name.rpartition("/") for name in pin)
    return " or ".join(f"GPU {last} of {node}" if node else last for node, _, last in split)


def _name_at(reader: Reader, at: int) -> tuple[int, str]:
    """(words used, name); a class, a slice or a time is no name."""
    word = reader.word(at)
    is_time = moment_in((word,), reader.now.date(), bare_hour=True) is not None
    if not _NAME.fullmatch(word) or is_shape(reader, at) or is_time:
        return 0, ""
    if reader.word(at + 1) == "/" and _INDEX.fullmatch(reader.word(at + 2)):
        return 3, f"{word}/{int(reader.word(at + 2))}"
    return 1, word
