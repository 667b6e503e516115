"""The parts of a request except its times: count, class, slice or share, host resources, place and
tier. The grammar has one rule for each part."""

import re
from collections.abc import Callable, Sequence

from lark import Token

from allocation.errors import AskError
from allocation.rules.ask.line.arrays import read_array, read_parallel
from allocation.rules.ask.line.hosts import EACH, GPU_WORD, host_read
from allocation.rules.ask.line.money import read_burst, read_cheapest
from allocation.rules.ask.line.text import gigabytes_text, pin_words
from allocation.rules.ask.line.tokens import data_names, names_key, place_names, plain, zone_keys
from allocation.rules.ask.words.document import (
    MAX_COUNT,
    MOST_SAID,
    WHOLE_SHARE,
    Together,
    count_of,
    data_of,
    host_resource_of,
    pin_of,
    scratch_of,
    share_of,
)
from allocation.rules.ask.words.names import class_named, gigabytes_of, has_memory, key_of
from allocation.rules.ask.words.numbers import number_of
from allocation.rules.ask.words.parsed import ClassEntry, Repair
from allocation.rules.ask.words.reading import Reading, span_of
from tenants.platform.coded import coded

Rule = Callable[[Reading, Sequence[Token]], None]
_GROUPS: dict[str, Together] = {
    "gpu": "gpu",
    "nvlink": "domain",
    "nvlinked": "domain",
    "domain": "domain",
    "node": "node",
    "machine": "node",
    "host": "node",
    "server": "node",
    "box": "node",
    "rack": "rack",
}
_FRACTIONS = {
    "half": 500,
    "three quarters": 750,
    "quarter": 250,
    "third": 333,
    "eighth": 125,
    "½": 500,
    "¼": 250,
    "¾": 750,
    "⅓": 333,
    "⅔": 667,
    "⅛": 125,
}
_AT_LEAST = re.compile(r">=|≥|=>|at\s+least|min|\+|or\s+more")
MAX_SHOWN = 4


def read_count(reading: Reading, tokens: Sequence[Token]) -> None:
    """Reads `2`, `two`, `2x`, `x2`, `a pair of`, and the 2 of `h100*2` and `h100:2`."""
    words = re.sub(r"^[x*:]\s*|\s*[x*]$", "", tokens[0])
    number = number_of(words)
    span = span_of(*tokens)
    try:
        reading.set_value("count", count_of(number), f"{number} of them", span)
    except AskError as error:
        if MAX_COUNT < number <= MOST_SAID:
            reading.set_value("count", number, f"{number} of them", span)
        nearest = str(error.alternatives[0]["count"])
        reading.add_problem(error.code, error.text, span, reading.replacements(span, nearest))


def read_classes(reading: Reading, tokens: Sequence[Token]) -> None:
    """Reads one class, or several separated by `or`."""
    slugs: list[str] = []
    family: list[str] = []
    span = span_of(*tokens)
    for token in tokens:
        if token.type == "CLASS":
            named, is_plural = class_named(reading.names, token)
            slugs += named.slugs if named else ()
            family += named.family if named else ()
            if is_plural:
                reading.values["plural"], reading.spans["plural"] = True, span
    wanted = tuple(dict.fromkeys(slugs))
    if "classes" not in reading.values:
        reading.values["family"] = tuple(dict.fromkeys(family))
    reading.set_value("classes", wanted, " or ".join(wanted), span)


def read_any(reading: Reading, tokens: Sequence[Token]) -> None:
    """Reads `any`: every class, unless a class is named."""
    reading.set_value("any", "any", "any GPU", span_of(*tokens))


def read_profile(reading: Reading, tokens: Sequence[Token]) -> None:
    """Reads the name of a MIG profile."""
    profile = reading.names.profile_by_key[key_of(tokens[0])]
    reading.set_value("profile", profile, f"slice {profile}", span_of(*tokens))


def read_slice(reading: Reading, tokens: Sequence[Token]) -> None:
    """Reads `mig slice`, `slice`. A name or a memory size selects the profile."""
    span = span_of(*tokens)
    if "slice" in reading.values:
        reading.add_part("slice", "a slice", span)
        return
    reading.set_value("slice", "slice", "a slice", span)


