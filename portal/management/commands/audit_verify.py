"""Verifies that no row of the log, the decisions or the versions of the policy was changed."""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from portal.storage.archive import ArchiveBroken, log_archived
from portal.storage.audit_sources import SOURCES
from tenants.audit import platform_record
from tenants.services.sealed_log.chain import (
    ENTRIES,
    chain_name,
    chain_verify,
    heads_compare,
    heads_text,
)
from tenants.services.sealed_log.search import VERIFIED
from tenants.web.parts import counted


class Command(BaseCommand):
    """`manage.py audit_verify [--heads FILE] [--archive FOLDER]`, as portal_system."""

    help = __doc__ or ""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the file of earlier heads, and the folder of the archive."""
        parser.add_argument(
            "--heads",
            type=Path,
            help="compare with the heads in this file, then write the new heads to it; only this"
            " finds rows that were cut off the end of a chain",
        )

        parser.add_argument(
            "--archive",
            type=Path,
            help="the folder of `manage.py archive`; without it archived rows are not checked",
        )

    def handle(
        self,
        *_: object,
        heads: Path | None,
        archive: Path | None,
        **__: Any,  # noqa: ANN401 (Django's)
    ) -> None:
        """Prints the number of chains, or every fault."""
        now = timezone.now()
        try:
            archived = {ENTRIES.name: log_archived(archive)}
        except ArchiveBroken as error:
            raise CommandError(str(error)) from error
        chains = [
            chain for source in SOURCES for chain in chain_verify(source, archived.get(source.name, {}))
        ]
        faults = [f"{chain_name(each)}: {fault}" for each in chains for fault in each.faults]
        if heads is not None and heads.exists():
            faults += heads_compare(json.loads(heads.read_text(encoding="utf-8")), chains)
        after = {"chains": len(chains), "faults": len(faults)}
        platform_record(None, VERIFIED, ("audit", "chains"), now, after=after)
        if faults:
            raise CommandError("\n".join(faults))
        if heads is not None:
            heads.write_text(json.dumps(heads_text(chains), indent=1), encoding="utf-8")
        self.stdout.write(f"{counted(len(chains), 'chain')}, no changes found.")
