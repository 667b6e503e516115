"""Shows or changes the live policy. The next cycle uses it, without a restart."""

from argparse import ArgumentParser
from dataclasses import asdict

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from allocation.management.operator import operator_argument, operator_by_name
from allocation.models import PolicyVersion
from allocation.rules.nodes.node_policy import node_policy_of
from allocation.services.policy.policies import (
    LISTS,
    TIER_SECONDS,
    policy_names,
    policy_of,
    policy_publish,
    policy_tunables,
    tier_seconds_read,
    tier_seconds_text,
)
from tenants.platform.errors import Refused


class Command(BaseCommand):
    """`manage.py policy [name=value …] [--operator ada]`, with the system's database role."""

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the entries to change."""
        parser.add_argument("entries", nargs="*", metavar="name=value", help="`name=` restores the default")
        operator_argument(parser)

    def handle(self, *_: object, entries: list[str], operator: str, **__: object) -> None:
        """Changes the entries and prints all values of the live version."""
        live = PolicyVersion.objects.get(state=PolicyVersion.State.LIVE)
        if entries:
            try:
                document = changed(dict(live.document), entries)
                by = operator_by_name(operator)
                # A script that sets the same values again makes no version.
                if document != live.document:
                    live = policy_publish(
                        document=document, now=timezone.now(), created_by_id=by.id if by else None
                    )
            except Refused as refusal:
                sentence = f"{refusal.sentence} Version {live.number} stays live."
                raise CommandError(sentence) from None
        self.stdout.write(f"Version {live.number} is live.")
        nodes = asdict(node_policy_of(live.document))
        for name, value in {**policy_tunables(policy_of(live)), **nodes}.items():
            mark = "" if name in live.document else "  (default)"
            shown = ",".join(value) if isinstance(value, tuple) else value
            shown = tier_seconds_text(value) if isinstance(value, dict) else shown
            self.stdout.write(f"  {name} = {shown}{mark}")


def changed(document: dict[str, object], entries: list[str]) -> dict[str, object]:
    """The document with the entries applied: `name=value`, or `name=` for the default."""
    for entry in entries:
        name, _, text = entry.partition("=")
        document.pop(name, None)
        if text:
            document[name] = _value(name, text)
    return document


def _value(name: str, text: str) -> object:
    """A number, a list of names as `a,b` (`none` for an empty one), durations by tier as
    `standard 4h,premium 30m`, or the text as it is."""
    if name in LISTS:
        return policy_names(text)
    if name in TIER_SECONDS:
        return tier_seconds_read(text, param=name)
    return int(text) if text.isascii() and text.isdigit() else text
