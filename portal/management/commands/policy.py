"""Shows or changes the live policy. The next cycle uses it, without a restart."""

import json
from argparse import ArgumentParser
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connection
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from allocation.features.policy_lab.guards import GuardTerms
from allocation.features.policy_lab.versions import ActivateTerms, version_activate
from allocation.management.operator import operator_argument, operator_by_name
from allocation.models import PolicyVersion
from allocation.queries.decisions.policy_versions import versions_read
from allocation.rules.nodes.node_policy import node_policy_of
from allocation.services.policy.activations import (
    policy_approve,
    policy_publish,
    policy_rollback,
    policy_withdraw,
)
from allocation.services.policy.differences import version_lines
from allocation.services.policy.parts import part_names
from allocation.services.policy.policies import (
    BY_NAME,
    LISTS,
    by_name_read,
    by_name_text,
    policy_draft,
    policy_names,
    policy_of,
    policy_tunables,
    policy_version,
)
from tenants.access import PlatformActor
from tenants.models import User
from tenants.platform.errors import Refused
from tenants.platform.rest.fields import validated
from tenants.platform.rest.terms import body_of_terms

# Options that need the name of an operator, because people approve what another one wrote.
BY_PEOPLE = ("activate", "approve", "withdraw")
# Acts that need the login of the owner.
OF_OWNER = ("scenario", "activate", "approve")


