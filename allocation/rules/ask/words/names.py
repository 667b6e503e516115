"""Names in a request: classes, slices, tiers and projects of the catalogue."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from allocation.rules.ask.words.parsed import Catalogue, ClassEntry

_GAP = r"[\s_.-]*"
_VENDOR = r"(?:(?:nvidia|tesla|geforce)[\s-]+)*"
_FORM = r"(?:[\s-]*(?:sxm[2-5]?|pcie)(?![a-z0-9]))"
_MEMORY_TAIL = re.compile(r"[\s_-]*\d+[\s_-]*gi?b?$")
_MB_PER_GB = 1_000
_COUNTS = r"[wdhm](?![a-z])|weeks?|wks?|days?|hours?|hrs?|hr|min|times|cores?|cpus?|:|\.\d|x|%|gpus?|cards?"
OTHER_GPUS = (
    r"(?:(?:nvidia|tesla|geforce|quadro|amd|instinct|rtx|gtx)[\s-]+)*"
    r"(?:(?:rtx|gtx)[\s-]*\d{3,4}(?:[\s-]*(?:ti|super|ada))?|[1-5]0[5-9]0(?:[\s-]*ti)?"
    r"|titan(?:[\s-]*(?:xp?|v|rtx))?|gh200|gb[23]00|mi\d{3}x?|[abhv][1-3]00|h20|h800|a[48]00"
    r"|[alt][248]|[al]40s?|a10g?|a16|a30|a40|l20|a[2456][05]00|[pkmt]\d{1,2}0?|v100s?)"
    r"(?:[\s-]*\d{1,3}[\s-]*gi?b)?(?:'?s)?"
)
"""Known GPUs, so that a request for one that the fleet lacks gets a useful refusal."""


@dataclass(frozen=True, slots=True)
class Named:
    """The classes that a name means, and its whole family, from which a memory size selects."""

    slugs: tuple[str, ...]
    family: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Names:
    """Patterns for all names, longest first, and their meanings. A pattern without names matches
    nothing."""

    classes: str
    profiles: str
    tiers: str
    projects: str
    zones: str
    class_by_key: dict[str, Named]
    profile_by_key: dict[str, str]
    tier_by_key: dict[str, str]
    project_by_key: dict[str, str]
    zone_by_key: dict[str, str]
    words: frozenset[str]
    data: frozenset[str]


def _letters_apart(word: str) -> str:
    """A pattern for `h100`, `h-100` and `h 100`; the 100 of `4 h 100 cores` is a number of its own, and
    `a 100` has an article."""
    found = re.fullmatch(r"([a-z]{1,2})(\d{2,4}s?)", word)
    if found is None:
        return re.escape(word)
    space = "" if found[1] == "a" else rf"|\s(?={found[2]}(?!\d|\s*-?(?:{_COUNTS}|gi?b)))"
    return rf"{found[1]}(?:-?{space}){found[2]}"


@lru_cache(maxsize=64)
def names_of(catalogue: Catalogue) -> Names:
    """The names of a catalogue. Cached per catalogue."""
    classes = _classes(catalogue.every_class)
    profiles = {key_of(name): name for entry in catalogue.classes for name in entry.profiles}
    tiers = {key_of(name): each.slug for each in catalogue.tiers for name in (each.slug, each.name)}
    projects = {key_of(name): slug for slug, title in catalogue.projects for name in (slug, title)}
    zones = {key_of(name): slug for slug, title in catalogue.zones for name in (slug, title)}
    after = rf"(?:{_FORM}(?:[\s-]*\d{{1,3}}[\s-]*gi?b)?)?(?:'?s)?"
    return Names(
        _pattern(_spellings(catalogue.every_class), _VENDOR, after),
        _pattern([name for entry in catalogue.classes for name in entry.profiles]),
        _pattern([name for each in catalogue.tiers for name in (each.slug, each.name)]),
        _pattern([name for pair in catalogue.projects for name in pair]),
        _pattern([name for pair in catalogue.zones for name in pair]),
        classes,
        profiles,
        tiers,
        projects,
        zones,
        frozenset(_words_of(catalogue)),
        frozenset(catalogue.data),
    )


def _words_of(catalogue: Catalogue) -> Iterator[str]:
    """Yields the words of all names but those of host cores, in lower case: `cores` are called that in
    every language."""
    names = [name for entry in catalogue.classes for name in (entry.slug, entry.label, *entry.aliases)]
    names += [name for each in catalogue.tiers for name in (each.slug, each.name)]
    names += [name for pair in (*catalogue.projects, *catalogue.zones) for name in pair]
    for name in names:
        yield from re.findall(r"[^\W\d_]{2,}", name.lower())


def key_of(name: str) -> str:
    """The letters and digits of a name, with `gib` and `g` as `gb`. Equal for all spellings."""
    plain = re.sub(r"[^a-z0-9+/]", "", re.sub(_VENDOR, "", name.lower()))
    return re.sub(r"(\d)(?:gib|g|gb)(?![a-z0-9])", r"\1gb", plain)


def class_named(names: Names, text: str) -> tuple[Named | None, bool]:
    """The classes that a name in a text means, and whether the name is a plural. The form of a board
    that the site's names do not have (`h100-sxm`) means nothing."""
    for name in (text, re.sub(_FORM, "", text)):
        key = key_of(name)
        if key in names.class_by_key:
            return names.class_by_key[key], False
        if key.removesuffix("s") in names.class_by_key:
            return names.class_by_key[key.removesuffix("s")], True
    return None, True


