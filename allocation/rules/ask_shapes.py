"""What is asked for: count, class, slice, nearness. Each rule answers how many words it used."""

import re

from allocation.errors import AskError
from allocation.rules.ask_document import Together, count_of
from allocation.rules.ask_reader import Reader

_MB_PER_GB = 1_000
_NAME_WORDS = 4
_COUNT = re.compile(r"([0-9]{1,6})[x×]?")
_MEMORY = re.compile(r"(?:>=|≥|=>)([0-9]{1,4})(?:gb|g|gib)?")
_GIGABYTES = re.compile(r"([0-9]{1,4})(?:gb|g|gib)")
_GROUPS: dict[str, Together] = {
    "gpu": "gpu",
    "nvlink": "domain",
    "domain": "domain",
    "node": "node",
    "machine": "node",
    "host": "node",
    "rack": "rack",
}
_WISHES = ("prefer", "preferably", "ideally")
_FILLERS = ("gpu", "gpus", "slice", "slices")


def read_count(reader: Reader, at: int) -> int:
    """A number before something that can be counted."""
    found = _COUNT.fullmatch(reader.word(at))
    if not found:
        return 0
    used = 2 if reader.word(at + 1) in ("x", "×") else 1
    if not (is_shape(reader, at + used) or reader.word(at + used) in _FILLERS):
        return 0
    if _class_at(reader, at)[0] and not _class_at(reader, at + used)[0]:
        # A class may be called 4090; before a slice or a filler that is what the number is.
        return 0
    span = reader.span(at, used)
    try:
        reader.say("count", count_of(int(found[1])), f"{int(found[1])} of them", span)
    except AskError as error:
        reader.trouble(error.code, error.sentence, span)
    return used


def read_class(reader: Reader, at: int) -> int:
    """One class, or several with `or` between."""
    used, slugs = _class_at(reader, at)
    if not used:
        return 0
    while reader.word(at + used) in ("or", "/", "|"):
        more, others = _class_at(reader, at + used + 1)
        if not more:
            break
        used, slugs = used + 1 + more, slugs + others
    wanted = tuple(dict.fromkeys(slugs))
    reader.say("classes", wanted, " or ".join(wanted), reader.span(at, used))
    return used


def read_any(reader: Reader, at: int) -> int:
    """`any`, `any >=40gb`."""
    used = 1 if reader.word(at) == "any" else 0
    used += reader.word(at + used) in _FILLERS and used
    more, gigabytes = _memory_at(reader, at + used)
    if not used + more:
        return 0
    fitting = tuple(
        entry.slug
        for entry in reader.catalogue.classes
        if entry.memory_mb >= gigabytes * _MB_PER_GB
    )
    span = reader.span(at, used + more)
    meaning = f"any GPU with at least {gigabytes} GB" if more else "any GPU"
    reader.say("classes", fitting, meaning, span)
    if not fitting:
        reader.trouble("no_such_memory", f"No GPU class has {gigabytes} GB.", span)
    return used + more


def read_profile(reader: Reader, at: int) -> int:
    """The name of a slice."""
    profile = _profile_at(reader, at)
    if profile is None:
        return 0
    reader.say("profile", profile, f"slice {profile}", reader.span(at, 1))
    return 1


def read_filler(reader: Reader, at: int) -> int:
    """`gpus` after a count or a class, `or`-less words that add nothing."""
    return int(reader.word(at) in _FILLERS and bool({"count", "classes"} & set(reader.said)))


def read_together(reader: Reader, at: int) -> int:
    """`same node` is a condition, `preferably same node` a wish; `nvlink` alone is a condition."""
    used = int(reader.word(at) in _WISHES)
    wish = bool(used)
    if reader.word(at + used) == "same":
        used += 1
    elif not (wish or reader.word(at) == "nvlink"):
        return 0
    group = _GROUPS.get(reader.word(at + used))
    if group is None:
        return 0
    used += 1
    if group == "domain" and reader.word(at + used) == "domain":
        used += 1
    must = "must share" if not wish else "better share"
    name = "NVLink domain" if group == "domain" else group
    span = reader.span(at, used)
    reader.say("together", group, f"{must} one {name}", span)
    reader.said.setdefault("required", not wish)
    return used


def read_workload(reader: Reader, at: int) -> int:
    """`kind:training`: it is work of that kind, as long as its class needs."""
    lead, _, kind = reader.word(at).partition(":")
    if lead != "kind" or not kind:
        return 0
    span = reader.span(at, 1)
    reader.say("workload", kind, f"{kind} work: other GPUs take as long as they need", span)
    known = reader.catalogue.workloads
    if kind not in known:
        names = ", ".join(known) or "none yet"
        reader.trouble("unknown_workload", f"No such kind of work. There is: {names}.", span)
    return 1


def profile_classes(reader: Reader, profile: str) -> tuple[str, ...]:
    """The classes whose GPUs can make the slice."""
    return tuple(e.slug for e in reader.catalogue.classes if profile in e.profiles)


def is_shape(reader: Reader, at: int) -> bool:
    """True when something that can be counted begins there."""
    return bool(
        reader.word(at) == "any"
        or _class_at(reader, at)[0]
        or _profile_at(reader, at)
        or _memory_at(reader, at)[0]
    )


def _class_at(reader: Reader, at: int) -> tuple[int, tuple[str, ...]]:
    for used in range(min(_NAME_WORDS, len(reader.tokens) - at), 0, -1):
        slugs = reader.names.get(" ".join(reader.words(at)[:used]))
        if slugs:
            return used, slugs
    return 0, ()


def _profile_at(reader: Reader, at: int) -> str | None:
    word = reader.word(at)
    known = (name for entry in reader.catalogue.classes for name in entry.profiles)
    return next((name for name in known if name.lower() == word), None)


def _memory_at(reader: Reader, at: int) -> tuple[int, int]:
    """(words used, GB)."""
    found = _MEMORY.fullmatch(reader.word(at))
    if found:
        return 1, int(found[1])
    if reader.word(at) in (">=", "≥", "=>"):
        found = _GIGABYTES.fullmatch(reader.word(at + 1))
    return (2, int(found[1])) if found else (0, 0)
