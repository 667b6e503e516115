"""Decisions of the solver, stored so that each can be replayed byte for byte."""

import uuid

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models


class PolicyVersion(models.Model):
    """A version of the solver's parameters. Exactly one is live."""

    class State(models.TextChoices):
        DRAFT = "draft", "Draft"
        LIVE = "live", "Live"
        RETIRED = "retired", "Retired"

    number = models.PositiveIntegerField(primary_key=True)
    document = models.JSONField()
    parts = models.JSONField(
        default=list,
        db_default=[],
        blank=True,
        help_text="Parts of the site in which another version is in force: `version`, `classes`, `tenants`"
        " by id, and the `values` that it has otherwise there.",
    )
    scenario = models.JSONField(
        default=dict,
        db_default={},
        blank=True,
        help_text="What else it sets: `tiers`, `quotas` and `prices`; empty: nothing.",
    )
    state = models.CharField(max_length=8, choices=State.choices)
    created = models.DateTimeField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["state"], condition=models.Q(state="live"), name="policy_one_live"
            ),
        ]


class Decision(models.Model):
    """A cycle that changed something: its complete input and output, compressed, with digests.

    A keyframe has both whole; any other decision has what differs from its `base`.
    """

    # Versions of `format`: whole documents with the digests of their bytes, or rows.
    WHOLE, ROWS = 2, 3

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField()
    leader_term = models.BigIntegerField()
    policy = models.ForeignKey(PolicyVersion, on_delete=models.PROTECT)
    format = models.PositiveSmallIntegerField(
        default=WHOLE, db_default=WHOLE, help_text="3: by rows, as a keyframe or a delta."
    )
    keyframe = models.ForeignKey(
        "self",
        on_delete=models.PROTECT,
        related_name="deltas",
        null=True,
        blank=True,
        help_text="The decision with the whole documents; null if it is this one.",
    )
    base = models.OneToOneField(
        "self",
        on_delete=models.PROTECT,
        related_name="+",
        null=True,
        blank=True,
        help_text="The decision before it, which its bytes are relative to.",
    )
    snapshot = models.BinaryField()
    snapshot_sha256 = models.CharField(max_length=64)
    plan = models.BinaryField()
    plan_sha256 = models.CharField(max_length=64)
    software = models.CharField(
        max_length=160, help_text="Commit of the code, versions of its solver libraries."
    )
    solve_ms = models.PositiveIntegerField()
    counts = models.JSONField(default=dict, db_default={}, help_text="Rows of each part of the plan.")
    pieces = models.PositiveSmallIntegerField(
        default=1, db_default=1, help_text="Transactions that its changes are written in."
    )
    withheld = models.JSONField(
        default=list,
        db_default=[],
        help_text="[kind, booking or order, why]: parts of the plan that were not written because"
        " a booking had changed since the snapshot.",
    )
    archived_in = models.CharField(
        max_length=120,
        default="",
        db_default="",
        help_text="Archive file with the bytes of snapshot and plan.",
    )
    snapshot_archived = models.CharField(max_length=64, default="", db_default="")
    plan_archived = models.CharField(max_length=64, default="", db_default="")

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(keyframe=None, base=None)
                | models.Q(keyframe__isnull=False, base__isnull=False, format=3),
                name="decision_keyframe_or_delta",
            ),
        ]


class DecisionPiece(models.Model):
    """A piece of a large plan that was written, in the transaction of its changes.

    A decision of one piece has none: it is written with its changes.
    """

    id = models.BigAutoField(primary_key=True)
    decision = models.ForeignKey(Decision, on_delete=models.PROTECT, related_name="written")
    number = models.PositiveSmallIntegerField(help_text="From 1 to the decision's `pieces`.")
    withheld = models.JSONField(default=list, help_text="As the decision's.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["decision", "number"], name="decision_piece_once"),
        ]


class DecisionReplay(models.Model):
    """A stored decision that is solved again: asked for by a person, or part of the nightly sample
    (`asked_by` is null)."""

    class Outcome(models.TextChoices):
        SAME = "same", "Same result"
        DIFFERENT = "different", "Another result"
        DAMAGED = "damaged", "The stored bytes are damaged"
        ARCHIVED = "archived", "Its documents are in the archive"
        FAILED = "failed", "It did not end"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    decision = models.ForeignKey(Decision, on_delete=models.PROTECT, related_name="replays")
    asked_at = models.DateTimeField()
    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    started_at = models.DateTimeField(null=True, blank=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    finished_at = models.DateTimeField(null=True, blank=True)
    outcome = models.CharField(max_length=10, choices=Outcome.choices, blank=True)
    note = models.CharField(max_length=200, blank=True, help_text="What is wrong, if anything.")
    comparison = models.CharField(
        max_length=8, blank=True, help_text="`bytes`, or `meaning` for a plan of format 1."
    )
    snapshot_sha256 = models.CharField(max_length=64, blank=True)
    plan_sha256 = models.CharField(max_length=64, blank=True)
    software = models.CharField(max_length=160, blank=True, help_text="That replayed it.")
    took_ms = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["-asked_at", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["decision"],
                condition=models.Q(finished_at=None),
                name="replay_one_open",
            ),
            models.CheckConstraint(
                condition=models.Q(finished_at=None, outcome="")
                | (models.Q(finished_at__isnull=False) & ~models.Q(outcome="")),
                name="replay_ends_with_an_outcome",
            ),
        ]
        indexes = [
            models.Index(fields=["asked_at"], name="replay_open", condition=models.Q(finished_at=None)),
            models.Index(fields=["decision", "-asked_at"], name="replay_of_decision"),
            models.Index(fields=["-asked_at"], name="replay_nightly", condition=models.Q(asked_by=None)),
        ]


class QueuePlace(models.Model):
    """The place in the queue that the newest decision gave a waiting booking.

    No web request reads it: the keys of others would show what their organisations have used.
    """

    booking = models.OneToOneField(
        "allocation.Booking",
        on_delete=models.PROTECT,
        primary_key=True,
        related_name="+",
        db_constraint=False,
    )
    key = ArrayField(
        models.BigIntegerField(), help_text="As `Waiting.key` has it; of two, the lower goes first."
    )


class MachineClock(models.Model):
    """Of a machine that runs cycles, from one start of it to the next: how far its two clocks are
    `clock_offset`, and by how much the clock of the day has jumped since, if it has."""

    machine = models.CharField(max_length=64, primary_key=True)
    clock_offset = models.DurationField(help_text="Wall clock minus monotonic clock.")
    jump = models.DurationField(
        null=True, blank=True, help_text="How far the wall clock jumped; null if it did not."
    )


class SolverState(models.Model):
    """The fence of the cycle, a single row. A new leader raises `leader_term`."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    leader_term = models.BigIntegerField(default=0)
    epoch = models.BigIntegerField(default=1, help_text="Rises when the database is restored.")
    withheld_cycles = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Cycles in a row that could not write all they decided."
    )

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(id=1), name="solver_state_single"),
        ]