def gigabytes_of(entry: ClassEntry) -> int:
    """The memory of a class in GB: the size in its label, or else the driver's."""
    return gigabytes_labelled(entry.label, entry.memory_mb)


def gigabytes_labelled(label: str, memory_mb: int) -> int:
    """The memory in GB from a class's label, or from its driver if the label has no size."""
    found = re.search(r"(\d+)\s*gi?b", label.lower())
    return int(found[1]) if found else round(memory_mb / 1_024)


def has_memory(entry: ClassEntry, gigabytes: int) -> bool:
    """Whether a whole GPU of the class has at least this much memory, by its label or its driver: an
    L40S 48 GB reports 46,068 MiB."""
    return max(entry.memory_mb, gigabytes_of(entry) * _MB_PER_GB) >= gigabytes * _MB_PER_GB


def _family(entry: ClassEntry) -> str:
    """The label without its memory: `a100` of `A100 80 GB`."""
    return _MEMORY_TAIL.sub("", entry.label.lower()).strip()


def _spellings(classes: tuple[ClassEntry, ...]) -> list[str]:
    found: list[str] = []
    for entry in classes:
        family = _family(entry)
        found += [entry.slug, entry.label, family, f"{family} {gigabytes_of(entry)}gb"]
        found += [
            f"{family}-{gigabytes_of(entry)}",
            *entry.aliases,
            *re.findall(r"^rtx (\d{4})$", family),
        ]
    return found


def _classes(classes: tuple[ClassEntry, ...]) -> dict[str, Named]:
    """The meanings by key. A slug or label means one class; an alias or family can mean several."""
    shared: dict[str, tuple[str, ...]] = {}
    exact: dict[str, str] = {}
    families: dict[str, tuple[str, ...]] = {}
    for entry in classes:
        family = _family(entry)
        families[family] = (*families.get(family, ()), entry.slug)
        for name in {family, *entry.aliases, *re.findall(r"^rtx (\d{4})$", family)}:
            shared[key_of(name)] = (*shared.get(key_of(name), ()), entry.slug)
        for name in (
            f"{family}-{gigabytes_of(entry)}",
            f"{family} {gigabytes_of(entry)}gb",
            entry.label,
            entry.slug,
        ):
            exact[key_of(name)] = entry.slug
    kin = {slug: slugs for slugs in families.values() for slug in slugs}
    found = {key: Named(slugs, slugs) for key, slugs in shared.items()}
    found |= {key: Named((slug,), kin[slug]) for key, slug in exact.items()}
    for entry in classes:
        key = key_of(_family(entry))
        found[key] = Named(found[key].slugs, kin[entry.slug])
    return found


def _pattern(names: list[str], before: str = "", after: str = "") -> str:
    """A pattern for all spellings of these names. Without names it matches nothing."""
    spelled = sorted({" ".join(name.lower().split()) for name in names if name}, key=_longest)
    return rf"{before}(?:{'|'.join(map(_spelled, spelled))}){after}" if spelled else r"(?!)"


def _longest(name: str) -> tuple[int, str]:
    return -len(name), name


def _spelled(name: str) -> str:
    """A pattern for a name with spaces, hyphens or nothing between its words; `80 GB` also as
    `80g`."""
    words = [word for word in re.split(r"[\s_.-]+", re.sub(r"(\d)(gi?b)$", r"\1 \2", name)) if word]
    patterns = [r"gi?b?" if re.fullmatch("gi?b", word) else _letters_apart(word) for word in words]
    spelled = patterns[0]
    for number in range(1, len(words)):
        # "a100 40 minutes" must not match the class "a100-40".
        is_memory = words[number].isdecimal() and "gi?b?" not in patterns[number + 1 : number + 2]
        is_apart = is_memory and any(char.isdecimal() for char in words[number - 1])
        # Of `a100 40 2h` the number is one of gigabytes.
        alone = rf"(?:[_-]{words[number]}|\s+{words[number]}(?!\s*-?(?:{_COUNTS})))"
        spelled += alone if is_apart else _GAP + patterns[number]
    return spelled
