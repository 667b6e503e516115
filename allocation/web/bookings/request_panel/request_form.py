"""The form fields of the booking panel: reads them and highlights what the text says."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from zoneinfo import ZoneInfo

from allocation.errors import AskError
from allocation.rules.ask import (
    AskDocument,
    AskGroup,
    Parsed,
    count_of,
    data_of,
    duration_of,
    host_resource_of,
    pin_of,
    share_of,
)
from allocation.rules.ask.line.text import group_text, where_text
from allocation.rules.ask.words.numbers import length_of
from allocation.rules.ask.words.parsed import NOT_UNDERSTOOD, Problem, Repair
from allocation.rules.ask.words.times import duration_words
from allocation.rules.recurrence import dates_of
from allocation.rules.workload_names import workload_slug
from allocation.web.bookings.summary import what_words
from allocation.web.parts.times import clock, day_words
from allocation.words.refusals import coded_text
from tenants.platform.coded import coded
from tenants.platform.labels import MAX_REFERENCE, MAX_TEXT
from tenants.platform.text import whole_number

SHARE = "share-"
"""The prefix of a size that is a share, such as `share-250` (in thousandths)."""
_WHERE = ("zones", "not_zones", "storage", "scratch")
SHARES = (("share-500", "Half, shared"), ("share-250", "Quarter, shared"))


@dataclass(frozen=True, slots=True)
class RequestFields:
    """The values of a submitted form.

    `is_edited`: the fields override the text. `is_chosen`: the selected project and tier override
    the text.
    """

    text: str
    project: str
    tier: str
    name: str
    is_edited: bool
    is_chosen: bool
    count: str
    classes: str
    profile: str
    length: str
    cores: str = ""
    memory: str = ""
    workload: str = ""
    work: str = ""
    often: str = ""
    until: str = ""
    days: str = ""
    pin: str = ""
    where: str = ""
    data: str = ""
    campaign: str = ""
    labels: str = ""
    external_ref: str = ""
    array: str = ""
    parallel: str = ""
    groups: str = ""


@dataclass(frozen=True, slots=True)
class ProblemShown:
    """What is wrong with a line, and corrected lines."""

    sentence: str
    repairs: tuple[Repair, ...]


@dataclass(frozen=True, slots=True)
class Highlight:
    """A part of the text: understood (with its meaning), unknown, wrong or plain."""

    text: str
    kind: str
    meaning: str = ""


def fields_of(data: Mapping[str, str], longest: int) -> RequestFields:
    """Returns the form's fields, each truncated to its maximum length."""

    def get(name: str, most: int = 80) -> str:
        return data.get(name, "").strip()[:most]

    return RequestFields(
        text=get("q", longest),
        project=get("project"),
        tier=get("tier"),
        name=get("name"),
        is_edited=get("by") == "fields",
        is_chosen=get("by") == "choice",
        count=get("count"),
        classes=get("classes", 200),
        profile=get("profile"),
        length=get("length"),
        cores=get("cores"),
        memory=get("memory"),
        workload=get("workload"),
        work=workload_slug(get("work")),
        often=get("often"),
        until=get("until"),
        days=get("days"),
        pin=get("pin", 200),
        where=get("where", 120),
        data=get("data", 300),
        campaign=get("campaign"),
        labels=get("labels", MAX_TEXT),
        external_ref=get("external_ref", MAX_REFERENCE),
        array=get("array"),
        parallel=get("parallel"),
        groups=get("groups", 120),
    )


def ask_of_fields(
    fields: RequestFields, parsed: Parsed, more: Parsed | None = None, there: Parsed | None = None
) -> AskDocument:
    """Returns the request that the fields describe; `more` is the line with its further groups, `there`
    that with its zones and storage.

    Window and topology come from the text. Raises AskError for an invalid field.
    """
    if not fields.classes:
        raise AskError("no_class", coded("class_choice"), "classes")
    share = fields.profile.removeprefix(SHARE) if fields.profile.startswith(SHARE) else None
    ask = AskDocument(
        count=count_of(_number(fields.count)),
        classes=tuple(dict.fromkeys(fields.classes.split())),
        profile=fields.profile or None if share is None else None,
        share=None if share is None else share_of(_number(share)),
        cores=host_resource_of(_number(fields.cores or "0"), "cores"),
        memory=host_resource_of(_number(fields.memory or "0"), "memory"),
        together=parsed.together or "any",
        required=parsed.required,
        duration=_length(fields.length),
        starts=parsed.starts,
        not_before=parsed.not_before if parsed.starts is None else None,
        deadline=parsed.deadline if parsed.starts is None else None,
        workload=fields.workload or None,
        pin=pin_of([name for name in fields.pin.replace(",", " ").split() if name != "or"]),
        data=data_of(fields.data.lower().replace(",", " ").split()),
        most_cost=parsed.most_cost,
    )
    if there is not None:
        ask = _with_where(ask, there)
    if more is not None:
        ask = _with_groups(ask, more)
    if ask.count == 1 and ask.together != "any":
        ask = replace(ask, together="any", required=False)
    ask.check()
    return ask


def host_fields(ask: AskDocument, parsed: Parsed, hosts: Collection[str]) -> AskDocument:
    """Returns the request of the fields, for cores of hosts if its class is one of these `hosts`: the
    fields of GPUs mean nothing then. A text about cores says nothing of GPUs that were chosen after it."""
    if not set(ask.classes) <= set(hosts):
        return replace(ask, together="any", required=False, memory=0) if parsed.host else ask
    plain = replace(ask, host=True, profile=None, share=None, cores=0, workload=None, groups=())
    return replace(plain, together="node", required=True) if ask.count > 1 else plain