def read_memory(reading: Reading, tokens: Sequence[Token]) -> None:
    """Reads `80gb`, `>=40gb`, `40 GB VRAM`: the memory of the GPU, or of the slice if there is
    one."""
    found = re.search(r"\d+", tokens[0])
    gigabytes = int(found[0]) if found else 0
    is_least = _AT_LEAST.search(tokens[0]) is not None
    is_compute = re.fullmatch(r"\dg", tokens[0]) is not None
    words = f"at least {gigabytes} GB" if is_least else f"{gigabytes} GB"
    _note_each(reading, tokens)
    reading.set_value("gigabytes", (gigabytes, is_least, is_compute), words, span_of(*tokens))


def read_share(reading: Reading, tokens: Sequence[Token]) -> None:
    """Reads `0.25`, `25%`, `half a`, `1/4 of an`."""
    span = span_of(*tokens)
    try:
        share = share_of(_share(tokens[0]))
        meaning = f"{(share or 0) / WHOLE_SHARE:g} of one GPU, not isolated"
        reading.set_value("share", share, meaning, span)
    except AskError as error:
        reading.add_problem(error.code, error.text, span)


def read_cores(reading: Reading, tokens: Sequence[Token]) -> None:
    """Reads `16 cores`, for each GPU, slice or share."""
    number = number_of(re.split(r"\s*-?(?:host|cpu|core|vcpu)", tokens[0])[0])
    _say_host(reading, tokens, "cores", number, f"{number} host cores with each")


def read_ram(reading: Reading, tokens: Sequence[Token]) -> None:
    """Reads `64gb ram`, for each GPU, slice or share."""
    found = re.search(r"\d+", tokens[0])
    gigabytes = int(found[0]) if found else 0
    if not re.search(r"ram|host|system|main", tokens[0]) and any(
        gigabytes_of(entry) == gigabytes for entry in reading.catalogue.classes
    ):
        span = span_of(*tokens)
        choices = [
            Repair(f"{gigabytes} GB host memory", reading.replaced(span, f"{gigabytes}gb ram")),
            Repair(f"{gigabytes} GB GPU memory", reading.replaced(span, f"{gigabytes}gb")),
        ]
        why = coded("ask_which_memory", gigabytes=gigabytes)
        reading.add_problem("which_memory", why, span, choices)
        return
    _note_each(reading, tokens)
    _say_host(reading, tokens, "memory", gigabytes, f"{gigabytes} GiB of host memory with each")


def _note_each(reading: Reading, tokens: Sequence[Token]) -> None:
    if any(token.type == "EACH" for token in tokens):
        reading.values[EACH] = True


def _say_host(reading: Reading, tokens: Sequence[Token], name: str, amount: int, meaning: str) -> None:
    span = span_of(*tokens)
    try:
        reading.set_value(name, host_resource_of(amount, name), meaning, span)
    except AskError as error:
        reading.add_problem(error.code, error.text, span)


def read_together(reading: Reading, tokens: Sequence[Token]) -> None:
    """Reads `same node` and `nvlink`, which are requirements, and `preferably same node`."""
    words = tokens[0].split()
    is_preference = words[0] in ("prefer", "preferably", "ideally")
    group = _GROUPS["nvlink" if "nvlink" in tokens[0] else words[-1]]
    name = "NVLink domain" if group == "domain" else group
    meaning = f"{'preferably' if is_preference else 'must'} share one {name}"
    if "together" not in reading.values:
        reading.values["required"] = not is_preference
    reading.set_value("together", group, meaning, span_of(*tokens))


def read_workload(reading: Reading, tokens: Sequence[Token]) -> None:
    """Reads `kind:training`: the kind of work, whose duration depends on the class."""
    kind = tokens[0].partition(":")[2]
    span = span_of(*tokens)
    reading.set_value("workload", kind, f"{kind} work: the duration depends on the GPU", span)
    known = reading.catalogue.workloads
    if kind not in known:
        names = ", ".join(known) or "none yet"
        why = coded("ask_workload", kind=kind, names=names)
        choices = reading.replacements(span, *(f"kind:{name}" for name in known[:MAX_SHOWN]))
        reading.add_problem("unknown_workload", why, span, choices)