def _may_approve() -> bool:
    """Whether the login is not that of the programs, which share it with whoever takes one over."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT has_table_privilege('allocation_policyapproval', 'INSERT')")
        return bool(cursor.fetchone()[0])


class Command(BaseCommand):
    """`manage.py policy [name=value …] [--operator ada]`, with the system's database role."""

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the entries to change, and what to do with versions."""
        parser.add_argument("entries", nargs="*", metavar="name=value", help="`name=` restores the default")
        parser.add_argument("--draft", action="store_true", help="make a draft, which decides nothing")
        act = parser.add_mutually_exclusive_group()
        act.add_argument("--versions", action="store_true", help="list all versions with their states")
        act.add_argument("--compare", nargs=2, type=int, metavar=("A", "B"), help="what changes from A to B")
        act.add_argument("--activate", type=int, metavar="N", help="put a version into force")
        act.add_argument("--approve", type=int, metavar="N", help="approve another operator's version")
        act.add_argument("--withdraw", type=int, metavar="N", help="withdraw a version that waits")
        act.add_argument(
            "--rollback", nargs="?", type=int, const=0, metavar="N", help="go back, by default one version"
        )
        parser.add_argument(
            "--scenario", type=Path, help="with --draft: a JSON file of tiers, quotas and prices that it sets"
        )
        parser.add_argument(
            "--guard", type=Path, help="with --activate: a JSON file of figures and bands, as REST takes it"
        )
        parser.add_argument("--starts", default="", help="with --activate: 2026-12-01T08:00:00Z; else now")
        for name in ("class", "tenant"):
            parser.add_argument(
                f"--{name}",
                dest=f"{name}_only",
                action="append",
                default=[],
                metavar="SLUG",
                help="with --activate: only for this one, and others that are named so",
            )
        parser.add_argument("--reason", default="", help="with --activate or --rollback")
        parser.add_argument("--waiver", default="", help="why a site's only operator does not wait for a day")
        operator_argument(parser)

    def handle(self, *_: object, entries: list[str], operator: str, **options: Any) -> None:  # noqa: ANN401
        """Carries out what is asked, and prints all values of the live version, or what was asked for."""
        now = timezone.now()
        if any(options[each] is not None for each in OF_OWNER) and not _may_approve():
            raise CommandError(
                "Programs approve and activate no versions: set DATABASE_URL to that of portal_owner, as for"
                " migrate."
            )
        try:
            by = operator_by_name(operator)
            is_shown = (
                self._change(entries, options, by)
                if entries or options["scenario"]
                else self._versions_act(options, by, now)
            )
        except Refused as refusal:
            live = PolicyVersion.objects.get(state=PolicyVersion.State.LIVE)
            raise CommandError(f"{refusal.sentence} Version {live.number} stays live.") from None
        if is_shown:
            self._values()

    def _change(self, entries: list[str], options: dict[str, Any], by: User | None) -> bool:
        """A script that sets the same values again makes no version."""
        live = PolicyVersion.objects.get(state=PolicyVersion.State.LIVE)
        document = changed(dict(live.document), entries)
        facts: dict[str, Any] = {"now": timezone.now(), "created_by_id": by.id if by else None}
        if options["scenario"] is not None:
            if not options["draft"]:
                raise CommandError("Write --draft: a scenario goes into force with --activate.")
            facts["scenario"] = _document(options["scenario"])
        make = policy_draft if options["draft"] else policy_publish
        if document != live.document or "scenario" in facts:
            made = make(document=document, **facts)
            if options["draft"]:
                self.stdout.write(f"Version {made.number} is a draft.")
        return not options["draft"]

    def _versions_act(self, options: dict[str, Any], by: User | None, now: datetime) -> bool:
        if options["versions"]:
            self._list()
        elif options["compare"]:
            before, after = map(policy_version, options["compare"])
            for line in version_lines(before, after) or ["No value differs."]:
                self.stdout.write(line)
        elif options["rollback"] is not None:
            number = options["rollback"] or None
            person = by.id if by else None
            policy_rollback(now=now, operator_id=person, reason=options["reason"], number=number)
            return True
        elif any(options[each] is not None for each in BY_PEOPLE):
            self._by_person(options, by, now)
        else:
            return True
        return False

    def _by_person(self, options: dict[str, Any], by: User | None, now: datetime) -> None:
        if by is None:
            raise CommandError("Say who you are: --operator NAME.")
        if options["activate"] is not None:
            starts = parse_datetime(options["starts"]) if options["starts"] else None
            if options["starts"] and (starts is None or starts.tzinfo is None):
                raise CommandError("Write --starts with its offset, such as 2026-12-01T08:00:00Z.")
            terms = ActivateTerms(
                starts=starts,
                reason=options["reason"],
                waiver=options["waiver"],
                classes=options["class_only"],
                tenants=options["tenant_only"],
                guard=_guard(options["guard"]) if options["guard"] is not None else None,
            )
            actor = PlatformActor(by.id, by.display_name)
            version_activate(actor=actor, number=options["activate"], terms=terms, now=now)
        elif options["approve"] is not None:
            policy_approve(number=options["approve"], now=now, operator_id=by.id)
        else:
            policy_withdraw(number=options["withdraw"], now=now, operator_id=by.id)
        self._list()

    def _list(self) -> None:
        for facts in versions_read():
            waits = ""
            if facts.waiting is not None:
                due = facts.waiting.due_at
                waits = f", in force from {due:%Y-%m-%d %H:%M:%S %Z}" if due else ", waits for an approval"
            where = f" for {part_names(facts.part)}" if facts.part else ""
            self.stdout.write(f"{facts.number:>4}  {facts.state}{where}{waits}")

    def _values(self) -> None:
        live = PolicyVersion.objects.get(state=PolicyVersion.State.LIVE)
        self.stdout.write(f"Version {live.number} is live.")
        nodes = asdict(node_policy_of(live.document))
        for name, value in {**policy_tunables(policy_of(live)), **nodes}.items():
            mark = "" if name in live.document else "  (default)"
            shown = ",".join(value) if isinstance(value, tuple) else value
            shown = by_name_text(name, value) if isinstance(value, dict) else shown
            self.stdout.write(f"  {name} = {shown}{mark}")


def _document(path: Path) -> Any:  # noqa: ANN401 (JSON)
    """The JSON of a file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CommandError(f"{path}: {error}") from None


def _guard(path: Path) -> GuardTerms:
    """The guard of a file. Raises Refused, which names the entry."""
    found: GuardTerms = validated(body_of_terms(GuardTerms), _document(path))
    return found


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
    `standard 4h,premium 30m`, GPUs by class as `h100 2`, or the text as it is."""
    if name in LISTS:
        return policy_names(text)
    if name in BY_NAME:
        return by_name_read(name, text)
    return int(text) if text.isascii() and text.isdigit() else text
