"""Versions that are in force for a part of the site: for some GPU classes, or for some organisations.

The solver decides everybody in one cycle, so a version in force for a part makes a version of its own:
the document that was in force, and the `parts` in which another version says otherwise. A decision has
one version, replays with it, and going back is going back to the version before.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from allocation.services.policy.names import LABELS
from allocation.words.refusals import refusal_text
from solver import Policy
from solver.model.policy import PolicyPart, Scoring
from tenants.models import GpuClass, Tenant
from tenants.platform.errors import Refused, invalid

_SCORING = {each.name for each in fields(Scoring)}
BY_CLASS = _SCORING | {each.name for each in fields(PolicyPart)} - {"classes", "tenants", "scoring"}
"""Parameters that one GPU class may have otherwise than the others."""
BY_TENANT = frozenset({"patience", "cool_down", "victim_rules"})
"""Parameters that one organisation may have otherwise: they compare it with nobody else."""
MOST_PARTS = 10
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the site: slugs of classes, and ids of organisations; neither is the whole site."""

    classes: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Returns whether it is less than the whole site."""
        return bool(self.classes or self.tenants)


SITE = Part()


def part_read(classes: Sequence[str], tenants: Sequence[str]) -> Part:
    """The part that is meant by slugs. Raises Refused `unknown_class` or `unknown_tenant`."""
    known = set(GpuClass.objects.values_list("slug", flat=True))
    for each in classes:
        if each not in known:
            raise invalid("unknown_class", refusal_text("policy_part_class", name=each[:40]), "classes")
    ids = {slug: str(key) for slug, key in Tenant.objects.values_list("slug", "id")}
    for each in tenants:
        if each not in ids:
            raise invalid("unknown_tenant", refusal_text("policy_part_tenant", name=each[:40]), "tenants")
    return Part(tuple(sorted(set(classes))), tuple(sorted({ids[each] for each in tenants})))


def part_values(changed: Mapping[str, object], part: Part) -> dict[str, Any]:
    """The values of a candidate that differ, as a part keeps them. Raises Refused `not_for_a_part`,
    which names the parameters that have one value for the whole site."""
    able = BY_TENANT if part.tenants else BY_CLASS
    whole = [name for name in changed if name not in able]
    if whole:
        key = "policy_part_of_tenants" if part.tenants else "policy_part_of_classes"
        sentence = refusal_text(
            key,
            names=", ".join(LABELS.get(name, name) for name in whole),
            able=", ".join(LABELS.get(name, name) for name in sorted(able)),
        )
        raise invalid("not_for_a_part", sentence, "tenants" if part.tenants else "classes")
    return {name: list(value) if isinstance(value, tuple) else value for name, value in changed.items()}


def whole_site_names(changed: Iterable[str], *, tenants: bool) -> list[str]:
    """Which of these parameters have one value for all classes, or for all `tenants`, in words."""
    able = BY_TENANT if tenants else BY_CLASS
    return [LABELS.get(name, name) for name in changed if name not in able]


def parts_with(live: Sequence[Row], number: int, part: Part, values: Mapping[str, Any]) -> list[Row]:
    """The parts of the version in force with one more, in place of an earlier one of the same version.

    Raises:
        Refused: `parts_overlap` (another version is in force there), or `too_many_parts`.
    """
    others = [row for row in live if row["version"] != number]
    other = next((row for row in others if _overlap(row, part)), None)
    if other is not None:
        sentence = refusal_text("policy_parts_overlap", number=other["version"])
        raise Refused("parts_overlap", sentence, "conflict", param="tenants" if part.tenants else "classes")
    if len(others) >= MOST_PARTS:
        raise Refused("too_many_parts", refusal_text("policy_parts_many", most=MOST_PARTS), "conflict")
    made = {
        "version": number,
        "classes": list(part.classes),
        "tenants": list(part.tenants),
        "values": dict(values),
    }
    return [*others, made]


def _overlap(row: Row, part: Part) -> bool:
    """Whether a class and an organisation are in both."""
    pairs = (row["classes"], part.classes), (row["tenants"], part.tenants)
    return all(not one or not other or set(one) & set(other) for one, other in pairs)


def part_of(row: Row, policy: Policy) -> PolicyPart:
    """A part for the solver; `policy` has its values."""
    own = {
        each.name: getattr(policy, each.name)
        for each in fields(PolicyPart)
        if each.name not in ("classes", "tenants")
    }
    return PolicyPart(classes=tuple(row["classes"]), tenants=tuple(row["tenants"]), **own)


def part_shown(row: Mapping[str, Any]) -> Row:
    """A part with the slugs of its organisations."""
    slugs = Tenant.objects.filter(id__in=row["tenants"]).order_by("slug").values_list("slug", flat=True)
    return {**row, "tenants": list(slugs)}


def part_names(row: Mapping[str, Any]) -> str:
    """The part in words, such as `h100` or `h100 of acme`."""
    classes, tenants = (", ".join(part_shown(row)[name]) for name in ("classes", "tenants"))
    return " of ".join(each for each in (classes, tenants) if each)