def read_tier(reading: Reading, tokens: Sequence[Token]) -> None:
    """Reads `spot`, `in the standard tier`."""
    slug = reading.names.tier_by_key[names_key(tokens[0], "tier")]
    reading.set_value("tier", slug, f"in the tier {slug}", span_of(*tokens))


def read_project(reading: Reading, tokens: Sequence[Token]) -> None:
    """Reads `for project folding`."""
    slug = reading.names.project_by_key[names_key(tokens[0], "project")]
    reading.set_value("project", slug, f"for the project {slug}", span_of(*tokens))


def read_place(reading: Reading, tokens: Sequence[Token]) -> None:
    """Reads names of nodes and GPUs. Whether they exist is checked later."""
    span = span_of(*tokens)
    try:
        pin = pin_of(place_names(tokens[0]))
        if len(pin) == 1 and not re.search(r"\d|-", pin[0]) and reading.spelling_guesses(pin[0]):
            reading.add_misspelling(span, pin[0])
            return
        reading.set_value("pin", pin, f"only on {pin_words(pin)}", span)
    except AskError as error:
        reading.add_problem(error.code, error.text, span)


def read_zone(reading: Reading, tokens: Sequence[Token]) -> None:
    """Reads `in basel or zurich`."""
    zones = _zones(reading, tokens)
    reading.set_value("zones", zones, f"only in {' or '.join(zones)}", span_of(*tokens))


def read_not_zone(reading: Reading, tokens: Sequence[Token]) -> None:
    """Reads `not in basel`."""
    zones = _zones(reading, tokens)
    reading.set_value("not_zones", zones, f"not in {' or '.join(zones)}", span_of(*tokens))


def _zones(reading: Reading, tokens: Sequence[Token]) -> tuple[str, ...]:
    return tuple(sorted({reading.names.zone_by_key[key] for key in zone_keys(tokens[0])}))


def read_storage(reading: Reading, tokens: Sequence[Token]) -> None:
    """Reads `local nvme`, `shared storage`."""
    storage = "shared" if "shared" in tokens[0] else "local"
    words = "on nodes with shared storage" if storage == "shared" else "on nodes with local NVMe"
    reading.set_value("storage", storage, words, span_of(*tokens))


def read_scratch(reading: Reading, tokens: Sequence[Token]) -> None:
    """Reads `2 TB nvme`, `500 gb scratch`: local space that each node must have."""
    span, found = span_of(*tokens), re.search(r"([\d.]+)\s*([gt])", tokens[0])
    amount = round(float(found[1]) * (1_000 if found[2] == "t" else 1)) if found else 0
    try:
        scratch = scratch_of(amount)
        words = f"on nodes with at least {gigabytes_text(scratch)} of local NVMe"
        reading.set_value("scratch", scratch, words, span)
    except AskError as error:
        reading.add_problem(error.code, error.text, span)


def read_data(reading: Reading, tokens: Sequence[Token]) -> None:
    """Reads names of data sets, as they were typed. Whether a node has them is found out later."""
    span = span_of(*tokens)
    try:
        data = data_of(data_names(plain(reading.words(span))))
        reading.set_value("data", data, f"near the data {' and '.join(data)}", span)
    except AskError as error:
        reading.add_problem(error.code, error.text, span)


def read_noise(reading: Reading, tokens: Sequence[Token]) -> None:
    """Reads courtesies and articles, which add no meaning."""
    reading.noise.append(span_of(*tokens))


def read_filler(reading: Reading, tokens: Sequence[Token]) -> None:
    """Reads `gpus`, which adds no meaning to a class."""
    reading.values[GPU_WORD] = True
    read_noise(reading, tokens)


