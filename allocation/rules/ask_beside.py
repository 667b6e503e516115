"""Shares of a GPU, and what comes with a device: `0.25 h100 2h`, `16 cores`, `64gb ram`."""

import re

from allocation.errors import AskError
from allocation.rules.ask_document import WHOLE_SHARE, beside_of, share_of
from allocation.rules.ask_reader import Reader
from allocation.rules.ask_shapes import is_shape

_PART = re.compile(r"0?\.([0-9]{1,3})")
_PERCENT = re.compile(r"([0-9]{1,2})%")
_AMOUNT = re.compile(r"([0-9]{1,6})(gb|gib|g)?")
_CORES = ("core", "cores", "cpu", "cpus")
_GIGABYTES = ("gb", "gib", "g")
_MEMORY = ("ram", "memory")
_OF = "of"


def read_share(reader: Reader, at: int) -> int:
    """`0.25`, `.25` or `25%` before a class; `25% of h100`."""
    word = reader.word(at)
    part, percent = _PART.fullmatch(word), _PERCENT.fullmatch(word)
    if part:
        share = int(part[1].ljust(3, "0"))
    elif percent:
        share = int(percent[1]) * WHOLE_SHARE // 100
    else:
        return 0
    used = 2 if reader.word(at + 1) == _OF else 1
    if not is_shape(reader, at + used):
        return 0
    span = reader.span(at, used)
    try:
        meaning = f"{share / WHOLE_SHARE:g} of one GPU, not isolated"
        reader.say("share", share_of(share), meaning, span)
    except AskError as error:
        reader.trouble(error.code, error.sentence, span)
    return used


def read_beside(reader: Reader, at: int) -> int:
    """`16 cores`, `64gb ram`, `64 gb memory`: for each GPU, slice or share."""
    found = _AMOUNT.fullmatch(reader.word(at))
    if not found:
        return 0
    is_split = not found[2] and reader.word(at + 1) in _GIGABYTES
    used = 2 if is_split else 1
    word = reader.word(at + used)
    if word in _CORES and not (found[2] or is_split):
        name, meaning = "cores", f"{found[1]} host cores with each"
    elif word in _MEMORY:
        name, meaning = "memory", f"{found[1]} GiB of host memory with each"
    else:
        return 0
    span = reader.span(at, used + 1)
    try:
        reader.say(name, beside_of(int(found[1]), name), meaning, span)
    except AskError as error:
        reader.trouble(error.code, error.sentence, span)
    return used + 1
