"""Requests as one line of text, for a project."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from allocation.errors import AskError
from allocation.points import WORKLOADS_KNOWN
from allocation.queries.fleet.catalogue import ask_catalogue
from allocation.rules.ask import AskDocument, Parsed, parse_ask
from allocation.rules.ask.words.parsed import NOT_UNDERSTOOD, Catalogue, Problem
from allocation.services.bookings.corrected_lines import LineRules, is_there
from allocation.services.bookings.requests import STANDARD
from allocation.words.refusals import coded_text, refusal_text
from tenants.access import Actor
from tenants.models import Project
from tenants.platform.errors import Refused, invalid

_QUOTE = "“"
_KIND = re.compile(r"\bkind:([a-z0-9][a-z0-9_-]{0,62})")


@dataclass(frozen=True, slots=True)
class ProjectNamed:
    """The project of a request whose text may name it, and by mistake another one of the actor."""

    slug: str
    user_id: int
    actor: Actor = field(compare=False)
    tier: str = STANDARD

    def known(self) -> Sequence[tuple[str, str]]:
        """Returns slugs and names of the projects in which the actor may book."""
        rows = Project.objects.filter(tenant_id=self.actor.tenant_id, is_open=True).order_by("name")
        return [(each.slug, each.name) for each in rows if self.actor.may_book(each.id)]

    def rules(self, now: datetime, zone: str) -> LineRules | None:
        """Returns what corrected lines are tried by; None if the actor may not book there."""
        row = Project.objects.filter(tenant_id=self.actor.tenant_id, slug=self.slug, is_open=True).first()
        if row is None or not self.actor.may_book(row.id):
            return None
        return LineRules(self.actor, row, self.tier, now, ZoneInfo(zone))


def project_named(actor: Actor, slug: str, tier: str = STANDARD) -> ProjectNamed:
    """The project of a request of the actor, and the tier that counts unless the text names one. Equal
    ones are one key of a cache."""
    return ProjectNamed(slug, actor.user_id, actor, tier)


def request_read(
    text: str,
    *,
    project: str | ProjectNamed,
    zone: str,
    now: datetime,
    first: bool = False,
    many: bool = False,
) -> tuple[AskDocument, str | None]:
    """Returns the structured request of the text, and the tier that it names.

    With `first` a repeating request is allowed, and the result is its first date.
    With `many` an array is allowed, and the result is one run of it.
    A text may name a `ProjectNamed` by its name, too.

    Raises:
        Refused: The text can't be read; `param` is `request`. `project_twice`: it names another
            project.
    """
    reader = QuoteReader()
    found = reader(text, project=project, zone=zone, now=now, first=first, many=many)
    if reader.is_cheapest:
        raise invalid("cheapest_of_what", refusal_text("cheapest_of_what"), "request")
    return found


@dataclass(slots=True)
class QuoteReader:
    """Reads a text as `request_read` does, and notes whether it names a tier, and whether it
    asks for the cheapest: a quote answers that, and nothing else."""

    is_cheapest: bool = False
    names_tier: bool = False

    def __call__(
        self,
        text: str,
        *,
        project: str | ProjectNamed,
        zone: str,
        now: datetime,
        first: bool = False,
        many: bool = False,
    ) -> tuple[AskDocument, str | None]:
        """Returns the structured request of the text, and the tier that it names."""
        named = project if isinstance(project, ProjectNamed) else None
        slug = named.slug if named else str(project)
        kinds = kinds_said(slug, text)
        catalogue = ask_catalogue([(slug, slug)], kinds)
        try:
            parsed = parse_ask(text, catalogue=catalogue, now=now, zone=ZoneInfo(zone))
        except AskError as error:
            raise invalid(error.code, coded_text(error.text), error.param) from error
        if parsed.unknown and named:
            # Only such a text costs the query.
            catalogue = ask_catalogue(named.known(), kinds)
            parsed = parse_ask(text, catalogue=catalogue, now=now, zone=ZoneInfo(zone))
        if parsed.unknown:
            names = [each for each in catalogue.projects if each[0] == slug]
            lines = lines_that_work(parsed, replace(catalogue, projects=tuple(names)), now, zone, named)
            raise _not_understood(text, parsed, lines)
        if parsed.project not in (None, slug):
            raise invalid("project_twice", refusal_text("project_twice", named=parsed.project), "project")
        self.is_cheapest, self.names_tier = parsed.cheapest, parsed.tier is not None
        try:
            if parsed.is_for_rules:
                return parsed.refused_document(first=first, many=many), parsed.tier
            return parsed.document(first=first, many=many), parsed.tier
        except AskError as error:
            refused = invalid(error.code, coded_text(error.text), error.param)
            alternatives = lines_that_work(parsed, catalogue, now, zone, named) or error.alternatives
            raise replace(refused, alternatives=alternatives) from error


def kinds_said(project: str, text: str) -> list[str]:
    """The workloads of a project, by its slug, that a text names as a kind of work."""
    said = set(_KIND.findall(text.lower()))
    rows = list(Project.objects.filter(slug=project).values_list("id", flat=True)[:2]) if said else []
    # Workers see those of several organisations.
    known = (name for read in WORKLOADS_KNOWN for name in read(rows[0])) if len(rows) == 1 else ()
    return sorted(said.intersection(known))


def lines_that_work(
    parsed: Parsed, catalogue: Catalogue, now: datetime, zone: str, named: ProjectNamed | None = None
) -> list[dict[str, str]]:
    """The corrected lines that are whole requests, of hardware that the site has, and that the rules of
    the project admit. Others, which leave a problem, are for people who read on as they type."""

    def read(text: str) -> Parsed:
        return parse_ask(text, catalogue=catalogue, now=now, zone=ZoneInfo(zone))

    again = ((each, read(each.text)) for each in parsed.repairs)
    whole = ((each, found) for each, found in again if not found.problems and not found.missing)
    # What is corrected to a bound may be more than the site has: another rule says so.
    is_bound = any(each.code == "count_out_of_bounds" for each in parsed.problems)
    lines = tuple(each for each, found in whole if is_bound or is_there(found))
    rules = named.rules(now, zone) if named and lines else None
    return [{"request": each.text} for each in (rules.admitted(lines, read) if rules else lines)]


def _not_understood(text: str, parsed: Parsed, lines: list[dict[str, str]]) -> Refused:
    """A refusal with the spans that were not understood and corrected requests."""
    unknown = [each for each in parsed.problems if each.code == NOT_UNDERSTOOD]
    why = coded_text(unknown[0].text)
    return Refused(
        NOT_UNDERSTOOD,
        why if len(unknown) == 1 and why.startswith(_QUOTE) else _words_of(text, unknown, why),
        "invalid",
        param="request",
        numbers={"spans": [list(span) for span in parsed.unknown]},
        alternatives=lines,
    )


def _words_of(text: str, unknown: Sequence[Problem], why: str) -> str:
    """Names all words that are not understood, and why not, if that says more than their names."""
    words = ", ".join(f"{_QUOTE}{text[each.start : each.end]}”" for each in unknown)
    if unknown[0].text.code == "ask_word":
        return refusal_text("words_not_understood", words=words)
    return refusal_text("not_understood", words=words, sentence=why)
