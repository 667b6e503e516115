"""Puts a version of the policy in the shadow of today, and shows what it would decide otherwise."""

from argparse import ArgumentParser
from typing import Any

from django.utils import timezone

from allocation.features.policy_lab.models import PolicyShadow
from allocation.features.policy_lab.shadows import (
    ShadowTerms,
    differences_of,
    shadow_begin,
    shadow_end,
    shadow_one,
    sums_by_tenant,
)
from allocation.management.operator import OperatorCommand, operator_argument, operator_by_name
from tenants.web.parts import counted

SHOWN = 50


class Command(OperatorCommand):
    """`manage.py policy_shadow --begin 7 --every 5`, with the system's database role."""

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the version, and what to do with it."""
        act = parser.add_mutually_exclusive_group(required=True)
        act.add_argument("--begin", type=int, metavar="N", help="put a version in shadow")
        act.add_argument("--end", type=int, metavar="N", help="take a version out of shadow")
        act.add_argument("--show", type=int, metavar="N", help="what a version decides otherwise")
        parser.add_argument("--every", type=int, default=1, help="with --begin: of so many decisions, one")
        operator_argument(parser)

    def handle(self, *_: object, operator: str, **options: Any) -> None:  # noqa: ANN401 (Django's)
        """Carries out what is asked, and prints what the shadow has found."""
        by, now = operator_by_name(operator), timezone.now()
        who = by.pk if by else None
        if options["begin"] is not None:
            number = options["begin"]
            shadow_begin(number=number, terms=ShadowTerms(every=options["every"]), operator_id=who, now=now)
            self.stdout.write(f"Version {number} is in shadow. It acts on nothing.")
            return
        if options["end"] is not None:
            shadow_end(number=options["end"], operator_id=who, now=now)
            self.stdout.write(f"Version {options['end']} is out of shadow.")
            return
        self._show(shadow_one(options["show"]))

    def _show(self, shadow: PolicyShadow) -> None:
        state = "in shadow" if shadow.ended_at is None else "out of shadow"
        decided, differing = counted(shadow.decided, "decision"), shadow.differing
        self.stdout.write(f"Version {shadow.version_id}, {state}: {decided}, {differing} with differences")
        for row in sums_by_tenant(shadow):
            kinds = ", ".join(f"{count} {kind}" for kind, count in row.items() if kind != "tenant" and count)
            self.stdout.write(f"  {row['tenant']}: {kinds}")
        for each in differences_of(shadow)[:SHOWN]:
            times = " -> ".join(
                f"{at:%Y-%m-%d %H:%M}" if at else "-" for at in (each.active_starts, each.starts)
            )
            self.stdout.write(
                f"  {each.booking.label}  {each.get_kind_display().lower()}  {times}  {each.rule}"
            )
