"""Keeps what another cluster ran, for forecasts and figures."""

import dataclasses
from argparse import ArgumentParser
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.core.management.base import BaseCommand, CommandError
from django.core.validators import validate_slug
from django.db import transaction
from django.utils import timezone

from allocation.features.clusters.services import MOST_JOBS, JobsTerms, JobTerms, jobs_keep
from tenants.platform.errors import Refused
from wire.sacct import COMMAND, jobs_read


class Command(BaseCommand):
    """`manage.py import_history --slurm FILE`, with the system's database role."""

    help = f"{__doc__} FILE is what this printed: TZ=UTC {' '.join(COMMAND)} --starttime=…"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the file and what it is of."""
        parser.add_argument("--slurm", type=Path, required=True, metavar="FILE", help="what sacct printed")
        parser.add_argument("--cluster", default="slurm", type=_slug, help="its name in the portal")
        parser.add_argument("--zone", default="UTC", type=_zone, help="the time zone of its times")

    def handle(self, *_: object, slurm: Path, cluster: str, zone: ZoneInfo, **__: Any) -> None:  # noqa: ANN401
        """Keeps all of the file, or nothing of it."""
        try:
            text = slurm.read_text(encoding="utf-8")
            jobs = [JobTerms(**dataclasses.asdict(job)) for job in jobs_read(text, zone)]
        except (OSError, ValueError) as error:
            raise CommandError(f"{slurm}: {error}. Nothing was kept.") from None
        now, types, accounts = timezone.now(), set[str](), set[str]()
        try:
            with transaction.atomic():
                for begin in range(0, len(jobs), MOST_JOBS):
                    terms = JobsTerms(jobs=jobs[begin : begin + MOST_JOBS])
                    kept = jobs_keep(actor=None, slug=cluster, terms=terms, now=now)
                    types.update(kept.types)
                    accounts.update(kept.accounts)
        except Refused as refusal:
            raise CommandError(f"{refusal.sentence} Nothing was kept.") from None
        self.stdout.write(f"{len(jobs)} jobs with GPUs kept of cluster {cluster}, times read in {zone}.")
        for label, names in (("Types without a class", types), ("Accounts without a project", accounts)):
            if names:
                listed = ", ".join(name or "(no name)" for name in sorted(names))
                self.stdout.write(f"{label}: {listed}. Operators assign them at /ops/clusters/{cluster}.")


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise CommandError(f"There is no time zone {name}.") from None


def _slug(name: str) -> str:
    validate_slug(name)
    return name