def groups_line(fields: RequestFields) -> str:
    """A line whose further groups are those of the field."""
    return f"1 {fields.classes.split()[0] if fields.classes else ''} + {fields.groups} 1h"


def where_line(fields: RequestFields) -> str:
    """A line whose zones and storage are those of the field."""
    return f"1 {fields.classes.split()[0] if fields.classes else ''} 1h {fields.where}"


def where_shown(said: AskDocument | Parsed) -> str:
    """`in basel 1 tb scratch`, as the field shows zones and storage."""
    return " ".join(where_text({name: getattr(said, name) for name in _WHERE}))


def _with_where(ask: AskDocument, said: Parsed) -> AskDocument:
    """The request with the zones and storage of a line. Raises AskError."""
    if said.problems:
        raise AskError("not_a_place", said.problems[0].text, "where")
    found = replace(ask, **{name: getattr(said, name) for name in _WHERE})
    if len(said.parts) > 3 + sum(map(bool, found.where_fields.values())):
        raise AskError("not_a_place", coded("where_form"), "where")
    return found


def _with_groups(ask: AskDocument, said: Parsed) -> AskDocument:
    """The request with the further groups of a line. Raises AskError."""
    if not said.groups:
        raise AskError("not_a_group", coded("group_form"), "groups")
    if said.problems:
        raise AskError("not_a_group", said.problems[0].text, "groups")
    if len(ask.classes) > 1:
        raise AskError("not_a_group", coded("class_of_group"), "classes")
    return AskDocument.from_json(replace(ask, groups=said.groups).to_json())


def groups_text(groups: Sequence[AskGroup]) -> str:
    """`4 l40s + 2 a100 16 cores`, as the field shows further groups."""
    return " + ".join(map(group_text, groups))


def text_as_chosen(fields: RequestFields, parsed: Parsed) -> str:
    """Returns the text without a project or tier that differs from the selected ones."""
    text, chosen = fields.text, {"project": fields.project, "tier": fields.tier}
    said = {"project": parsed.project, "tier": parsed.tier}
    for part in reversed(parsed.parts):
        if part.field in chosen and said[part.field] != chosen[part.field]:
            text = f"{text[: part.start]} {text[part.end :]}"
    return " ".join(text.split())


def _number(text: str) -> int:
    """Returns the number, or -1, which every bound refuses."""
    number = whole_number(text)
    return -1 if number is None else number


def _length(text: str) -> int:
    seconds = length_of(text)
    if seconds is None:
        raise AskError("not_a_duration", coded("duration_example"), "length")
    return duration_of(seconds, "length")


def problem_shown(problem: Problem) -> ProblemShown:
    """Returns a problem in the language of its reader."""
    return ProblemShown(coded_text(problem.text), problem.repairs)


def highlights_of(text: str, parsed: Parsed) -> list[Highlight]:
    """Splits the text into parts, so that a page can underline what it understood."""
    marks = [(part.start, part.end, "known", part.meaning) for part in parsed.parts]
    for each in parsed.problems:
        is_unknown = each.code == NOT_UNDERSTOOD
        marks.append((each.start, each.end, "unknown" if is_unknown else "wrong", coded_text(each.text)))
    bits, at = [], 0
    for start, end, kind, meaning in sorted(marks):
        if start < at:
            continue
        if text[at:start].strip():
            bits.append(Highlight(text[at:start].strip(), "plain"))
        bits.append(Highlight(text[start:end], kind, meaning))
        at = end
    if text[at:].strip():
        bits.append(Highlight(text[at:].strip(), "plain"))
    return bits


# The sentence already contains these fields.
_SAID_TEXT = "count classes profile share gigabytes slice any day duration anytime start"
_SAID = frozenset(_SAID_TEXT.split())
_TIMES = frozenset({"starts", "not_before", "deadline"})


_SERIES = frozenset({"starts", "day", "times", "until", "lasts"})
"""What the dates of a series say."""


def understood_words(ask: AskDocument, parsed: Parsed, labels: Mapping[str, str], zone: ZoneInfo) -> str:
    """`2 × H100 80 GB for 6 h, starts exactly Fri 27 Nov 22:00`; of a series its dates."""
    shape = what_words(replace(ask, pin=()), labels)
    words = [f"{shape} for {duration_words(ask.duration)}"]
    dates = _dates_words(ask, parsed, zone)
    unsaid = _SAID | _SERIES if dates else _SAID
    words += [part.meaning for part in parsed.parts if part.field not in unsaid]
    words += [dates] if dates else []
    if not _TIMES.intersection(part.field for part in parsed.parts):
        words.append("as soon as possible")
    return ", ".join(words)


def _dates_words(ask: AskDocument, parsed: Parsed, zone: ZoneInfo) -> str:
    """`4 dates from Wed 2 Dec to Mon 14 Dec, each 09:00 – 17:00`; empty without dates."""
    if parsed.repeat is None or ask.starts is None:
        return ""
    try:
        starts = dates_of(parsed.repeat, ask.starts, zone).starts
    except AskError:
        # The refusal of the series says why.
        return ""
    hours = f"{clock(ask.starts, zone)} – {clock(ask.starts + timedelta(seconds=ask.duration), zone)}"
    first, last = (day_words(each, zone) for each in (starts[0], starts[-1]))
    if len(starts) == 1:
        return f"1 date, {first}, {hours}"
    return f"{len(starts)} dates from {first} to {last}, each {hours}"
