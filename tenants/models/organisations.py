"""Who exists, and what they may ask for. No hardware, no money."""

import uuid
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import AbstractUser
from django.db import models
from django.db.models import Q


@dataclass(frozen=True, slots=True)
class Proof:
    """That a person gave the right password: whose, and the hash that only it makes."""

    username: str
    presented: str = field(repr=False)


class User(AbstractUser):
    """A person who signs in. Platform operators are `is_staff`; all else is membership.

    The password lies in a table of its own, which web processes can't read: they check and change
    it by `tenants.services.passwords`. `set_password`, `check_password` and `save` work for the
    owner, the system and operators.
    """

    class Mails(models.TextChoices):
        """Which mails a person wants."""

        ALL = "all", "Everything about my bookings"
        URGENT = "urgent", "Only what can't wait: a pause that counts down"
        NONE = "none", "Nothing"

    time_zone = models.CharField(max_length=64, default="Europe/Berlin")
    mails = models.CharField(
        max_length=8, choices=Mails.choices, default=Mails.ALL, db_default=Mails.ALL
    )

    class Meta(AbstractUser.Meta):
        constraints = [
            models.CheckConstraint(
                condition=Q(mails__in=["all", "urgent", "none"]), name="user_mails"
            ),
        ]

    # Sign-ins stand in the log; nothing reads the date of the last.
    last_login = None

    proof: Proof | None = None
    """How this person has just signed in; none when a session was found."""

    credential: bytes = b""
    """By what a request is this person's: the hash of its session's key or of its token. The
    database answers what belongs to no tenant to nothing else (`tenants.access.account_of`)."""

    _encoded: str | None = None

    @property
    def password(self) -> str:
        """The password's hash, as set here or as stored; "!" when there is none."""
        if self._encoded is not None:
            return self._encoded
        stored = Password.objects.filter(user_id=self.pk).first()
        return stored.encoded if stored else "!"

    @password.setter
    def password(self, encoded: str) -> None:
        self._encoded = encoded

    def save(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 (Django's signature)
        """Writes the person, and the password if one was set here."""
        super().save(*args, **kwargs)
        if self._encoded is not None:
            Password.objects.update_or_create(user=self, defaults={"encoded": self._encoded})
            self._encoded = None

    def get_session_auth_hash(self) -> str:
        """The same for all: the database ends a person's sessions with their password."""
        return "ends with the password"


class Password(models.Model):
    """A person's password as Argon2 hash. No web process reads or writes it."""

    user = models.OneToOneField(User, on_delete=models.CASCADE, primary_key=True, related_name="+")
    encoded = models.CharField(max_length=128)


class Session(models.Model):
    """A signed-in browser.

    The key in its cookie is stored as SHA-256 only, so that nobody who reads this table or a
    backup can take over a session.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    digest = models.BinaryField(max_length=32, unique=True)
    user = models.ForeignKey(User, on_delete=models.CASCADE, null=True, blank=True)
    data = models.TextField(help_text="Signed JSON, as Django's sessions encode it.")
    created = models.DateTimeField()
    expires = models.DateTimeField(db_index=True)
    last_seen = models.DateTimeField(help_text="Written at most once a minute.")
    device = models.CharField(max_length=80, blank=True, help_text="As in Firefox on Linux.")
    address = models.GenericIPAddressField(null=True, blank=True)


class Tenant(models.Model):
    """The organisation that owns data and pays. The root of every wall."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    slug = models.SlugField(max_length=40, unique=True)
    name = models.CharField(max_length=120)
    is_open = models.BooleanField(default=True)
    bookings_counted = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return self.name


class KnownPerson(models.Model):
    """Somebody whose name a tenant's records show: a member, now or once, or an operator who has
    acted there. Written by triggers alone; in a web request `User` has these people of its tenant.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "user"], name="known_person_once"),
        ]


class Project(models.Model):
    """A team of a tenant: it books, and its budget pays."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    slug = models.SlugField(max_length=40)
    name = models.CharField(max_length=120)
    is_open = models.BooleanField(default=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "slug"], name="project_slug_in_tenant"),
            models.UniqueConstraint(fields=["tenant", "id"], name="project_id_in_tenant"),
        ]

    def __str__(self) -> str:
        return self.name


class Role(models.TextChoices):
    """What a membership lets a person do. Only a tenant admin's has no project."""

    VIEWER = "viewer", "Viewer"
    RESEARCHER = "researcher", "Researcher"
    LEAD = "lead", "Project lead"
    TENANT_ADMIN = "tenant_admin", "Tenant admin"