def _share(text: str) -> int:
    """The share in thousandths."""
    text = re.sub(r"\s*(?:of)?\s*(?:\b(?:an?|the))?$", "", text).strip()
    text = re.sub(r"^(?:an?|one)\s+", "", text)
    if text in _FRACTIONS:
        return _FRACTIONS[" ".join(text.split())]
    if "/" in text:
        above, _, below = text.partition("/")
        return round(int(above) * WHOLE_SHARE / int(below))
    if text.endswith("%"):
        return int(text.removesuffix("%")) * WHOLE_SHARE // 100
    return int(text.partition(".")[2].ljust(3, "0"))


def classes_of(reading: Reading) -> tuple[str, ...]:
    """The classes of the request, once every part is read: those named, or all that fit."""
    if host_read(reading):
        named = reading.values["classes"]
        return named if isinstance(named, tuple) else ()
    _slice_of_memory(reading)
    named = _of_memory(reading)
    _how_many(reading)
    profile = reading.values.get("profile")
    if not isinstance(profile, str):
        return named or ()
    able = tuple(e.slug for e in reading.catalogue.classes if profile in e.profiles)
    if named is None:
        return able
    fitting = tuple(slug for slug in named if slug in able)
    if not fitting:
        why = coded("ask_profile", classes=" or ".join(named), profile=profile)
        profiles = list(dict.fromkeys(p for e in _entries(reading, named) for p in e.profiles))
        span = reading.spans["profile"]
        choices = reading.replacements(span, *profiles[:MAX_SHOWN])
        class_span = reading.spans.get("classes")
        if class_span:
            choices += [Repair(f"{profile} {slug}", reading.replaced(class_span, slug)) for slug in able]
        reading.add_problem("impossible_profile", why, span, choices)
    return fitting


def _entries(reading: Reading, slugs: Sequence[str]) -> list[ClassEntry]:
    return [entry for entry in reading.catalogue.classes if entry.slug in slugs]


def _named(reading: Reading) -> tuple[str, ...] | None:
    values = reading.values.get("classes")
    if isinstance(values, tuple):
        return values
    is_any = "any" in reading.values or "cheapest" in reading.values
    return tuple(entry.slug for entry in reading.catalogue.classes) if is_any else None


def _how_many(reading: Reading) -> None:
    """Adds problems for `h100s` without a number, and for a share of several GPUs."""
    count, share = reading.values.get("count"), reading.values.get("share")
    if share is not None and (count not in (None, 1) or "profile" in reading.values):
        why = coded("ask_share_of_one")
        dropped = reading.spans.get("count") or reading.spans["profile"]
        choices = [Repair(reading.words(reading.spans["share"]), reading.replaced(dropped, ""))]
        reading.add_problem("share_of_one", why, reading.spans["share"], choices)
    if "plural" in reading.values and count is None and share is None:
        span = reading.spans["plural"]
        words = reading.words(span)
        choices = reading.replacements(span, *(f"{number} {words}" for number in (1, 2, 4)))
        reading.add_problem("how_many", coded("ask_how_many", words=words), span, choices)


def _slice_of_memory(reading: Reading) -> None:
    """Resolves `mig slice 20gb` to the smallest slice with that memory."""
    if "slice" not in reading.values or "profile" in reading.values:
        _bare_compute(reading)
        return
    named = _named(reading)
    entries = _entries(reading, named) if named else list(reading.catalogue.classes)
    profiles = list(dict.fromkeys(p for e in entries for p in e.profiles))
    if "gigabytes" not in reading.values:
        span = reading.spans["slice"]
        choices = reading.replacements(span, *profiles[: MAX_SHOWN + 2])
        reading.add_problem("which_slice", coded("ask_which_slice", names=_names(profiles)), span, choices)
        return
    gigabytes, is_least, is_compute = _memory_said(reading)
    span = reading.spans["gigabytes"]
    if is_compute:
        fitting = [name for name in profiles if name.startswith(f"{gigabytes}g.")]
    else:
        fitting = [name for name in profiles if _fits(profile_gigabytes(name), gigabytes, is_least)]
    fitting.sort(key=lambda name: (profile_gigabytes(name), name))
    if not fitting or is_compute:
        del reading.values["gigabytes"]
        why = coded("ask_which_slice", names=_names(fitting or profiles))
        choices = reading.replacements(span, *(fitting or profiles)[: MAX_SHOWN + 2])
        reading.add_problem("which_slice", why, span, choices)
        return
    del reading.values["gigabytes"]
    reading.values["profile"], reading.spans["profile"] = fitting[0], span
    reading.add_part("profile", f"slice {fitting[0]}", span)


