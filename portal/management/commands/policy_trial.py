"""Plays the site's past under a candidate of the policy, next to the version in force."""

import json
from argparse import ArgumentParser
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError
from django.utils import timezone

from allocation.features.policy_lab.demand import DemandTerms
from allocation.features.policy_lab.models import PolicyTrial
from allocation.features.policy_lab.process import orphaned, priority_lower
from allocation.features.policy_lab.results import csv_lines, text_lines
from allocation.features.policy_lab.trials import TrialTerms, trial_ask, trial_cancel, trial_one, trials_run
from allocation.management.operator import OperatorCommand, operator_argument, operator_by_name
from tenants.models import User
from tenants.web.parts import counted

LISTED = 20


class Command(OperatorCommand):
    """`manage.py policy_trial --candidate 7 --days 30`, with the system's database role."""

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the candidate and the past."""
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--candidate", type=int, help="the number of a version of the policy")
        what.add_argument("--work", action="store_true", help="play what waits, with the lowest priority")
        what.add_argument("--list", action="store_true", help="list the newest trials with their states")
        what.add_argument("--show", type=UUID, metavar="ID", help="the results of a trial that is done")
        what.add_argument("--cancel", type=UUID, metavar="ID", help="cancel a trial that waits or runs")
        parser.add_argument("--days", type=int, default=7, help="days of the past")
        parser.add_argument("--seeds", type=int, default=3, help="draws of runs whose length nobody knows")
        for each in fields(DemandTerms):
            said = each.metadata["serializer_kwargs"]["help_text"]
            parser.add_argument(
                f"--{each.name}", type=int, default=each.default, help=said.lower().replace("%", "%%")
            )
        parser.add_argument("--json", type=Path, help="file for the results as JSON")
        parser.add_argument("--csv", type=Path, help="file for the results as CSV")
        operator_argument(parser)

    def handle(self, *_: object, operator: str, **options: Any) -> None:  # noqa: ANN401 (Django's)
        """Plays, and prints the results. The same past and versions give the same bytes."""
        if options["work"]:
            priority_lower()
            trials_run(timezone.now, orphaned())
            return
        by, now = operator_by_name(operator), timezone.now()
        if options["list"]:
            for each in PolicyTrial.objects.order_by("-asked_at", "id").defer("report")[:LISTED]:
                what = f"version {each.candidate_id}, {counted(each.days, 'day')}"
                state = f"{each.get_state_display().lower()}, {each.permille / 10:.0f} % played"
                self.stdout.write(f"{each.pk}  {each.asked_at:%Y-%m-%d %H:%M}  {what}: {state}")
            return
        if options["cancel"]:
            trial_cancel(trial_id=options["cancel"], operator_id=by.pk if by else None, now=now)
            self.stdout.write("The trial is cancelled.")
            return
        trial_id = options["show"] or self._played(options, by, now)
        self._write(trial_one(trial_id), options)

    def _played(self, options: dict[str, Any], by: User | None, now: datetime) -> UUID:
        """Asks for a trial and plays what waits."""
        demand = DemandTerms(**{each.name: options[each.name] for each in fields(DemandTerms)})
        terms = TrialTerms(
            candidate=options["candidate"], days=options["days"], seeds=options["seeds"], demand=demand
        )
        made = trial_ask(terms=terms, operator_id=by.pk if by else None, now=now)
        trials_run(timezone.now)
        return made.pk

    def _write(self, trial: PolicyTrial, options: dict[str, Any]) -> None:
        if trial.report is None:
            raise CommandError(trial.note or f"The trial {trial.pk} is {trial.get_state_display().lower()}.")
        for line in text_lines(trial.report):
            self.stdout.write(line)
        if options["json"]:
            text = json.dumps(trial.report, indent=1, sort_keys=True)
            options["json"].write_text(text + "\n", encoding="utf-8")
        if options["csv"]:
            options["csv"].write_text("".join(csv_lines(trial.report)), encoding="utf-8")
