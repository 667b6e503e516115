"""Organisations, roles, service classes and quotas. No hardware, no money."""

import uuid

from django.db import models
from django.db.models import F, Q

from tenants.models.people import User


class Tenant(models.Model):
    """The organisation that owns data and pays."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    slug = models.SlugField(max_length=40, unique=True)
    name = models.CharField(max_length=120)
    is_open = models.BooleanField(default=True)
    bookings_counted = models.BigIntegerField(default=0, help_text="The highest number of a booking so far.")

    def __str__(self) -> str:
        return self.name


class KnownPerson(models.Model):
    """A person whose name a tenant may see: a present or former member, or an operator who acted
    there. Only triggers add rows. In a web request, `User` shows the known people of the tenant.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    disabled = models.DateTimeField(
        null=True, blank=True, help_text="Since when the tenant's admins keep the person out."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "user"], name="known_person_once"),
        ]


class Lab(models.Model):
    """A group of projects of a tenant. An archived lab has no projects."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    slug = models.SlugField(max_length=40)
    name = models.CharField(max_length=120)
    is_open = models.BooleanField(default=True)

    class Meta:
        ordering = ["name", "id"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "slug"], name="lab_slug_in_tenant"),
            models.UniqueConstraint(fields=["tenant", "id"], name="lab_id_in_tenant"),
        ]

    def __str__(self) -> str:
        return self.name


class Project(models.Model):
    """A team of a tenant. It books GPUs and pays from its budget."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    slug = models.SlugField(max_length=40)
    name = models.CharField(max_length=120)
    is_open = models.BooleanField(default=True)
    lab = models.ForeignKey(Lab, on_delete=models.PROTECT, null=True, blank=True, db_constraint=False)
    labels = models.JSONField(
        default=dict,
        db_default=models.Value({}, output_field=models.JSONField()),
        blank=True,
        help_text="Key-value pairs, at most 32; its charges have them, too.",
    )
    external_ref = models.CharField(
        max_length=500, blank=True, default="", db_default="", help_text="URL or key of a ticket."
    )

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(external_ref__regex=r"^\S*$"), name="project_reference_sane"),
            models.UniqueConstraint(fields=["tenant", "slug"], name="project_slug_in_tenant"),
            models.UniqueConstraint(fields=["tenant", "id"], name="project_id_in_tenant"),
        ]

    def __str__(self) -> str:
        return self.name


class Role(models.TextChoices):
    """The role of a membership. Only a tenant admin has no project."""

    VIEWER = "viewer", "Viewer"
    RESEARCHER = "researcher", "Researcher"
    LEAD = "lead", "Project lead"
    TENANT_ADMIN = "tenant_admin", "Tenant admin"