class Membership(models.Model):
    """One person's role, in one project or (tenant admin) in the whole tenant."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, null=True, blank=True, db_constraint=False
    )
    user = models.ForeignKey(User, on_delete=models.PROTECT)
    role = models.CharField(max_length=16, choices=Role.choices)

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
    """What somebody is asked to become. They are no member, and unknown, until they accept."""

    class State(models.TextChoices):
        OPEN = "open", "No answer yet"
        ACCEPTED = "accepted", "Accepted"
        DECLINED = "declined", "Declined"
        REVOKED = "revoked", "Revoked"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, null=True, blank=True, db_constraint=False
    )
    role = models.CharField(max_length=16, choices=Role.choices)
    invitee = models.CharField(
        max_length=254,
        help_text="A sign-in name or an e-mail address, as typed, in small letters.",
    )
    state = models.CharField(max_length=8, choices=State.choices, default=State.OPEN)
    made_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
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
    """The name under which GPUs are asked for, priced and put under quota."""

    slug = models.SlugField(primary_key=True, max_length=40)
    label = models.CharField(max_length=80)
    order = models.PositiveSmallIntegerField(default=0)

    class Meta:
        ordering = ["order", "slug"]

    def __str__(self) -> str:
        return self.label


class Tier(models.Model):
    """A service class: who goes first, who may be paused, and how long one may book.

    Who is paused is told `grace_seconds` before, may ask `more_times` for `more_time_seconds` more,
    is paused by `pause_method` and at most `max_pauses` times (null: as often as needed), and does
    not pay for the work of up to `credit_cap_seconds` that it has to do again.
    """

    class PauseMethod(models.TextChoices):
        STOP = "stop", "Ended by the node"
        SIGNAL = "signal", "Ends itself, killed at the deadline"
        SUSPEND = "suspend", "Frozen on its node"

    slug = models.SlugField(primary_key=True, max_length=40)
    name = models.CharField(max_length=80)
    priority = models.IntegerField(help_text="Higher goes first.")
    pausable = models.BooleanField(default=False)
    grace_seconds = models.PositiveIntegerField(default=600)
    protected_seconds = models.PositiveIntegerField(default=0)
    pause_method = models.CharField(
        max_length=8, choices=PauseMethod.choices, db_default="stop", default=PauseMethod.STOP
    )
    max_pauses = models.PositiveSmallIntegerField(null=True, blank=True)
    credit_cap_seconds = models.PositiveIntegerField(db_default=4 * 3600, default=4 * 3600)
    more_times = models.PositiveSmallIntegerField(db_default=0, default=0)
    more_time_seconds = models.PositiveIntegerField(db_default=0, default=0)
    max_duration_seconds = models.PositiveIntegerField(default=7 * 86_400)
    advance_seconds = models.PositiveIntegerField(default=28 * 86_400)
    counts_against_guarantee = models.BooleanField(db_default=True, default=True)
    replace_on_lost = models.BooleanField(
        db_default=False,
        default=False,
        help_text="Begun anew elsewhere when its node falls silent; the node ends it itself.",
    )
    description = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering = ["-priority", "slug"]
        constraints = [
            models.CheckConstraint(
                condition=Q(max_duration_seconds__gte=60, max_duration_seconds__lte=90 * 86_400),
                name="tier_duration_sane",
            ),
            models.CheckConstraint(
                condition=Q(counts_against_guarantee=True) | Q(pausable=True),
                name="tier_never_paused_counts",
            ),
            models.CheckConstraint(
                condition=Q(pause_method__in=["stop", "signal", "suspend"]),
                name="tier_pause_method",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Quota(models.Model):
    """Units of a class that a tenant (no project) or a project may use at any instant.

    `borrow_limit_units` is the most above the guarantee (null: what there is), `lend_limit_units`
    the most of an idle guarantee that others may use (null: all). What is idle above guarantees is
    split by `weight`. `cap_gpu_hours` holds in any `cap_days` days in a row or, without them, in
    each month of UTC, where `cap_carries` adds what the month before left.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, null=True, blank=True, db_constraint=False
    )
    gpu_class = models.ForeignKey(GpuClass, on_delete=models.PROTECT)
    guaranteed_units = models.BigIntegerField(default=0)
    borrow_limit_units = models.BigIntegerField(null=True, blank=True)
    lend_limit_units = models.BigIntegerField(null=True, blank=True)
    weight = models.PositiveSmallIntegerField(db_default=1, default=1)
    cap_gpu_hours = models.PositiveIntegerField(null=True, blank=True)
    cap_days = models.PositiveSmallIntegerField(null=True, blank=True)
    cap_carries = models.BooleanField(db_default=False, default=False)

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
        """The most at any instant: guaranteed + borrow limit; None when nothing limits it."""
        if self.borrow_limit_units is None:
            return None
        return self.guaranteed_units + self.borrow_limit_units


class TokenManager(models.Manager["ApiToken"]):
    """Tokens without their hashes, which no web process may read."""

    def get_queryset(self) -> models.QuerySet["ApiToken"]:
        """All columns that a web process has a right to."""
        return super().get_queryset().defer("digest")


class ApiToken(models.Model):
    """A key for programs. Only its SHA-256 is stored; the clear text is shown once."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    user = models.ForeignKey(User, on_delete=models.PROTECT)
    name = models.CharField(max_length=80)
    digest = models.BinaryField(max_length=32, unique=True)
    prefix = models.CharField(max_length=16)
    created = models.DateTimeField()
    expires = models.DateTimeField()
    last_used = models.DateTimeField(null=True, blank=True)
    revoked = models.DateTimeField(null=True, blank=True)
    made_with = models.ForeignKey(
        "self",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        db_constraint=False,
        help_text="The token that made this one; it ends no later than that.",
    )

    objects = TokenManager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "id"], name="apitoken_id_in_tenant"),
        ]


class IdempotencyKey(models.Model):
    """A key that one principal has sent, and the answer that its work gave."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT)
    user = models.ForeignKey(User, on_delete=models.PROTECT)
    key = models.CharField(max_length=255)
    method = models.CharField(max_length=8)
    path = models.CharField(max_length=400)
    body_sha256 = models.BinaryField(max_length=32)
    status = models.PositiveSmallIntegerField()
    answer = models.JSONField()
    is_final = models.BooleanField(help_text="False while a better answer is awaited.")
    created = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "user", "key"], name="idempotency_once"),
            models.CheckConstraint(condition=~Q(key=""), name="idempotency_key_not_empty"),
        ]
