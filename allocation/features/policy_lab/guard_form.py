"""The form that puts a version into force, with its guard in a few inputs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, get_args

from allocation.features.policy_lab.guard_figures import Name
from allocation.features.policy_lab.guards import LABELS, MOST, MOST_HOURS, FigureTerms, GuardTerms
from allocation.features.policy_lab.versions import ActivateTerms
from allocation.words.refusals import refusal_text
from tenants.access import PlatformActor
from tenants.models import Tier
from tenants.platform.errors import invalid
from tenants.platform.terms import term, terms
from tenants.services import seconds_read
from tenants.services.input_values import whole_read

_OF_TIER = "wait_p95"


def figure_choices(_: PlatformActor) -> list[tuple[object, object]]:
    """The figures that a guard can watch: waits of each tier, and those of the site."""
    tiers = Tier.objects.order_by("-priority", "slug").values_list("slug", "name")
    waits = [(f"{_OF_TIER} {slug}", f"Wait of 19 in 20, {name}") for slug, name in tiers]
    others = [(name, f"{text[0].upper()}{text[1:]}") for name, text in LABELS.items() if name != _OF_TIER]
    return [*waits, *((name, text.replace("The number of ", "").capitalize()) for name, text in others)]


def amounts_read(text: str, *, param: str) -> dict[str, int] | None:
    """Reads amounts such as `pauses 20, wait_p95 4h`. Raises Refused `bad_guard`."""
    found: dict[str, int] = {}
    for entry in filter(None, (each.strip() for each in text.split(","))):
        name, _, amount = entry.partition(" ")
        if name not in get_args(Name) or not amount:
            raise invalid("bad_guard", refusal_text("guard_amount", entry=entry[:40]), param)
        read = seconds_read if name == _OF_TIER else whole_read
        found[name] = int(read(amount.strip(), param=param))
    return found or None


@terms
class ActivateForm(ActivateTerms):
    """When and where a version goes into force, and what takes it back."""

    watch: Sequence[str] = term(
        "Guard: take it back by itself when one of these leaves its band", default=(), name="guard"
    )
    percent: int | None = term(
        "Band: at most, % of the same hours a week before", default=None, min_value=1, max_value=MOST
    )
    percent_of_trial: int | None = term(
        "Or: at most, % of what its trial forecast", default=None, min_value=1, max_value=MOST
    )
    amounts: Mapping[str, int] | None = term(
        "Or: at most",
        "Per figure and 24 hours, such as: pauses 20, spend 1500, wait_p95 4h.",
        default=None,
        reads=amounts_read,
    )
    guard_hours: int = term("Guarded for, hours", default=24, min_value=1, max_value=MOST_HOURS)

    def as_sent(self) -> ActivateTerms:
        """The terms as REST gets them."""
        own = {each.name: getattr(self, each.name) for each in fields(ActivateTerms)}
        if self.watch:
            own["guard"] = GuardTerms(figures=list(self._figures()), hours=self.guard_hours)
        return ActivateTerms(**own)

    def _figures(self) -> Iterator[FigureTerms]:
        for each in self.watch:
            name, _, tier = each.partition(" ")
            figure: Any = name
            yield FigureTerms(
                figure=figure,
                tier=tier,
                most=(self.amounts or {}).get(name),
                most_percent=self.percent,
                most_percent_of_trial=self.percent_of_trial,
            )
