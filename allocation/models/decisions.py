"""What the solver saw and said, kept so that it can be said again byte for byte."""

from django.conf import settings
from django.db import models


class PolicyVersion(models.Model):
    """One version of the solver's tunables. Exactly one is live."""

    class State(models.TextChoices):
        DRAFT = "draft", "Draft"
        LIVE = "live", "Live"
        RETIRED = "retired", "Retired"

    number = models.PositiveIntegerField(primary_key=True)
    document = models.JSONField()
    state = models.CharField(max_length=8, choices=State.choices)
    created = models.DateTimeField()
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["state"], condition=models.Q(state="live"), name="policy_one_live"
            ),
        ]


class Decision(models.Model):
    """One cycle that changed something: its whole input and output, compressed, with digests.

    `withheld` lists what of the plan was not written, as [kind, booking or order, why]: bookings
    changed between the snapshot and the write. The plan is stored as it was solved.
    """

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField()
    leader_term = models.BigIntegerField()
    policy = models.ForeignKey(PolicyVersion, on_delete=models.PROTECT)
    snapshot = models.BinaryField()
    snapshot_sha256 = models.CharField(max_length=64)
    plan = models.BinaryField()
    plan_sha256 = models.CharField(max_length=64)
    software = models.CharField(
        max_length=160, help_text="The commit of the code, and the versions of what it solves with."
    )
    solve_ms = models.PositiveIntegerField()
    withheld = models.JSONField(default=list, db_default=[])
    archived_in = models.CharField(
        max_length=120,
        default="",
        db_default="",
        help_text="The file of the archive that has the bytes of snapshot and plan.",
    )
    snapshot_archived = models.CharField(max_length=64, default="", db_default="")
    plan_archived = models.CharField(max_length=64, default="", db_default="")

    class Meta:
        ordering = ["-id"]


class MachineClock(models.Model):
    """Of a machine that runs cycles, from one start of it to the next: how far its two clocks are
    `clock_offset`, and by how much the clock of the day has jumped since, if it has."""

    machine = models.CharField(max_length=64, primary_key=True)
    clock_offset = models.DurationField()
    jump = models.DurationField(null=True, blank=True)


class SolverState(models.Model):
    """One row: the fence of the cycle. Whoever leads has raised `leader_term` to its own.

    `withheld_cycles` counts the turns in a row that could not write all that they decided.
    """

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    leader_term = models.BigIntegerField(default=0)
    epoch = models.BigIntegerField(default=1)
    withheld_cycles = models.PositiveIntegerField(default=0, db_default=0)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(id=1), name="solver_state_single"),
        ]
