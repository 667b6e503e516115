import datetime
import uuid

import django.contrib.auth.models
import django.contrib.auth.validators
import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.text
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import tenants.models.tokens
from tenants.platform.tables import CreateTables


class Migration(migrations.Migration):
    initial = True

    dependencies = [("auth", "0012_alter_user_first_name_max_length")]

    operations = [
        CreateTables(
            migrations.CreateModel(
                name="User",
                fields=[
                    ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                    (
                        "is_superuser",
                        models.BooleanField(
                            default=False,
                            help_text="Designates that this user has all permissions without explicitly assigning them.",
                            verbose_name="superuser status",
                        ),
                    ),
                    (
                        "username",
                        models.CharField(
                            error_messages={"unique": "A user with that username already exists."},
                            help_text="Required. 150 characters or fewer. Letters, digits and @/./+/-/_ only.",
                            max_length=150,
                            unique=True,
                            validators=[django.contrib.auth.validators.UnicodeUsernameValidator()],
                            verbose_name="username",
                        ),
                    ),
                    ("first_name", models.CharField(blank=True, max_length=150, verbose_name="first name")),
                    ("last_name", models.CharField(blank=True, max_length=150, verbose_name="last name")),
                    ("email", models.EmailField(blank=True, max_length=254, verbose_name="email address")),
                    (
                        "is_staff",
                        models.BooleanField(default=False, help_text="Designates whether the user can log into this admin site.", verbose_name="staff status"),
                    ),
                    (
                        "is_active",
                        models.BooleanField(
                            default=True,
                            help_text="Designates whether this user should be treated as active. Unselect this instead of deleting accounts.",
                            verbose_name="active",
                        ),
                    ),
                    ("date_joined", models.DateTimeField(default=django.utils.timezone.now, verbose_name="date joined")),
                    ("time_zone", models.CharField(default="Europe/Berlin", max_length=64)),
                    (
                        "mails",
                        models.CharField(
                            choices=[
                                ("all", "Everything about my bookings"),
                                ("urgent", "Only what can't wait: a pause that counts down"),
                                ("none", "Nothing"),
                            ],
                            db_default="all",
                            default="all",
                            max_length=8,
                        ),
                    ),
                    (
                        "groups",
                        models.ManyToManyField(
                            blank=True,
                            help_text="The groups this user belongs to. A user will get all permissions granted to each of their groups.",
                            related_name="user_set",
                            related_query_name="user",
                            to="auth.group",
                            verbose_name="groups",
                        ),
                    ),
                    (
                        "user_permissions",
                        models.ManyToManyField(
                            blank=True,
                            help_text="Specific permissions for this user.",
                            related_name="user_set",
                            related_query_name="user",
                            to="auth.permission",
                            verbose_name="user permissions",
                        ),
                    ),
                ],
                options={
                    "verbose_name": "user",
                    "verbose_name_plural": "users",
                    "abstract": False,
                    "constraints": [models.CheckConstraint(condition=models.Q(("mails__in", ["all", "urgent", "none"])), name="user_mails")],
                },
                managers=[
                    ("objects", django.contrib.auth.models.UserManager()),
                ],
            ),
            migrations.CreateModel(
                name="Password",
                fields=[
                    (
                        "user",
                        models.OneToOneField(
                            on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name="+", serialize=False, to=settings.AUTH_USER_MODEL
                        ),
                    ),
                    ("encoded", models.CharField(max_length=128)),
                ],
            ),
            migrations.CreateModel(
                name="SecondFactor",
                fields=[
                    (
                        "user",
                        models.OneToOneField(
                            on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name="+", serialize=False, to=settings.AUTH_USER_MODEL
                        ),
                    ),
                    ("salt", models.BinaryField(max_length=32)),
                    ("created", models.DateTimeField()),
                    ("confirmed", models.DateTimeField(blank=True, help_text="Since when sign-in asks for it.", null=True)),
                    ("last_step", models.BigIntegerField(default=0, help_text="The 30 seconds of the last accepted code, which works once.")),
                    (
                        "recovery",
                        django.contrib.postgres.fields.ArrayField(
                            base_field=models.BinaryField(max_length=32), default=list, help_text="SHA-256 of unused codes.", size=None
                        ),
                    ),
                ],
            ),
            migrations.CreateModel(
                name="Announcement",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("text", models.CharField(max_length=400)),
                    ("level", models.CharField(choices=[("info", "Note"), ("wait", "Maintenance"), ("risk", "Warning")], max_length=5)),
                    ("starts", models.DateTimeField()),
                    ("until", models.DateTimeField()),
                    (
                        "tenants",
                        django.contrib.postgres.fields.ArrayField(
                            base_field=models.UUIDField(), default=list, help_text="Who sees it; empty: everybody.", size=None
                        ),
                    ),
                    ("created", models.DateTimeField()),
                    ("created_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    ("withdrawn_at", models.DateTimeField(blank=True, null=True)),
                ],
                options={
                    "ordering": ["-starts", "id"],
                    "constraints": [
                        models.CheckConstraint(condition=models.Q(("until__gt", models.F("starts"))), name="announcement_window_sane"),
                        models.CheckConstraint(condition=models.Q(("text", ""), _negated=True), name="announcement_has_text"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="AnnouncementDismissal",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("announcement", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="tenants.announcement")),
                    ("user", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL)),
                    ("at", models.DateTimeField()),
                ],
                options={
                    "constraints": [models.UniqueConstraint(fields=("user", "announcement"), name="announcement_dismissed_once")],
                },
            ),
            migrations.CreateModel(
                name="Tenant",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("slug", models.SlugField(max_length=40, unique=True)),
                    ("name", models.CharField(max_length=120)),
                    ("is_open", models.BooleanField(default=True)),
                    ("bookings_counted", models.BigIntegerField(default=0, help_text="The highest number of a booking so far.")),
                ],
            ),
            migrations.CreateModel(
                name="Session",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("digest", models.BinaryField(max_length=32, unique=True)),
                    ("user", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL)),
                    (
                        "pending",
                        models.ForeignKey(
                            blank=True,
                            help_text="Who gave the password, and has to give the second factor.",
                            null=True,
                            on_delete=django.db.models.deletion.CASCADE,
                            related_name="+",
                            to=settings.AUTH_USER_MODEL,
                        ),
                    ),
                    ("verified", models.DateTimeField(blank=True, help_text="When the second factor was last given.", null=True)),
                    (
                        "only_tenant",
                        models.ForeignKey(
                            blank=True,
                            help_text="The tenant whose provider signed the person in; no other one is open to it.",
                            null=True,
                            on_delete=django.db.models.deletion.CASCADE,
                            related_name="+",
                            to="tenants.tenant",
                        ),
                    ),
                    ("data", models.TextField(help_text="Signed JSON, as Django's sessions encode it.")),
                    ("created", models.DateTimeField()),
                    ("expires", models.DateTimeField(db_index=True)),
                    ("last_seen", models.DateTimeField(help_text="Written at most once a minute.")),
                    ("device", models.CharField(blank=True, help_text="As in Firefox on Linux.", max_length=80)),
                    ("address", models.GenericIPAddressField(blank=True, null=True)),
                ],
            ),
            migrations.CreateModel(
                name="KnownPerson",
                fields=[
                    ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="tenants.tenant")),
                    ("user", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL)),
                    ("disabled", models.DateTimeField(blank=True, help_text="Since when the tenant's admins keep the person out.", null=True)),
                ],
                options={
                    "constraints": [models.UniqueConstraint(fields=("tenant", "user"), name="known_person_once")],
                },
            ),
            migrations.CreateModel(
                name="Lab",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("slug", models.SlugField(max_length=40)),
                    ("name", models.CharField(max_length=120)),
                    ("is_open", models.BooleanField(default=True)),
                ],
                options={
                    "ordering": ["name", "id"],
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "slug"), name="lab_slug_in_tenant"),
                        models.UniqueConstraint(fields=("tenant", "id"), name="lab_id_in_tenant"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="Project",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("slug", models.SlugField(max_length=40)),
                    ("name", models.CharField(max_length=120)),
                    ("is_open", models.BooleanField(default=True)),
                    ("lab", models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.lab")),
                    (
                        "labels",
                        models.JSONField(
                            blank=True,
                            db_default=models.Value({}, output_field=models.JSONField()),
                            default=dict,
                            help_text="Key-value pairs, at most 32; its charges have them, too.",
                        ),
                    ),
                    ("external_ref", models.CharField(blank=True, db_default="", default="", help_text="URL or key of a ticket.", max_length=500)),
                ],
                options={
                    "constraints": [
                        models.CheckConstraint(condition=models.Q(("external_ref__regex", "^\\S*$")), name="project_reference_sane"),
                        models.UniqueConstraint(fields=("tenant", "slug"), name="project_slug_in_tenant"),
                        models.UniqueConstraint(fields=("tenant", "id"), name="project_id_in_tenant"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="Membership",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    (
                        "project",
                        models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.project"),
                    ),
                    ("user", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
                    (
                        "role",
                        models.CharField(
                            choices=[("viewer", "Viewer"), ("researcher", "Researcher"), ("lead", "Project lead"), ("tenant_admin", "Tenant admin")],
                            max_length=16,
                        ),
                    ),
                    (
                        "is_from_groups",
                        models.BooleanField(
                            db_default=False, default=False, help_text="Follows the person's groups at the tenant's provider, at each sign-in."
                        ),
                    ),
                ],
                options={
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "project", "user"), name="membership_once", nulls_distinct=False),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("project", None), ("role", "tenant_admin")),
                                models.Q(("role__in", ["viewer", "researcher", "lead"]), ("project__isnull", False)),
                                _connector="OR",
                            ),
                            name="membership_role_fits",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="Invitation",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    (
                        "project",
                        models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.project"),
                    ),
                    (
                        "role",
                        models.CharField(
                            choices=[("viewer", "Viewer"), ("researcher", "Researcher"), ("lead", "Project lead"), ("tenant_admin", "Tenant admin")],
                            max_length=16,
                        ),
                    ),
                    ("invitee", models.CharField(help_text="A sign-in name or an e-mail address, as typed, in small letters.", max_length=254)),
                    (
                        "state",
                        models.CharField(
                            choices=[("open", "No answer yet"), ("accepted", "Accepted"), ("declined", "Declined"), ("revoked", "Revoked")],
                            default="open",
                            max_length=8,
                        ),
                    ),
                    ("made_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    ("created", models.DateTimeField()),
                    ("expires", models.DateTimeField()),
                    ("decided", models.DateTimeField(blank=True, null=True)),
                    (
                        "made_with",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            help_text="The token that made it, with which it ends; null: a browser.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to="tenants.apitoken",
                        ),
                    ),
                ],
                options={
                    "indexes": [models.Index(condition=models.Q(("state", "open")), fields=["invitee"], name="invitation_waiting")],
                    "constraints": [
                        models.UniqueConstraint(
                            condition=models.Q(("state", "open")), fields=("tenant", "project", "invitee"), name="invitation_open_once", nulls_distinct=False
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("project", None), ("role", "tenant_admin")),
                                models.Q(("role__in", ["viewer", "researcher", "lead"]), ("project__isnull", False)),
                                _connector="OR",
                            ),
                            name="invitation_role_fits",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("decided", None), ("state", "open")),
                                models.Q(("state__in", ["accepted", "declined", "revoked"]), ("decided__isnull", False)),
                                _connector="OR",
                            ),
                            name="invitation_decided_once",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="GpuClass",
                fields=[
                    ("slug", models.SlugField(max_length=40, primary_key=True, serialize=False)),
                    ("label", models.CharField(max_length=80)),
                    ("order", models.PositiveSmallIntegerField(default=0)),
                    (
                        "kind",
                        models.CharField(
                            choices=[("gpu", "GPUs"), ("host", "Host cores")],
                            db_default="gpu",
                            default="gpu",
                            help_text="What one unit of it is: a GPU, or a core of a host.",
                            max_length=4,
                        ),
                    ),
                ],
                options={
                    "ordering": ["order", "slug"],
                },
            ),
            migrations.CreateModel(
                name="Tier",
                fields=[
                    ("slug", models.SlugField(max_length=40, primary_key=True, serialize=False)),
                    ("name", models.CharField(max_length=80)),
                    ("description", models.CharField(blank=True, max_length=200)),
                    ("priority", models.IntegerField(help_text="Higher goes first.")),
                    ("counts_against_guarantee", models.BooleanField(db_default=True, default=True)),
                    ("max_duration_seconds", models.PositiveIntegerField(default=604800)),
                    ("advance_seconds", models.PositiveIntegerField(default=2419200, help_text="How far ahead a booking may start.")),
                    ("min_duration_seconds", models.PositiveIntegerField(db_default=0, default=0)),
                    ("lead_seconds", models.PositiveIntegerField(db_default=0, default=0, help_text="How long before its start a booking is made at least.")),
                    ("max_open", models.PositiveIntegerField(blank=True, help_text="Open bookings of a person at most; null is no limit.", null=True)),
                    ("max_open_gpus", models.PositiveIntegerField(blank=True, help_text="GPUs of a person's open bookings; null is no limit.", null=True)),
                    ("pausable", models.BooleanField(default=False)),
                    ("grace_seconds", models.PositiveIntegerField(default=600, help_text="Time between the notice and the pause.")),
                    ("protected_seconds", models.PositiveIntegerField(default=0, help_text="Time after a start without pauses.")),
                    (
                        "pause_method",
                        models.CharField(
                            choices=[("stop", "Ended by the node"), ("signal", "Ends itself, killed at the deadline"), ("suspend", "Suspended on its node")],
                            db_default="stop",
                            default="stop",
                            max_length=8,
                        ),
                    ),
                    ("max_pauses", models.PositiveSmallIntegerField(blank=True, help_text="Pauses of one booking at most; null is no limit.", null=True)),
                    ("credit_cap_seconds", models.PositiveIntegerField(db_default=14400, default=14400, help_text="Most lost work that a pause credits.")),
                    ("more_times", models.PositiveSmallIntegerField(db_default=0, default=0, help_text="How often an owner may ask for more time.")),
                    ("more_time_seconds", models.PositiveIntegerField(db_default=0, default=0, help_text="How much more time each such request gives.")),
                    ("notice_seconds", models.PositiveIntegerField(db_default=0, default=0, help_text="GPUs that are given up so shortly before are late.")),
                    ("late_share", models.PositiveSmallIntegerField(db_default=0, default=0, help_text="Percent of the price of time that is given up late.")),
                    (
                        "no_show_after_seconds",
                        models.PositiveIntegerField(blank=True, help_text="Unused bookings end then; null: as the policy says.", null=True),
                    ),
                    (
                        "no_show_share",
                        models.PositiveSmallIntegerField(blank=True, help_text="Percent of the rest of a no-show; null: as the policy.", null=True),
                    ),
                    (
                        "idle_action",
                        models.CharField(
                            choices=[("tell", "The owner is notified"), ("pause", "Paused if others wait"), ("end", "Ended if others wait")],
                            db_default="tell",
                            default="tell",
                            help_text="What happens to a booking with idle GPUs if others wait for them.",
                            max_length=8,
                        ),
                    ),
                    (
                        "replace_on_lost",
                        models.BooleanField(
                            db_default=False, default=False, help_text="Restarted elsewhere if its node is unreachable; the node ends its own run."
                        ),
                    ),
                ],
                options={
                    "ordering": ["-priority", "slug"],
                    "constraints": [
                        models.CheckConstraint(
                            condition=models.Q(("max_duration_seconds__gte", 60), ("max_duration_seconds__lte", 7776000)), name="tier_duration_sane"
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                ("min_duration_seconds__lte", models.F("max_duration_seconds")), ("lead_seconds__lte", models.F("advance_seconds"))
                            ),
                            name="tier_limits_in_order",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(("counts_against_guarantee", True), ("pausable", True), _connector="OR"), name="tier_never_paused_counts"
                        ),
                        models.CheckConstraint(condition=models.Q(("pause_method__in", ["stop", "signal", "suspend"])), name="tier_pause_method"),
                        models.CheckConstraint(
                            condition=models.Q(("late_share__lte", 100), models.Q(("no_show_share", None), ("no_show_share__lte", 100), _connector="OR")),
                            name="tier_shares",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(("idle_action__in", ["tell", "end"]), models.Q(("idle_action", "pause"), ("pausable", True)), _connector="OR"),
                            name="tier_idle_action",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="Quota",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    (
                        "project",
                        models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.project"),
                    ),
                    ("gpu_class", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.gpuclass")),
                    ("guaranteed_units", models.BigIntegerField(default=0)),
                    ("borrow_limit_units", models.BigIntegerField(blank=True, help_text="Most units above the guarantee; null is no limit.", null=True)),
                    ("lend_limit_units", models.BigIntegerField(blank=True, help_text="Most idle units that others may borrow; null is all.", null=True)),
                    ("weight", models.PositiveSmallIntegerField(db_default=1, default=1, help_text="Share of the units that are idle above guarantees.")),
                    ("cap_gpu_hours", models.PositiveIntegerField(blank=True, null=True)),
                    ("cap_days", models.PositiveSmallIntegerField(blank=True, help_text="Any such number of days in a row; null is a UTC month.", null=True)),
                    ("cap_carries", models.BooleanField(db_default=False, default=False, help_text="Adds the unused hours of the month before.")),
                ],
                options={
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "project", "gpu_class"), name="quota_once", nulls_distinct=False),
                        models.CheckConstraint(
                            condition=models.Q(
                                ("guaranteed_units__gte", 0),
                                models.Q(("borrow_limit_units", None), ("borrow_limit_units__gte", 0), _connector="OR"),
                                models.Q(("lend_limit_units", None), ("lend_limit_units__gte", 0), _connector="OR"),
                            ),
                            name="quota_never_negative",
                        ),
                        models.CheckConstraint(condition=models.Q(("weight__lte", 1000)), name="quota_weight_sane"),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("cap_carries", False), ("cap_days", None), ("cap_gpu_hours", None)),
                                models.Q(("cap_days", None), ("cap_gpu_hours__gt", 0)),
                                models.Q(("cap_carries", False), ("cap_days__gte", 1), ("cap_days__lte", 31), ("cap_gpu_hours__gt", 0)),
                                _connector="OR",
                            ),
                            name="quota_cap_fits",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="IdempotencyKey",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("user", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
                    ("key", models.CharField(max_length=255)),
                    ("method", models.CharField(max_length=8)),
                    ("path", models.CharField(max_length=400)),
                    ("body_sha256", models.BinaryField(max_length=32)),
                    ("status", models.PositiveSmallIntegerField()),
                    ("answer", models.JSONField()),
                    ("is_final", models.BooleanField(help_text="False while the answer may still be replaced.")),
                    ("created", models.DateTimeField()),
                ],
                options={
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "user", "key"), name="idempotency_once"),
                        models.CheckConstraint(condition=models.Q(("key", ""), _negated=True), name="idempotency_key_not_empty"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="ChatChannel",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    (
                        "user",
                        models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL),
                    ),
                    (
                        "project",
                        models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.project"),
                    ),
                    ("name", models.CharField(max_length=80)),
                    ("service", models.CharField(help_text="Scheme of its address.", max_length=16)),
                    ("sealed", models.TextField(help_text="The address, encrypted; it has secrets of the service.")),
                    (
                        "events",
                        django.contrib.postgres.fields.ArrayField(
                            base_field=models.CharField(max_length=20), default=list, help_text="Types, of a project's channel.", size=None
                        ),
                    ),
                    ("created", models.DateTimeField()),
                    ("created_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    ("last_sent", models.DateTimeField(blank=True, null=True)),
                    ("last_error", models.CharField(blank=True, help_text="Of the newest attempt.", max_length=200)),
                    (
                        "made_with",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            help_text="The token that set it, with which it ends; null: a browser.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to="tenants.apitoken",
                        ),
                    ),
                ],
                options={
                    "ordering": ["created", "id"],
                    "indexes": [
                        models.Index(fields=["tenant", "user"], name="chat_of_user"),
                        models.Index(fields=["tenant", "project"], name="chat_of_project"),
                    ],
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "id"), name="chat_channel_id_in_tenant"),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("project", None), ("user__isnull", False)), models.Q(("project__isnull", False), ("user", None)), _connector="OR"
                            ),
                            name="chat_channel_of_one",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="ChatMessage",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    (
                        "channel",
                        models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name="messages", to="tenants.chatchannel"),
                    ),
                    ("message", models.BigIntegerField(blank=True, help_text="The outbox message; null for a test.", null=True)),
                    ("kind", models.CharField(max_length=60)),
                    ("title", models.CharField(max_length=160)),
                    ("text", models.CharField(blank=True, max_length=400)),
                    ("path", models.CharField(blank=True, max_length=200)),
                    ("created", models.DateTimeField()),
                    ("state", models.CharField(choices=[("pending", "Pending"), ("sent", "Sent"), ("failed", "Failed")], default="pending", max_length=8)),
                    ("due", models.DateTimeField()),
                    ("tries", models.PositiveSmallIntegerField(default=0)),
                    ("settled", models.DateTimeField(blank=True, null=True)),
                    ("error", models.CharField(blank=True, max_length=200)),
                ],
                options={
                    "ordering": ["-id"],
                    "indexes": [
                        models.Index(condition=models.Q(("state", "pending")), fields=["due", "id"], name="chat_due"),
                        models.Index(fields=["tenant", "channel", "-id"], name="chat_log"),
                    ],
                    "constraints": [
                        models.UniqueConstraint(fields=("channel", "message"), name="chat_message_once"),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("settled", None), ("state", "pending")),
                                models.Q(models.Q(("state", "pending"), _negated=True), ("settled__isnull", False)),
                                _connector="OR",
                            ),
                            name="chat_message_settled",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="DirectoryToken",
                fields=[
                    ("tenant", models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, serialize=False, to="tenants.tenant")),
                    ("digest", models.BinaryField(max_length=32, unique=True)),
                    ("prefix", models.CharField(max_length=16)),
                    ("created", models.DateTimeField()),
                    ("created_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    ("last_used", models.DateTimeField(blank=True, null=True)),
                    ("last_address", models.GenericIPAddressField(blank=True, null=True)),
                ],
            ),
            migrations.CreateModel(
                name="DirectoryPerson",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("user", models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name="directory_person", to=settings.AUTH_USER_MODEL)),
                    ("user_name", models.CharField(help_text="`userName` of the directory.", max_length=150)),
                    ("external_id", models.CharField(blank=True, help_text="`externalId`: the subject at the provider.", max_length=255)),
                    ("created", models.DateTimeField()),
                ],
                options={
                    "constraints": [
                        models.UniqueConstraint(django.db.models.functions.text.Lower("user_name"), models.F("tenant"), name="directory_user_name_once"),
                        models.UniqueConstraint(
                            condition=models.Q(("external_id", ""), _negated=True), fields=("tenant", "external_id"), name="directory_external_id_once"
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="LabLead",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("lab", models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, to="tenants.lab")),
                    ("user", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
                ],
                options={
                    "constraints": [models.UniqueConstraint(fields=("lab", "user"), name="lab_lead_once")],
                },
            ),
            migrations.CreateModel(
                name="LabQuota",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("lab", models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, to="tenants.lab")),
                    ("gpu_class", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.gpuclass")),
                    ("guaranteed_units", models.BigIntegerField(default=0)),
                    ("borrow_limit_units", models.BigIntegerField(blank=True, help_text="Most units above the guarantee; null is no limit.", null=True)),
                    ("lend_limit_units", models.BigIntegerField(blank=True, help_text="Most idle units that others may borrow; null is all.", null=True)),
                    ("cap_gpu_hours", models.PositiveIntegerField(blank=True, null=True)),
                    ("cap_days", models.PositiveSmallIntegerField(blank=True, help_text="Any such number of days in a row; null is a UTC month.", null=True)),
                    ("cap_carries", models.BooleanField(db_default=False, default=False, help_text="Adds the unused hours of the month before.")),
                ],
                options={
                    "constraints": [
                        models.UniqueConstraint(fields=("lab", "gpu_class"), name="lab_quota_once"),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("cap_carries", False), ("cap_days", None), ("cap_gpu_hours", None)),
                                models.Q(("cap_days", None), ("cap_gpu_hours__gt", 0)),
                                models.Q(("cap_carries", False), ("cap_days__gte", 1), ("cap_days__lte", 31), ("cap_gpu_hours__gt", 0)),
                                _connector="OR",
                            ),
                            name="lab_quota_cap_fits",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                ("guaranteed_units__gte", 0),
                                models.Q(("borrow_limit_units", None), ("borrow_limit_units__gte", 0), _connector="OR"),
                                models.Q(("lend_limit_units", None), ("lend_limit_units__gte", 0), _connector="OR"),
                            ),
                            name="lab_quota_never_negative",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="PersonQuota",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    (
                        "project",
                        models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.project"),
                    ),
                    ("user", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
                    ("gpu_class", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.gpuclass")),
                    ("limit_units", models.BigIntegerField()),
                ],
                options={
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "project", "user", "gpu_class"), name="person_quota_once", nulls_distinct=False),
                        models.CheckConstraint(condition=models.Q(("limit_units__gte", 0)), name="person_quota_never_negative"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="QuotaWindow",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("lab", models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.lab")),
                    (
                        "project",
                        models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.project"),
                    ),
                    (
                        "user",
                        models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL),
                    ),
                    ("gpu_class", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.gpuclass")),
                    ("limit_units", models.BigIntegerField()),
                    ("first_day", models.DateField(blank=True, null=True)),
                    ("last_day", models.DateField(blank=True, help_text="The last day on which it begins.", null=True)),
                    ("weekdays", models.JSONField(default=list, help_text="Monday is 0; empty is every day.")),
                    ("first_hour", models.PositiveSmallIntegerField(default=0)),
                    ("end_hour", models.PositiveSmallIntegerField(default=24, help_text="Not later than the first hour: on the next day.")),
                    ("zone", models.CharField(default="UTC", max_length=64)),
                    ("created", models.DateTimeField()),
                    ("created_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                ],
                options={
                    "ordering": ["gpu_class", "created", "id"],
                    "constraints": [
                        models.CheckConstraint(condition=models.Q(("limit_units__gte", 0)), name="quota_window_never_negative"),
                        models.CheckConstraint(condition=models.Q(("lab", None), ("project", None), _connector="OR"), name="quota_window_of_one_owner"),
                        models.CheckConstraint(condition=models.Q(("user", None), ("lab", None), _connector="OR"), name="quota_window_no_person_of_a_lab"),
                        models.CheckConstraint(
                            condition=models.Q(("end_hour__gte", 1), ("end_hour__lte", 24), ("first_hour__lte", 23)), name="quota_window_hours"
                        ),
                        models.CheckConstraint(
                            condition=models.Q(("first_day", None), ("last_day", None), ("first_day__lte", models.F("last_day")), _connector="OR"),
                            name="quota_window_days",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="AuditEntry",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("at", models.DateTimeField()),
                    ("actor", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
                    ("action", models.CharField(max_length=60)),
                    ("object_kind", models.CharField(max_length=40)),
                    ("object_id", models.CharField(max_length=64)),
                    ("detail", models.JSONField(default=dict)),
                ],
                options={
                    "indexes": [
                        models.Index(fields=["tenant", "-at", "-id"], name="audit_newest"),
                        models.Index(fields=["tenant", "actor", "-at", "-id"], name="audit_by_actor"),
                        models.Index(fields=["tenant", "object_kind", "-at", "-id"], name="audit_by_kind"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="AuditSeal",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("source", models.CharField(max_length=20)),
                    ("tenant", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("number", models.PositiveBigIntegerField(help_text="Position in the chain of the tenant.")),
                    (
                        "entries",
                        django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), help_text="Keys of the sealed rows.", size=None),
                    ),
                    ("marks", models.BinaryField(help_text="First bytes of each row's SHA-256.")),
                    ("previous", models.BinaryField(help_text="Digest of the seal before.", max_length=32)),
                    ("digest", models.BinaryField(help_text="Over the rows and the seal before.", max_length=32)),
                    ("through", models.BigIntegerField(help_text="Highest key that is sealed.")),
                    ("sealed", models.DateTimeField()),
                ],
                options={
                    "indexes": [models.Index(fields=["source", "sealed"], name="audit_seal_latest")],
                    "constraints": [models.UniqueConstraint(fields=("source", "tenant", "number"), name="audit_seal_once", nulls_distinct=False)],
                },
            ),
            migrations.CreateModel(
                name="ArchiveFile",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("kind", models.CharField(max_length=20)),
                    ("tenant", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("name", models.CharField(max_length=120, unique=True)),
                    ("rows", models.PositiveIntegerField()),
                    ("last_seal", models.PositiveBigIntegerField(blank=True, help_text="Number of the last seal whose rows are in the file.", null=True)),
                    ("sha256", models.BinaryField(max_length=32)),
                    ("written", models.DateTimeField()),
                ],
            ),
            migrations.CreateModel(
                name="OutboxMessage",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    (
                        "tenant",
                        models.ForeignKey(
                            blank=True,
                            help_text="Null: about the platform, for operators only.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            to="tenants.tenant",
                        ),
                    ),
                    ("kind", models.CharField(max_length=60)),
                    ("payload", models.JSONField()),
                    ("created", models.DateTimeField()),
                    ("sent", models.DateTimeField(blank=True, null=True)),
                ],
                options={
                    "indexes": [models.Index(condition=models.Q(("sent", None)), fields=["id"], name="outbox_waiting")],
                },
            ),
            migrations.CreateModel(
                name="Mail",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("user", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
                    ("address", models.CharField(blank=True, db_default="", default="", max_length=254)),
                    (
                        "message",
                        models.BigIntegerField(blank=True, help_text="The outbox message; no foreign key, as messages are deleted after a week.", null=True),
                    ),
                    ("kind", models.CharField(max_length=60)),
                    ("booking", models.UUIDField(blank=True, null=True)),
                    ("invitation", models.UUIDField(blank=True, null=True)),
                    ("at", models.DateTimeField()),
                    ("due", models.DateTimeField(help_text="Time of the next try.")),
                    ("tries", models.PositiveSmallIntegerField(default=0)),
                    ("sent", models.DateTimeField(blank=True, null=True)),
                    ("dropped", models.CharField(blank=True, help_text="Why it is not sent.", max_length=120)),
                ],
                options={
                    "indexes": [models.Index(condition=models.Q(("dropped", ""), ("sent", None)), fields=["due", "id"], name="mail_waiting")],
                    "constraints": [
                        models.UniqueConstraint(fields=("user", "message"), name="mail_once"),
                        models.UniqueConstraint(condition=models.Q(("user", None)), fields=("address", "message"), name="mail_address_once"),
                        models.CheckConstraint(condition=models.Q(("sent", None), ("dropped", ""), _connector="OR"), name="mail_one_end"),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("booking__isnull", False), ("invitation", None)),
                                models.Q(("booking", None), ("invitation__isnull", False)),
                                models.Q(("booking", None), ("invitation", None), models.Q(("kind__startswith", "booking."), _negated=True)),
                                _connector="OR",
                            ),
                            name="mail_about_one",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("address", ""), ("user__isnull", False)),
                                models.Q(("invitation__isnull", False), ("user", None), models.Q(("address", ""), _negated=True)),
                                _connector="OR",
                            ),
                            name="mail_to_one",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="MailLink",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("digest", models.BinaryField(max_length=32, unique=True)),
                    (
                        "invitation",
                        models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="tenants.invitation"),
                    ),
                    (
                        "user",
                        models.ForeignKey(
                            blank=True, help_text="Whose password it sets.", null=True, on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL
                        ),
                    ),
                    ("expires", models.DateTimeField()),
                    ("used", models.DateTimeField(blank=True, null=True)),
                ],
                options={
                    "constraints": [
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("invitation", None), ("user__isnull", False)),
                                models.Q(("invitation__isnull", False), ("user", None)),
                                _connector="OR",
                            ),
                            name="mail_link_for_one",
                        )
                    ],
                },
            ),
            migrations.CreateModel(
                name="PasswordReset",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("wanted", models.CharField(help_text="A sign-in name or address, as typed.", max_length=254)),
                    ("at", models.DateTimeField()),
                ],
            ),
            migrations.CreateModel(
                name="Notification",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    (
                        "tenant",
                        models.ForeignKey(
                            blank=True,
                            help_text="Null: about the platform, in the inbox of an operator.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            to="tenants.tenant",
                        ),
                    ),
                    ("user", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL)),
                    ("message", models.BigIntegerField(help_text="The outbox message; no foreign key, as messages are deleted after a week.")),
                    ("kind", models.CharField(max_length=60)),
                    ("title", models.CharField(max_length=160)),
                    ("text", models.CharField(blank=True, max_length=400)),
                    ("path", models.CharField(blank=True, help_text="The page that it is about, below the tenant's.", max_length=200)),
                    ("at", models.DateTimeField()),
                    ("until", models.DateTimeField(blank=True, help_text="The deadline or start in it, for the reader's zone.", null=True)),
                    ("read", models.DateTimeField(blank=True, null=True)),
                ],
                options={
                    "indexes": [
                        models.Index(fields=["tenant", "user", "-at", "-id"], name="notification_of_user"),
                        models.Index(condition=models.Q(("read", None)), fields=["tenant", "user"], name="notification_unread"),
                    ],
                    "constraints": [
                        models.UniqueConstraint(fields=("user", "message"), name="notification_once"),
                        models.CheckConstraint(
                            condition=models.Q(("tenant__isnull", False), ("path__startswith", "/ops/"), _connector="OR"), name="notification_has_a_place"
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="NotificationSettings",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="tenants.tenant")),
                    ("user", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL)),
                    ("choices", models.JSONField(default=dict, help_text="{type: {in_app, mail}} where a type differs from the default.")),
                    ("quiet_from", models.TimeField(blank=True, help_text="In the person's time zone.", null=True)),
                    ("quiet_until", models.TimeField(blank=True, null=True)),
                    ("daily_at", models.TimeField(default=datetime.time(8, 0), help_text="When the mail of a day is sent.")),
                ],
                options={
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "user"), name="notification_settings_once"),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("quiet_from", None), ("quiet_until", None)),
                                models.Q(
                                    ("quiet_from__isnull", False),
                                    ("quiet_until__isnull", False),
                                    models.Q(("quiet_from", models.F("quiet_until")), _negated=True),
                                ),
                                _connector="OR",
                            ),
                            name="notification_quiet_hours_sane",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="OperatorAccess",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("operator", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    (
                        "person",
                        models.ForeignKey(
                            blank=True,
                            help_text="Whose pages are shown; null: those of an admin.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to=settings.AUTH_USER_MODEL,
                        ),
                    ),
                    ("reason", models.CharField(help_text="The tenant's admins read it.", max_length=200)),
                    ("opened", models.DateTimeField()),
                    ("until", models.DateTimeField()),
                    ("ended_at", models.DateTimeField(blank=True, null=True)),
                ],
                options={
                    "ordering": ["-opened", "id"],
                    "indexes": [models.Index(condition=models.Q(("ended_at", None)), fields=["until"], name="operator_access_open")],
                    "constraints": [
                        models.UniqueConstraint(condition=models.Q(("ended_at", None)), fields=("operator", "tenant"), name="operator_access_one_open"),
                        models.CheckConstraint(condition=models.Q(("until__gt", models.F("opened"))), name="operator_access_window_sane"),
                        models.CheckConstraint(condition=models.Q(("reason", ""), _negated=True), name="operator_access_has_reason"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="Passkey",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("user", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL)),
                    ("credential", models.BinaryField(help_text="The id that the authenticator gave it.", max_length=1023, unique=True)),
                    ("public_key", models.BinaryField(max_length=2000)),
                    ("sign_count", models.BigIntegerField(help_text="Signatures that the authenticator counted; 0 if it doesn't count.")),
                    ("transports", django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=20), default=list, size=None)),
                    ("name", models.CharField(max_length=60)),
                    ("created", models.DateTimeField()),
                    ("last_used", models.DateTimeField(blank=True, null=True)),
                ],
            ),
            migrations.CreateModel(
                name="PasskeyChallenge",
                fields=[
                    ("digest", models.BinaryField(help_text="SHA-256 of the challenge.", max_length=32, primary_key=True, serialize=False)),
                    ("session", models.BinaryField(help_text="The digest of the browser's session.", max_length=32)),
                    ("use", models.CharField(choices=[("add", "Add a passkey"), ("check", "Sign in, or confirm a dangerous act")], max_length=8)),
                    (
                        "user",
                        models.ForeignKey(
                            blank=True,
                            help_text="Whose passkey is asked for; empty if the passkey says who signs in.",
                            null=True,
                            on_delete=django.db.models.deletion.CASCADE,
                            related_name="+",
                            to=settings.AUTH_USER_MODEL,
                        ),
                    ),
                    ("expires", models.DateTimeField(db_index=True)),
                ],
            ),
            migrations.CreateModel(
                name="PolicyHook",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("url", models.CharField(max_length=500)),
                    ("timeout_ms", models.PositiveSmallIntegerField(help_text="Milliseconds from the look-up of the name to the end of the answer.")),
                    ("is_on", models.BooleanField(help_text="Whether it is asked.")),
                    ("is_fail_open", models.BooleanField(help_text="Whether a request is admitted without a valid answer; else it is refused.")),
                    ("is_dry_run", models.BooleanField(help_text="Whether answers are only logged.")),
                    ("created", models.DateTimeField()),
                    ("created_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
                    ("salt", models.BinaryField(max_length=32)),
                    ("previous_salt", models.BinaryField(blank=True, max_length=32, null=True)),
                    ("previous_until", models.DateTimeField(blank=True, help_text="Until then questions have the signature of both secrets.", null=True)),
                    (
                        "made_with",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            help_text="The token that set its address, and with which it ends.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to="tenants.apitoken",
                        ),
                    ),
                ],
                options={
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "id"), name="policy_hook_id_in_tenant"),
                        models.CheckConstraint(condition=models.Q(("timeout_ms__gte", 100), ("timeout_ms__lte", 2000)), name="policy_hook_timeout"),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("previous_salt", None), ("previous_until", None)),
                                models.Q(("previous_salt__isnull", False), ("previous_until__isnull", False)),
                                _connector="OR",
                            ),
                            name="policy_hook_previous_secret_ends",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="PolicyHookHealth",
                fields=[
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    (
                        "hook",
                        models.OneToOneField(
                            db_constraint=False,
                            on_delete=django.db.models.deletion.CASCADE,
                            primary_key=True,
                            related_name="health",
                            serialize=False,
                            to="tenants.policyhook",
                        ),
                    ),
                    ("failures", models.PositiveIntegerField(default=0, help_text="Since the last valid answer.")),
                    ("not_before", models.DateTimeField(blank=True, help_text="After too many failures it is asked again at this time.", null=True)),
                ],
            ),
            migrations.CreateModel(
                name="PolicyHookCall",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    (
                        "hook",
                        models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name="calls", to="tenants.policyhook"),
                    ),
                    ("key", models.UUIDField(help_text="The header `webhook-id`.")),
                    ("at", models.DateTimeField()),
                    ("act", models.CharField(help_text="What was asked for: `booking`, `batch`, …", max_length=20)),
                    ("asker", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
                    ("items", models.PositiveIntegerField(help_text="Number of requests in the question.")),
                    ("requests", models.JSONField(help_text="The first requests of the question.")),
                    ("status", models.PositiveSmallIntegerField(blank=True, null=True)),
                    ("answer", models.TextField(blank=True, help_text="The beginning of the body, if it could be read as decisions.")),
                    ("milliseconds", models.PositiveIntegerField()),
                    (
                        "outcome",
                        models.CharField(
                            choices=[
                                ("admitted", "Admitted"),
                                ("changed", "Changed"),
                                ("denied", "Denied"),
                                ("failed", "No valid answer"),
                                ("skipped", "Not asked"),
                            ],
                            max_length=10,
                        ),
                    ),
                    ("error", models.CharField(blank=True, max_length=300)),
                    ("is_fail_open", models.BooleanField(help_text="The rule for failures at that time.")),
                    ("is_dry_run", models.BooleanField()),
                ],
                options={
                    "indexes": [models.Index(fields=["tenant", "-id"], name="policy_hook_log")],
                    "constraints": [
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("error__gt", ""), ("outcome__in", ["failed", "skipped"])),
                                models.Q(("error", ""), ("outcome__in", ["admitted", "changed", "denied"])),
                                _connector="OR",
                            ),
                            name="policy_hook_call_error",
                        )
                    ],
                },
            ),
            migrations.CreateModel(
                name="ServiceAccount",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("project", models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, to="tenants.project")),
                    (
                        "user",
                        models.OneToOneField(
                            help_text="Owns what the program books. It has no password.",
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="service_account",
                            to=settings.AUTH_USER_MODEL,
                        ),
                    ),
                    ("name", models.CharField(max_length=80)),
                    ("created", models.DateTimeField()),
                    ("created_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    ("closed", models.DateTimeField(blank=True, null=True)),
                ],
            ),
            migrations.CreateModel(
                name="SignOnProvider",
                fields=[
                    ("tenant", models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, primary_key=True, serialize=False, to="tenants.tenant")),
                    ("issuer", models.CharField(max_length=200)),
                    ("client_id", models.CharField(max_length=200)),
                    ("sealed_secret", models.TextField(help_text="The client secret, encrypted for this tenant.")),
                    ("groups_claim", models.CharField(default="groups", max_length=80)),
                    ("endpoints", models.JSONField(help_text="Addresses of the provider's endpoints, from its discovery document.")),
                    ("is_on", models.BooleanField(default=False)),
                    ("checked", models.DateTimeField(help_text="When the discovery document was last read.")),
                ],
            ),
            migrations.CreateModel(
                name="SignOnGroup",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("group", models.CharField(help_text="The name in the claim; * is everybody.", max_length=200)),
                    (
                        "project",
                        models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.project"),
                    ),
                    (
                        "role",
                        models.CharField(
                            choices=[("viewer", "Viewer"), ("researcher", "Researcher"), ("lead", "Project lead"), ("tenant_admin", "Tenant admin")],
                            max_length=16,
                        ),
                    ),
                ],
                options={
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "group", "project"), name="sign_on_group_once", nulls_distinct=False),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("project", None), ("role", "tenant_admin")),
                                models.Q(("role__in", ["viewer", "researcher", "lead"]), ("project__isnull", False)),
                                _connector="OR",
                            ),
                            name="sign_on_group_role_fits",
                        ),
                        models.CheckConstraint(condition=models.Q(("group", "*"), ("role", "tenant_admin"), _negated=True), name="sign_on_group_admin_named"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="SignOnIdentity",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("user", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    ("issuer", models.CharField(max_length=200)),
                    ("subject", models.CharField(max_length=255)),
                    ("email", models.EmailField(blank=True, db_default="", default="", help_text="As the provider has verified it.", max_length=254)),
                    ("created", models.DateTimeField()),
                    ("last_sign_in", models.DateTimeField()),
                ],
                options={
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "issuer", "subject"), name="sign_on_identity_once"),
                        models.UniqueConstraint(fields=("tenant", "user"), name="sign_on_identity_of_user"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="SignOnAttempt",
                fields=[
                    ("digest", models.BinaryField(help_text="SHA-256 of the state.", max_length=32, primary_key=True, serialize=False)),
                    ("session", models.BinaryField(help_text="The digest of the browser's session.", max_length=32)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="tenants.tenant")),
                    (
                        "user",
                        models.ForeignKey(
                            blank=True,
                            help_text="The signed-in person who connects their account.",
                            null=True,
                            on_delete=django.db.models.deletion.CASCADE,
                            related_name="+",
                            to=settings.AUTH_USER_MODEL,
                        ),
                    ),
                    ("nonce", models.CharField(max_length=64)),
                    ("verifier", models.CharField(help_text="The secret of PKCE.", max_length=64)),
                    ("after", models.CharField(help_text="The path that is opened afterwards.", max_length=500)),
                    ("expires", models.DateTimeField(db_index=True)),
                ],
            ),
            migrations.CreateModel(
                name="ApiToken",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("user", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
                    ("name", models.CharField(max_length=80)),
                    ("digest", models.BinaryField(max_length=32, unique=True)),
                    ("prefix", models.CharField(max_length=16)),
                    ("created", models.DateTimeField()),
                    ("expires", models.DateTimeField()),
                    (
                        "scopes",
                        django.contrib.postgres.fields.ArrayField(
                            base_field=models.CharField(max_length=8), default=tenants.models.tokens.all_scopes, size=None
                        ),
                    ),
                    (
                        "project",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            help_text="The only project in which the token works; none is all of the person's.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            to="tenants.project",
                        ),
                    ),
                    ("last_used", models.DateTimeField(blank=True, null=True)),
                    ("last_address", models.GenericIPAddressField(blank=True, null=True)),
                    ("revoked", models.DateTimeField(blank=True, null=True)),
                    ("warned", models.DateTimeField(blank=True, help_text="When its person was notified that it expires soon.", null=True)),
                    (
                        "made_with",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            help_text="The token that created this one, which ends no later.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            to="tenants.apitoken",
                        ),
                    ),
                    (
                        "replaces",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            help_text="The token that rotated itself into this one: its revocation ends this one, too.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to="tenants.apitoken",
                        ),
                    ),
                    (
                        "follows",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            help_text="The token that was rotated into this one. What it depended on, this one does.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to="tenants.apitoken",
                        ),
                    ),
                ],
                options={
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "id"), name="apitoken_id_in_tenant"),
                        models.CheckConstraint(
                            condition=models.Q(("scopes__contained_by", ["read", "book", "project", "budget", "fleet", "admin"]), ("scopes__len__gt", 0)),
                            name="apitoken_scopes_known",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="PublishedEvent",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    (
                        "tenant",
                        models.ForeignKey(
                            blank=True,
                            help_text="Null: for the platform's own webhooks.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            to="tenants.tenant",
                        ),
                    ),
                    ("key", models.UUIDField(default=uuid.uuid4, help_text="The public id.", unique=True)),
                    (
                        "project",
                        models.ForeignKey(
                            db_constraint=False,
                            help_text="Null: only admins and webhooks of the whole organisation get it.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            to="tenants.project",
                        ),
                    ),
                    ("subject", models.UUIDField(help_text="The booking. Its events are delivered in order.")),
                    ("type", models.CharField(max_length=60)),
                    ("at", models.DateTimeField()),
                    ("data", models.JSONField()),
                ],
                options={
                    "indexes": [models.Index(fields=["at"], name="event_age")],
                    "constraints": [models.UniqueConstraint(fields=("tenant", "id"), name="event_id_in_tenant")],
                },
            ),
            migrations.CreateModel(
                name="Webhook",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    (
                        "tenant",
                        models.ForeignKey(
                            blank=True,
                            help_text="Null: of the platform, for its operators only.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            to="tenants.tenant",
                        ),
                    ),
                    (
                        "project",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            help_text="Events of this project only; without one, of the whole tenant.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            to="tenants.project",
                        ),
                    ),
                    ("kind", models.CharField(choices=[("webhook", "Webhook"), ("jira", "Jira")], db_default="webhook", default="webhook", max_length=10)),
                    ("name", models.CharField(max_length=80)),
                    ("url", models.CharField(max_length=500)),
                    (
                        "events",
                        django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=60), help_text="Names, or `booking.*`.", size=None),
                    ),
                    (
                        "labels",
                        models.JSONField(
                            blank=True,
                            db_default=models.Value({}, output_field=models.JSONField()),
                            default=dict,
                            help_text="Events of bookings that have all of these labels; {}: all events.",
                        ),
                    ),
                    ("created", models.DateTimeField()),
                    ("created_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
                    ("salt", models.BinaryField(max_length=32)),
                    ("previous_salt", models.BinaryField(blank=True, max_length=32, null=True)),
                    ("previous_until", models.DateTimeField(blank=True, help_text="Until then messages have the signature of both secrets.", null=True)),
                    ("last_delivered", models.DateTimeField(blank=True, null=True)),
                    ("disabled_at", models.DateTimeField(blank=True, null=True)),
                    ("disabled_reason", models.CharField(blank=True, max_length=200)),
                    (
                        "made_with",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            help_text="The token that set its address, and with which it ends.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to="tenants.apitoken",
                        ),
                    ),
                ],
                options={
                    "constraints": [
                        models.CheckConstraint(
                            condition=models.Q(("tenant__isnull", False), models.Q(("kind", "webhook"), ("labels", {}), ("project", None)), _connector="OR"),
                            name="webhook_of_platform_is_plain",
                        ),
                        models.UniqueConstraint(fields=("tenant", "id"), name="webhook_id_in_tenant"),
                        models.CheckConstraint(condition=models.Q(("events__len__gte", 1)), name="webhook_has_events"),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("previous_salt", None), ("previous_until", None)),
                                models.Q(("previous_salt__isnull", False), ("previous_until__isnull", False)),
                                _connector="OR",
                            ),
                            name="webhook_previous_secret_ends",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("disabled_at", None), ("disabled_reason", "")),
                                models.Q(("disabled_at__isnull", False), models.Q(("disabled_reason", ""), _negated=True)),
                                _connector="OR",
                            ),
                            name="webhook_disabled_for_a_reason",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="WebhookDelivery",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    (
                        "tenant",
                        models.ForeignKey(
                            blank=True, help_text="That of the webhook.", null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant"
                        ),
                    ),
                    (
                        "webhook",
                        models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name="deliveries", to="tenants.webhook"),
                    ),
                    (
                        "event",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            help_text="None for a test message.",
                            null=True,
                            on_delete=django.db.models.deletion.CASCADE,
                            to="tenants.publishedevent",
                        ),
                    ),
                    ("content", models.JSONField(blank=True, help_text="What a tracker is called with; null for events.", null=True)),
                    ("key", models.UUIDField(help_text="The header `webhook-id`: the same in every attempt.")),
                    ("type", models.CharField(max_length=60)),
                    ("subject", models.UUIDField(blank=True, help_text="Deliveries of one subject wait for each other.", null=True)),
                    ("created", models.DateTimeField()),
                    (
                        "state",
                        models.CharField(
                            choices=[("pending", "Pending"), ("delivered", "Delivered"), ("failed", "Failed"), ("dropped", "Dropped")],
                            default="pending",
                            max_length=10,
                        ),
                    ),
                    ("due", models.DateTimeField(help_text="Time of the next attempt.")),
                    ("claimed_until", models.DateTimeField(blank=True, help_text="A sender works on it; later ones may after this time.", null=True)),
                    ("tries", models.PositiveSmallIntegerField(default=0)),
                    ("first_tried", models.DateTimeField(blank=True, null=True)),
                    ("attempts", models.JSONField(default=list, help_text="Time, status or error, milliseconds.")),
                    ("settled", models.DateTimeField(blank=True, null=True)),
                ],
                options={
                    "indexes": [
                        models.Index(fields=["tenant", "webhook", "-id"], name="webhook_log"),
                        models.Index(condition=models.Q(("state", "pending")), fields=["due"], name="webhook_due"),
                        models.Index(condition=models.Q(("state", "pending")), fields=["webhook", "subject", "id"], name="webhook_order"),
                        models.Index(fields=["event"], name="webhook_of_event"),
                    ],
                    "constraints": [
                        models.UniqueConstraint(
                            condition=models.Q(("subject__isnull", False)), fields=("webhook", "event", "type"), name="webhook_event_queued_once"
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("settled", None), ("state", "pending")),
                                models.Q(models.Q(("state", "pending"), _negated=True), ("settled__isnull", False)),
                                _connector="OR",
                            ),
                            name="webhook_delivery_settled",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="DirectoryGroup",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("name", models.CharField(help_text="`displayName` of the directory.", max_length=200)),
                    ("external_id", models.CharField(blank=True, help_text="`externalId`.", max_length=255)),
                    ("members", django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), help_text="Ids of accounts.", size=None)),
                    ("created", models.DateTimeField()),
                ],
                options={
                    "constraints": [
                        models.UniqueConstraint(django.db.models.functions.text.Lower("name"), models.F("tenant"), name="directory_group_once"),
                        models.UniqueConstraint(fields=("tenant", "id"), name="directory_group_id_in_tenant"),
                        models.UniqueConstraint(
                            condition=models.Q(("external_id", ""), _negated=True), fields=("tenant", "external_id"), name="directory_group_external_id_once"
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="Departure",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("is_seen", models.BooleanField(db_default=False, default=False, help_text="Whether a turn has ended what was planned.")),
                    (
                        "project",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            help_text="Null: all projects of the organisation.",
                            null=True,
                            on_delete=django.db.models.deletion.CASCADE,
                            to="tenants.project",
                        ),
                    ),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="tenants.tenant")),
                    (
                        "user",
                        models.ForeignKey(
                            blank=True,
                            help_text="Null: everybody.",
                            null=True,
                            on_delete=django.db.models.deletion.CASCADE,
                            related_name="+",
                            to=settings.AUTH_USER_MODEL,
                        ),
                    ),
                ],
                options={
                    "indexes": [models.Index(condition=models.Q(("is_seen", False)), fields=["id"], name="departure_new")],
                },
            ),
            migrations.CreateModel(
                name="FailedMessage",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("queue", models.CharField(max_length=40)),
                    ("key", models.CharField(help_text="Names the entry within its queue.", max_length=120)),
                    ("error", models.CharField(help_text="What went wrong.", max_length=300)),
                    ("tries", models.PositiveSmallIntegerField(default=1)),
                    ("first_failed", models.DateTimeField()),
                    ("last_failed", models.DateTimeField()),
                    ("next_try", models.DateTimeField(blank=True, help_text="Null: it is parked.", null=True)),
                    ("dismissed", models.DateTimeField(blank=True, help_text="An operator has decided that it is not tried again.", null=True)),
                    (
                        "tenant",
                        models.ForeignKey(
                            blank=True,
                            help_text="Null: it belongs to the platform or to several tenants.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            to="tenants.tenant",
                        ),
                    ),
                ],
                options={
                    "constraints": [
                        models.UniqueConstraint(fields=("queue", "key"), name="failed_message_once"),
                        models.CheckConstraint(condition=models.Q(("dismissed", None), ("next_try", None), _connector="OR"), name="failed_message_dismissed"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="OperatorRole",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    (
                        "role",
                        models.CharField(
                            choices=[
                                ("site", "Site"),
                                ("class", "GPU classes"),
                                ("pool", "Racks and pools"),
                                ("read_only", "Read only"),
                                ("billing", "Billing"),
                                ("support", "Support"),
                            ],
                            max_length=10,
                        ),
                    ),
                    (
                        "names",
                        django.contrib.postgres.fields.ArrayField(
                            base_field=models.CharField(max_length=60),
                            default=list,
                            help_text="Classes, or racks and pools, to which it is limited; empty for other roles.",
                            size=None,
                        ),
                    ),
                    ("created", models.DateTimeField()),
                    ("since", models.DateTimeField(blank=True, help_text="Null: it waits for a second operator.", null=True)),
                    ("ended", models.DateTimeField(blank=True, null=True)),
                    (
                        "approved_by",
                        models.ForeignKey(
                            blank=True,
                            help_text="The second operator, if one was needed.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to=settings.AUTH_USER_MODEL,
                        ),
                    ),
                    (
                        "created_by",
                        models.ForeignKey(
                            blank=True,
                            help_text="Null: the owner of the database, by a command.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to=settings.AUTH_USER_MODEL,
                        ),
                    ),
                    (
                        "ended_by",
                        models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL),
                    ),
                    ("user", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="operator_roles", to=settings.AUTH_USER_MODEL)),
                ],
                options={
                    "ordering": ["user__username", "role", "-created", "id"],
                    "constraints": [
                        models.UniqueConstraint(condition=models.Q(("ended", None)), fields=("user", "role"), name="operator_role_once"),
                        models.CheckConstraint(
                            condition=models.Q(("role__in", ["site", "class", "pool", "read_only", "billing", "support"])), name="operator_role_known"
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("names__len__gt", 0), ("role__in", ["class", "pool"])),
                                models.Q(models.Q(("role__in", ["class", "pool"]), _negated=True), ("names", [])),
                                _connector="OR",
                            ),
                            name="operator_role_names",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                ("approved_by", None),
                                models.Q(
                                    models.Q(("approved_by", models.F("created_by")), _negated=True),
                                    models.Q(("approved_by", models.F("user")), _negated=True),
                                    ("since__isnull", False),
                                ),
                                _connector="OR",
                            ),
                            name="operator_role_second_is_another",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="DatedGuarantee",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("guaranteed_units", models.BigIntegerField()),
                    ("starts", models.DateTimeField()),
                    ("ends", models.DateTimeField()),
                    ("created", models.DateTimeField()),
                    ("ended", models.DateTimeField(blank=True, help_text="When somebody ended it early.", null=True)),
                    ("created_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    (
                        "ended_by",
                        models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL),
                    ),
                    ("gpu_class", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.gpuclass")),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("lab", models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.lab")),
                    (
                        "project",
                        models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.project"),
                    ),
                ],
                options={
                    "ordering": ["starts", "id"],
                    "constraints": [
                        models.CheckConstraint(condition=models.Q(("guaranteed_units__gte", 0)), name="dated_guarantee_never_negative"),
                        models.CheckConstraint(condition=models.Q(("starts__lt", models.F("ends"))), name="dated_guarantee_lasts"),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("ended", None), ("ended_by", None)),
                                models.Q(("ended__gte", models.F("created")), ("ended__isnull", False), ("ended_by__isnull", False)),
                                _connector="OR",
                            ),
                            name="dated_guarantee_ended_by_somebody",
                        ),
                        models.CheckConstraint(condition=models.Q(("lab", None), ("project", None), _connector="OR"), name="dated_guarantee_of_one_owner"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="SavedView",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("list", models.CharField(help_text="The name of the list.", max_length=20)),
                    ("name", models.CharField(max_length=60)),
                    ("query", models.CharField(help_text="Its filters, as in an address.", max_length=1000)),
                    ("is_shared", models.BooleanField(default=False, help_text="Whether everybody in the organisation, or each operator, has it.")),
                    ("created", models.DateTimeField()),
                    ("owner", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    (
                        "tenant",
                        models.ForeignKey(
                            blank=True, help_text="Null: of an operator.", null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant"
                        ),
                    ),
                ],
                options={
                    "ordering": ["list", django.db.models.functions.text.Lower("name"), "id"],
                    "constraints": [
                        models.UniqueConstraint(
                            models.F("tenant"),
                            models.F("owner"),
                            models.F("list"),
                            django.db.models.functions.text.Lower("name"),
                            name="saved_view_once",
                            nulls_distinct=False,
                        ),
                        models.CheckConstraint(condition=models.Q(("name", ""), _negated=True), name="saved_view_named"),
                        models.CheckConstraint(
                            condition=models.Q(("query__regex", "^[a-z_]+=[A-Za-z0-9%+_.~-]+(&[a-z_]+=[A-Za-z0-9%+_.~-]+)*$")), name="saved_view_is_a_query"
                        ),
                        models.CheckConstraint(
                            condition=models.Q(("list__in", ["bookings", "decisions", "fleet", "log", "timeline"])), name="saved_view_of_a_list"
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="TierGuarantee",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("units", models.BigIntegerField()),
                    ("tiers", models.JSONField(help_text="Slugs, in order.")),
                    ("changed", models.DateTimeField()),
                    ("changed_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    ("gpu_class", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.gpuclass")),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                ],
                options={
                    "ordering": ["gpu_class", "id"],
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "gpu_class"), name="tier_guarantee_once"),
                        models.CheckConstraint(condition=models.Q(("units__gt", 0)), name="tier_guarantee_positive"),
                    ],
                },
            ),
        )
    ]