def _bare_compute(reading: Reading) -> None:
    """Handles `1g` alone, which begins a slice's name and is not a memory size."""
    if "gigabytes" not in reading.values:
        return
    number, _, is_compute = _memory_said(reading)
    if not is_compute:
        return
    span = reading.spans["gigabytes"]
    names = [p for e in reading.catalogue.classes for p in e.profiles if p.startswith(f"{number}g")]
    choices = reading.replacements(span, *dict.fromkeys(names))
    reading.add_problem("which_slice", coded("ask_compute_slice", number=number), span, choices)
    del reading.values["gigabytes"]


def profile_gigabytes(profile: str) -> int:
    """The memory in the name of a slice, in GB."""
    found = re.search(r"\.(\d+)gb", profile)
    return int(found[1]) if found else 0


def _fits(has: int, wanted: int, is_least: bool) -> bool:  # noqa: FBT001
    return has >= wanted if is_least else has == wanted


def _memory_said(reading: Reading) -> tuple[int, bool, bool]:
    values = reading.values["gigabytes"]
    return values if isinstance(values, tuple) else (0, False, False)


def _of_memory(reading: Reading) -> tuple[str, ...] | None:
    """The named classes that have the requested memory."""
    if "gigabytes" not in reading.values:
        return _named(reading)
    gigabytes, is_least, _ = _memory_said(reading)
    family = reading.values.get("family")
    entries = _entries(reading, family) if isinstance(family, tuple) else list(reading.catalogue.classes)
    fitting = tuple(
        entry.slug
        for entry in entries
        if (has_memory(entry, gigabytes) if is_least else gigabytes_of(entry) == gigabytes)
    )
    if not fitting:
        _no_such_memory(reading, entries, gigabytes)
    return fitting


def _no_such_memory(reading: Reading, entries: list[ClassEntry], gigabytes: int) -> None:
    span = reading.spans["gigabytes"]
    before = reading.spans.get("any", span)
    if abs(before[1] - span[0]) <= 1:
        span = (before[0], span[1])
    sizes = sorted({gigabytes_of(entry) for entry in entries})
    why = coded("ask_memory", gigabytes=gigabytes, sizes=", ".join(map(str, sizes)))
    choices = reading.replacements(reading.spans["gigabytes"], *(f"{size}gb" for size in sizes))
    larger = [size for size in sizes if size > gigabytes]
    if larger:
        choices = [
            *reading.replacements(reading.spans["gigabytes"], f">={gigabytes}gb"),
            *choices[:MAX_SHOWN],
        ]
    makers = [p for e in entries for p in e.profiles if profile_gigabytes(p) == gigabytes]
    choices += reading.replacements(reading.spans["gigabytes"], *dict.fromkeys(makers))
    reading.add_problem("no_such_memory", why, span, choices)


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) or "this fleet has none"


SHAPE_RULES: dict[str, Rule] = {
    "count": read_count,
    "classes": read_classes,
    "anything": read_any,
    "profile": read_profile,
    "slice": read_slice,
    "memory": read_memory,
    "share": read_share,
    "filler": read_filler,
    "cores": read_cores,
    "ram": read_ram,
    "together": read_together,
    "workload": read_workload,
    "tier": read_tier,
    "project": read_project,
    "cheapest": read_cheapest,
    "burst": read_burst,
    "place": read_place,
    "zone": read_zone,
    "not_zone": read_not_zone,
    "storage": read_storage,
    "scratch": read_scratch,
    "data": read_data,
    "array": read_array,
    "parallel": read_parallel,
    "noise": read_noise,
}