class Membership(models.Model):
    """A person's role in a project, or in the whole tenant for a tenant admin."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, null=True, blank=True, db_constraint=False)
    user = models.ForeignKey(User, on_delete=models.PROTECT)
    role = models.CharField(max_length=16, choices=Role.choices)
    is_from_groups = models.BooleanField(
        db_default=False,
        default=False,
        help_text="Follows the person's groups at the tenant's provider, at each sign-in.",
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "project", "user"],
                name="membership_once",
                nulls_distinct=False,
            ),
            models.CheckConstraint(
                condition=Q(role="tenant_admin", project=None)
                | (Q(role__in=["viewer", "researcher", "lead"]) & Q(project__isnull=False)),
                name="membership_role_fits",
            ),
        ]


class Invitation(models.Model):
    """An invitation to a role. The invitee is no member until they accept."""

    class State(models.TextChoices):
        OPEN = "open", "No answer yet"
        ACCEPTED = "accepted", "Accepted"
        DECLINED = "declined", "Declined"
        REVOKED = "revoked", "Revoked"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, null=True, blank=True, db_constraint=False)
    role = models.CharField(max_length=16, choices=Role.choices)
    invitee = models.CharField(
        max_length=254,
        help_text="A sign-in name or an e-mail address, as typed, in small letters.",
    )
    state = models.CharField(max_length=8, choices=State.choices, default=State.OPEN)
    made_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    made_with = models.ForeignKey(
        "ApiToken",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        db_constraint=False,
        related_name="+",
        help_text="The token that made it, with which it ends; null: a browser.",
    )
    created = models.DateTimeField()
    expires = models.DateTimeField()
    decided = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "project", "invitee"],
                name="invitation_open_once",
                condition=Q(state="open"),
                nulls_distinct=False,
            ),
            models.CheckConstraint(
                condition=Q(role="tenant_admin", project=None)
                | (Q(role__in=["viewer", "researcher", "lead"]) & Q(project__isnull=False)),
                name="invitation_role_fits",
            ),
            models.CheckConstraint(
                condition=Q(state="open", decided=None)
                | (Q(state__in=["accepted", "declined", "revoked"]) & Q(decided__isnull=False)),
                name="invitation_decided_once",
            ),
        ]
        indexes = [
            models.Index(fields=["invitee"], name="invitation_waiting", condition=Q(state="open")),
        ]


class GpuClass(models.Model):
    """A class of GPUs, by which they are requested, priced and limited; or of host cores for work
    without a GPU, which are in all the same but their names."""

    class Kind(models.TextChoices):
        GPU = "gpu", "GPUs"
        HOST = "host", "Host cores"

    slug = models.SlugField(primary_key=True, max_length=40)
    label = models.CharField(max_length=80)
    order = models.PositiveSmallIntegerField(default=0)
    kind = models.CharField(
        max_length=4,
        choices=Kind.choices,
        default=Kind.GPU,
        db_default=Kind.GPU,
        help_text="What one unit of it is: a GPU, or a core of a host.",
    )

    class Meta:
        ordering = ["order", "slug"]

    def __str__(self) -> str:
        return self.label

    @property
    def noun(self) -> str:
        """What one unit of it is called."""
        return "core" if self.kind == GpuClass.Kind.HOST else "GPU"


class Tier(models.Model):
    """A service class: priority, pauses, and limits of a booking's length."""

    class PauseMethod(models.TextChoices):
        STOP = "stop", "Ended by the node"
        SIGNAL = "signal", "Ends itself, killed at the deadline"
        SUSPEND = "suspend", "Suspended on its node"

    class IdleAction(models.TextChoices):
        TELL = "tell", "The owner is notified"
        PAUSE = "pause", "Paused if others wait"
        END = "end", "Ended if others wait"

    slug = models.SlugField(primary_key=True, max_length=40)
    name = models.CharField(max_length=80)
    description = models.CharField(max_length=200, blank=True)

    # Priority and limits
    priority = models.IntegerField(help_text="Higher goes first.")
    counts_against_guarantee = models.BooleanField(db_default=True, default=True)
    max_duration_seconds = models.PositiveIntegerField(default=7 * 86_400)
    advance_seconds = models.PositiveIntegerField(
        default=28 * 86_400, help_text="How far ahead a booking may start."
    )
    min_duration_seconds = models.PositiveIntegerField(db_default=0, default=0)
    lead_seconds = models.PositiveIntegerField(
        db_default=0, default=0, help_text="How long before its start a booking is made at least."
    )
    max_open = models.PositiveIntegerField(
        null=True, blank=True, help_text="Open bookings of a person at most; null is no limit."
    )
    max_open_gpus = models.PositiveIntegerField(
        null=True, blank=True, help_text="GPUs of a person's open bookings; null is no limit."
    )

    # Pauses
    pausable = models.BooleanField(default=False)
    grace_seconds = models.PositiveIntegerField(
        default=600, help_text="Time between the notice and the pause."
    )
    protected_seconds = models.PositiveIntegerField(default=0, help_text="Time after a start without pauses.")
    pause_method = models.CharField(
        max_length=8, choices=PauseMethod.choices, db_default="stop", default=PauseMethod.STOP
    )
    max_pauses = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="Pauses of one booking at most; null is no limit."
    )
    credit_cap_seconds = models.PositiveIntegerField(
        db_default=4 * 3600, default=4 * 3600, help_text="Most lost work that a pause credits."
    )
    more_times = models.PositiveSmallIntegerField(
        db_default=0, default=0, help_text="How often an owner may ask for more time."
    )
    more_time_seconds = models.PositiveIntegerField(
        db_default=0, default=0, help_text="How much more time each such request gives."
    )

    # Use
    notice_seconds = models.PositiveIntegerField(
        db_default=0, default=0, help_text="GPUs that are given up so shortly before are late."
    )
    late_share = models.PositiveSmallIntegerField(
        db_default=0, default=0, help_text="Percent of the price of time that is given up late."
    )
    no_show_after_seconds = models.PositiveIntegerField(
        null=True, blank=True, help_text="Unused bookings end then; null: as the policy says."
    )
    no_show_share = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="Percent of the rest of a no-show; null: as the policy."
    )
    idle_action = models.CharField(
        max_length=8,
        choices=IdleAction.choices,
        db_default="tell",
        default=IdleAction.TELL,
        help_text="What happens to a booking with idle GPUs if others wait for them.",
    )

    # Failures
    replace_on_lost = models.BooleanField(
        db_default=False,
        default=False,
        help_text="Restarted elsewhere if its node is unreachable; the node ends its own run.",
    )

    class Meta:
        ordering = ["-priority", "slug"]
        constraints = [
            models.CheckConstraint(
                condition=Q(max_duration_seconds__gte=60, max_duration_seconds__lte=90 * 86_400),
                name="tier_duration_sane",
            ),
            models.CheckConstraint(
                condition=Q(min_duration_seconds__lte=F("max_duration_seconds"))
                & Q(lead_seconds__lte=F("advance_seconds")),
                name="tier_limits_in_order",
            ),
            models.CheckConstraint(
                condition=Q(counts_against_guarantee=True) | Q(pausable=True),
                name="tier_never_paused_counts",
            ),
            models.CheckConstraint(
                condition=Q(pause_method__in=["stop", "signal", "suspend"]),
                name="tier_pause_method",
            ),
            models.CheckConstraint(
                condition=Q(late_share__lte=100) & (Q(no_show_share=None) | Q(no_show_share__lte=100)),
                name="tier_shares",
            ),
            models.CheckConstraint(
                condition=Q(idle_action__in=["tell", "end"]) | Q(idle_action="pause", pausable=True),
                name="tier_idle_action",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Quota(models.Model):
    """Units of a class that a project, or a tenant if there is no project, may use at any instant,
    and GPU hours that it may use in a period."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, null=True, blank=True, db_constraint=False)
    gpu_class = models.ForeignKey(GpuClass, on_delete=models.PROTECT)

    # At any instant
    guaranteed_units = models.BigIntegerField(default=0)
    borrow_limit_units = models.BigIntegerField(
        null=True, blank=True, help_text="Most units above the guarantee; null is no limit."
    )
    lend_limit_units = models.BigIntegerField(
        null=True, blank=True, help_text="Most idle units that others may borrow; null is all."
    )
    weight = models.PositiveSmallIntegerField(
        db_default=1, default=1, help_text="Share of the units that are idle above guarantees."
    )

    # In a period
    cap_gpu_hours = models.PositiveIntegerField(null=True, blank=True)
    cap_days = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="Any such number of days in a row; null is a UTC month."
    )
    cap_carries = models.BooleanField(
        db_default=False, default=False, help_text="Adds the unused hours of the month before."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "project", "gpu_class"], name="quota_once", nulls_distinct=False
            ),
            models.CheckConstraint(
                condition=Q(guaranteed_units__gte=0)
                & (Q(borrow_limit_units=None) | Q(borrow_limit_units__gte=0))
                & (Q(lend_limit_units=None) | Q(lend_limit_units__gte=0)),
                name="quota_never_negative",
            ),
            models.CheckConstraint(condition=Q(weight__lte=1000), name="quota_weight_sane"),
            models.CheckConstraint(
                condition=Q(cap_gpu_hours=None, cap_days=None, cap_carries=False)
                | Q(cap_gpu_hours__gt=0, cap_days=None)
                | Q(cap_gpu_hours__gt=0, cap_days__gte=1, cap_days__lte=31, cap_carries=False),
                name="quota_cap_fits",
            ),
        ]

    @property
    def limit_units(self) -> int | None:
        """The most units at any instant: guarantee + borrow limit; None without a limit."""
        if self.borrow_limit_units is None:
            return None
        return self.guaranteed_units + self.borrow_limit_units


class IdempotencyKey(models.Model):
    """An idempotency key that a principal sent, with the stored answer."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    user = models.ForeignKey(User, on_delete=models.PROTECT)
    key = models.CharField(max_length=255)
    method = models.CharField(max_length=8)
    path = models.CharField(max_length=400)
    body_sha256 = models.BinaryField(max_length=32)
    status = models.PositiveSmallIntegerField()
    answer = models.JSONField()
    is_final = models.BooleanField(help_text="False while the answer may still be replaced.")
    created = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "user", "key"], name="idempotency_once"),
            models.CheckConstraint(condition=~Q(key=""), name="idempotency_key_not_empty"),
        ]
