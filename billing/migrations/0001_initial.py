import uuid

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.expressions
from django.conf import settings
from django.db import migrations, models

from tenants.platform.tables import CreateTables


class Migration(migrations.Migration):
    initial = True

    dependencies = [("tenants", "0001_initial")]

    operations = [
        CreateTables(
            migrations.CreateModel(
                name="PriceBook",
                fields=[
                    ("version", models.PositiveIntegerField(primary_key=True, serialize=False)),
                    ("valid_from", models.DateTimeField(unique=True)),
                    ("currency", models.CharField(default="EUR", max_length=3)),
                    ("note", models.CharField(blank=True, max_length=200)),
                    ("published_at", models.DateTimeField(help_text="Quotes of before it don't know it; null: from `valid_from` on.", null=True)),
                    ("peak_zone", models.CharField(db_default="UTC", default="UTC", help_text="Whose clocks the peak hours are.", max_length=64)),
                    (
                        "peak_weekly",
                        models.JSONField(db_default=[], default=list, help_text="Peak hours: [weekday, first hour, hour of the end], Monday is 0."),
                    ),
                    (
                        "setup_fees",
                        models.JSONField(
                            db_default=models.Value({}, output_field=models.JSONField()),
                            default=dict,
                            help_text="What the first start of a booking costs, by tier; none: nothing.",
                        ),
                    ),
                ],
                options={
                    "ordering": ["-valid_from"],
                },
            ),
            migrations.CreateModel(
                name="Price",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("book", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="prices", to="billing.pricebook")),
                    ("gpu_class", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.gpuclass")),
                    ("tier", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tier")),
                    (
                        "profile",
                        models.CharField(
                            blank=True,
                            db_default="",
                            default="",
                            help_text="Of the slices that this is the price of one of; empty: a whole GPU.",
                            max_length=40,
                        ),
                    ),
                    ("per_gpu_hour", models.DecimalField(decimal_places=4, max_digits=12)),
                    ("peak_per_gpu_hour", models.DecimalField(decimal_places=4, help_text="In peak hours; null: the same.", max_digits=12, null=True)),
                ],
                options={
                    "constraints": [
                        models.UniqueConstraint(fields=("book", "gpu_class", "tier", "profile"), name="price_once"),
                        models.CheckConstraint(condition=models.Q(("per_gpu_hour__gte", 0), ("per_gpu_hour__lt", 1000000)), name="price_sane"),
                        models.CheckConstraint(
                            condition=models.Q(
                                ("peak_per_gpu_hour", None),
                                models.Q(("peak_per_gpu_hour__gte", models.F("per_gpu_hour")), ("peak_per_gpu_hour__lt", 1000000)),
                                _connector="OR",
                            ),
                            name="price_peak_not_lower",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="PriceDraft",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("author", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    (
                        "state",
                        models.CharField(choices=[("open", "Open"), ("published", "Published"), ("discarded", "Discarded")], default="open", max_length=9),
                    ),
                    ("revision", models.PositiveIntegerField(default=1, help_text="Counts changes. Publishing names the revision that was read.")),
                    (
                        "base",
                        models.ForeignKey(
                            help_text="The latest version when the draft was written or rebased.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to="billing.pricebook",
                        ),
                    ),
                    ("valid_from", models.DateTimeField(help_text="Null: from its publication on.", null=True)),
                    ("note", models.CharField(blank=True, max_length=200)),
                    ("content", models.JSONField(help_text="Prices and peak hours, as `BookContent` writes them.")),
                    ("created_at", models.DateTimeField()),
                    ("changed_at", models.DateTimeField()),
                    (
                        "decided_by",
                        models.ForeignKey(
                            help_text="Who published or discarded it.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to=settings.AUTH_USER_MODEL,
                        ),
                    ),
                    ("decided_at", models.DateTimeField(null=True)),
                    (
                        "book",
                        models.OneToOneField(
                            help_text="The version that it became.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="draft",
                            to="billing.pricebook",
                        ),
                    ),
                ],
                options={
                    "ordering": ["-changed_at", "id"],
                    "constraints": [
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("book", None), ("decided_at", None), ("decided_by", None), ("state", "open")),
                                models.Q(("book", None), ("decided_at__isnull", False), ("decided_by__isnull", False), ("state", "discarded")),
                                models.Q(("book__isnull", False), ("decided_at__isnull", False), ("decided_by__isnull", False), ("state", "published")),
                                _connector="OR",
                            ),
                            name="price_draft_decided",
                        )
                    ],
                },
            ),
            migrations.CreateModel(
                name="Account",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("kind", models.CharField(max_length=8)),
                    ("currency", models.CharField(default="EUR", max_length=3)),
                    ("limited", models.BooleanField(default=False, help_text="Debits and pending can't exceed the credits.")),
                    ("credits", models.DecimalField(decimal_places=6, default=0, max_digits=20)),
                    ("debits", models.DecimalField(decimal_places=6, default=0, max_digits=20)),
                    ("pending", models.DecimalField(decimal_places=6, default=0, help_text="Sum of the open holds.", max_digits=20)),
                ],
                options={
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "id"), name="account_id_in_tenant"),
                        models.CheckConstraint(condition=models.Q(("kind__in", ["source", "budget", "spend"])), name="account_kind"),
                        models.CheckConstraint(condition=models.Q(("credits__gte", 0), ("debits__gte", 0), ("pending__gte", 0)), name="account_never_negative"),
                        models.CheckConstraint(
                            condition=models.Q(
                                ("limited", False),
                                ("credits__gte", django.db.models.expressions.CombinedExpression(models.F("debits"), "+", models.F("pending"))),
                                _connector="OR",
                            ),
                            name="account_never_overspent",
                        ),
                        models.UniqueConstraint(
                            condition=models.Q(("kind__in", ["source", "spend"])),
                            fields=("tenant", "kind", "currency"),
                            name="account_one_of_a_kind",
                            nulls_distinct=False,
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="Campaign",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("project", models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, to="tenants.project")),
                    ("slug", models.SlugField(max_length=40)),
                    ("name", models.CharField(max_length=80)),
                    ("is_open", models.BooleanField(default=True, help_text="Whether new bookings can use it.")),
                    (
                        "match_labels",
                        models.JSONField(
                            blank=True, db_default=models.Value({}, output_field=models.JSONField()), default=dict, help_text="All of these labels; {}: none."
                        ),
                    ),
                    ("match_ref", models.CharField(blank=True, db_default="", default="", help_text="This ticket.", max_length=500)),
                ],
                options={
                    "ordering": ["name", "id"],
                    "constraints": [
                        models.CheckConstraint(condition=models.Q(("match_ref__regex", "^\\S*$")), name="campaign_reference_sane"),
                        models.UniqueConstraint(fields=("tenant", "id"), name="campaign_id_in_tenant"),
                        models.UniqueConstraint(fields=("project", "slug"), name="campaign_slug_in_project"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="Transfer",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("kind", models.CharField(max_length=8)),
                    ("debit", models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.account")),
                    ("credit", models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.account")),
                    ("amount", models.DecimalField(decimal_places=6, max_digits=20)),
                    (
                        "surcharge",
                        models.DecimalField(db_default=0, decimal_places=6, default=0, help_text="The part of a charge that is for peak hours.", max_digits=20),
                    ),
                    (
                        "hold",
                        models.OneToOneField(
                            blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="end", to="billing.transfer"
                        ),
                    ),
                    ("reference", models.UUIDField(blank=True, help_text="The booking's id.", null=True)),
                    ("day", models.DateField(blank=True, help_text="UTC day by which the budgets of other levels count it.", null=True)),
                    (
                        "person",
                        models.ForeignKey(
                            blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
                        ),
                    ),
                    (
                        "campaign",
                        models.ForeignKey(
                            blank=True, db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, to="billing.campaign"
                        ),
                    ),
                    ("at", models.DateTimeField()),
                    ("note", models.CharField(blank=True, max_length=200)),
                    (
                        "fee",
                        models.CharField(
                            blank=True,
                            db_default="",
                            default="",
                            help_text="What a charge is for that is for no GPU time: `late_share`, `no_show`, `setup`. Of a refund: the fee that it gives back.",
                            max_length=12,
                        ),
                    ),
                    ("gpu_class", models.CharField(blank=True, db_default="", default="", max_length=40)),
                    (
                        "tier",
                        models.CharField(
                            blank=True,
                            db_default="",
                            default="",
                            help_text="Of the booking when it was charged. A trigger writes it, and the class.",
                            max_length=40,
                        ),
                    ),
                ],
                options={
                    "indexes": [
                        models.Index(fields=["tenant", "reference"], name="transfer_reference"),
                        models.Index(fields=["tenant", "at"], name="transfer_at"),
                        models.Index(condition=models.Q(("kind", "reverse")), fields=["debit"], include=("amount",), name="transfer_reversed_debit"),
                        models.Index(condition=models.Q(("kind", "reverse")), fields=["credit"], include=("amount",), name="transfer_reversed_credit"),
                        models.Index(
                            condition=models.Q(("kind__in", ["settle", "charge", "reverse"]), ("reference__isnull", False)),
                            fields=["tenant", "at", "id"],
                            include=("kind", "debit", "credit"),
                            name="transfer_lines",
                        ),
                    ],
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "id"), name="transfer_id_in_tenant"),
                        models.CheckConstraint(
                            condition=models.Q(("kind__in", ["fund", "hold", "settle", "release", "reverse", "charge"])), name="transfer_kind"
                        ),
                        models.CheckConstraint(condition=models.Q(("amount__gt", 0), ("amount__lt", 1000000000000)), name="transfer_amount_sane"),
                        models.CheckConstraint(condition=models.Q(("debit", models.F("credit")), _negated=True), name="transfer_two_accounts"),
                        models.CheckConstraint(
                            condition=models.Q(
                                ("surcharge", 0), models.Q(("kind", "settle"), ("surcharge__gt", 0), ("surcharge__lte", models.F("amount"))), _connector="OR"
                            ),
                            name="transfer_surcharge_in_charge",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                ("fee", ""),
                                models.Q(("kind", "settle"), ("surcharge", 0)),
                                models.Q(("fee", "late_share"), ("kind", "reverse")),
                                _connector="OR",
                            ),
                            name="transfer_fee_in_charge",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("hold__isnull", False), ("kind__in", ["settle", "release"])),
                                models.Q(("hold", None), models.Q(("kind__in", ["settle", "release"]), _negated=True)),
                                _connector="OR",
                            ),
                            name="transfer_hold_fits_kind",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="Budget",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    (
                        "tenant",
                        models.ForeignKey(
                            blank=True, help_text="Null: of the platform.", null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant"
                        ),
                    ),
                    (
                        "level",
                        models.CharField(
                            choices=[
                                ("platform", "Platform"),
                                ("tenant", "Organisation"),
                                ("lab", "Lab"),
                                ("project", "Project"),
                                ("campaign", "Campaign"),
                                ("person", "Person"),
                            ],
                            db_default="project",
                            default="project",
                            max_length=8,
                        ),
                    ),
                    (
                        "lab",
                        models.ForeignKey(
                            blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenants.lab"
                        ),
                    ),
                    (
                        "project",
                        models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.project"),
                    ),
                    (
                        "campaign",
                        models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to="billing.campaign"),
                    ),
                    (
                        "person",
                        models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL),
                    ),
                    ("account", models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, to="billing.account")),
                    ("starts", models.DateField()),
                    ("ends", models.DateField()),
                    (
                        "warn_percent",
                        models.PositiveSmallIntegerField(default=80, help_text="Share of spent and held money of the main alert; pages show it from there on."),
                    ),
                    (
                        "repeat_amount",
                        models.DecimalField(blank=True, decimal_places=6, help_text="The next period gets a budget of this amount.", max_digits=20, null=True),
                    ),
                    (
                        "rolls_over",
                        models.BooleanField(db_default=False, default=False, help_text="What is left when the period ends is added to the next one."),
                    ),
                    (
                        "labels",
                        models.JSONField(
                            blank=True,
                            db_default=models.Value({}, output_field=models.JSONField()),
                            default=dict,
                            help_text="Key-value pairs, at most 32; what it pays has them, too.",
                        ),
                    ),
                    ("external_ref", models.CharField(blank=True, db_default="", default="", help_text="URL or key of a ticket.", max_length=500)),
                    (
                        "variance_percent",
                        models.PositiveSmallIntegerField(
                            blank=True, db_default=50, default=50, help_text="More than expected, in percent; null: nobody is notified.", null=True
                        ),
                    ),
                    (
                        "variance_amount",
                        models.DecimalField(db_default=20, decimal_places=6, default=20, help_text="The least difference that notifies.", max_digits=20),
                    ),
                    ("forecast", models.DecimalField(blank=True, decimal_places=6, max_digits=20, null=True)),
                    ("forecast_low", models.DecimalField(blank=True, decimal_places=6, max_digits=20, null=True)),
                    ("forecast_high", models.DecimalField(blank=True, decimal_places=6, max_digits=20, null=True)),
                    ("forecast_at", models.DateTimeField(blank=True, help_text="When it was computed.", null=True)),
                    ("unit", models.CharField(blank=True, db_default="", default="", help_text="What programs count, such as `epoch`.", max_length=24)),
                    (
                        "unit_cost",
                        models.DecimalField(
                            blank=True, decimal_places=6, help_text="What so many units have cost so far; null: not known.", max_digits=20, null=True
                        ),
                    ),
                    ("unit_cost_at", models.DateTimeField(blank=True, help_text="When it was computed.", null=True)),
                    ("unit_count", models.PositiveIntegerField(blank=True, help_text="Of so many units.", null=True)),
                    ("unit_most", models.DecimalField(blank=True, decimal_places=6, max_digits=20, null=True)),
                ],
                options={
                    "ordering": ["-starts"],
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "id"), name="budget_id_in_tenant"),
                        models.CheckConstraint(condition=models.Q(("ends__gt", models.F("starts"))), name="budget_period"),
                        models.CheckConstraint(condition=models.Q(("warn_percent__gte", 1), ("warn_percent__lte", 100)), name="budget_warning"),
                        models.CheckConstraint(
                            condition=models.Q(("variance_percent", None), ("variance_percent__range", (1, 1000)), _connector="OR"),
                            name="budget_variance_percent",
                        ),
                        models.CheckConstraint(condition=models.Q(("external_ref__regex", "^\\S*$")), name="budget_reference_sane"),
                        models.CheckConstraint(condition=models.Q(("variance_amount__gte", 0)), name="budget_variance_amount"),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(
                                    ("campaign__isnull", True),
                                    ("lab__isnull", True),
                                    ("level", "platform"),
                                    ("person__isnull", True),
                                    ("project__isnull", True),
                                    ("tenant__isnull", True),
                                ),
                                models.Q(
                                    ("campaign__isnull", True),
                                    ("lab__isnull", True),
                                    ("level", "tenant"),
                                    ("person__isnull", True),
                                    ("project__isnull", True),
                                    ("tenant__isnull", False),
                                ),
                                models.Q(
                                    ("campaign__isnull", True),
                                    ("lab__isnull", False),
                                    ("level", "lab"),
                                    ("person__isnull", True),
                                    ("project__isnull", True),
                                    ("tenant__isnull", False),
                                ),
                                models.Q(
                                    ("campaign__isnull", True),
                                    ("lab__isnull", True),
                                    ("level", "project"),
                                    ("person__isnull", True),
                                    ("project__isnull", False),
                                    ("tenant__isnull", False),
                                ),
                                models.Q(
                                    ("campaign__isnull", False),
                                    ("lab__isnull", True),
                                    ("level", "campaign"),
                                    ("person__isnull", True),
                                    ("project__isnull", False),
                                    ("tenant__isnull", False),
                                ),
                                models.Q(
                                    ("campaign__isnull", True),
                                    ("lab__isnull", True),
                                    ("level", "person"),
                                    ("person__isnull", False),
                                    ("project__isnull", False),
                                    ("tenant__isnull", False),
                                ),
                                _connector="OR",
                            ),
                            name="budget_level",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("unit", ""), ("unit_cost", None), ("unit_count", None), ("unit_most", None)),
                                models.Q(models.Q(("level", "campaign"), ("unit_count__gt", 0), ("unit_most__gt", 0)), models.Q(("unit", ""), _negated=True)),
                                _connector="OR",
                            ),
                            name="budget_unit_limit",
                        ),
                        models.CheckConstraint(condition=models.Q(("unit_cost", None), ("unit_cost__gte", 0), _connector="OR"), name="budget_unit_cost"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="Guardrail",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    (
                        "budget",
                        models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name="guardrails", to="billing.budget"),
                    ),
                    (
                        "measure",
                        models.CharField(
                            choices=[
                                ("spent", "Spent"),
                                ("committed", "Spent and held"),
                                ("forecast", "Forecast at the end of the period"),
                                ("unit_cost", "Spend per unit of progress"),
                            ],
                            max_length=10,
                        ),
                    ),
                    ("percent", models.PositiveSmallIntegerField()),
                    (
                        "action",
                        models.CharField(
                            choices=[
                                ("notify", "Notify"),
                                ("approval", "Ask for an approval of new bookings"),
                                ("cheaper", "Finish waiting work on the cheapest of its classes"),
                                ("no_borrowing", "Start nothing on borrowed GPUs"),
                                ("no_bookings", "Take no new bookings"),
                                ("drain", "Start nothing new"),
                                ("pause", "Pause what runs, after its notice"),
                            ],
                            max_length=12,
                        ),
                    ),
                    (
                        "audience",
                        models.CharField(
                            choices=[
                                ("leads", "Project leads"),
                                ("admins", "Tenant admins"),
                                ("both", "Project leads and tenant admins"),
                                ("people", "Only the people named"),
                            ],
                            default="both",
                            max_length=8,
                        ),
                    ),
                    ("reached_at", models.DateTimeField(blank=True, help_text="Since when it acts; null while it does not.", null=True)),
                    (
                        "people",
                        django.contrib.postgres.fields.ArrayField(
                            base_field=models.IntegerField(),
                            db_default=models.Value([], output_field=django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), size=None)),
                            default=list,
                            help_text="Accounts that are notified, too.",
                            size=None,
                        ),
                    ),
                ],
                options={
                    "ordering": ["percent", "measure", "action"],
                    "constraints": [
                        models.UniqueConstraint(fields=("budget", "measure", "percent", "action"), name="guardrail_once"),
                        models.CheckConstraint(condition=models.Q(("percent__gte", 1), ("percent__lte", 200)), name="guardrail_percent"),
                        models.CheckConstraint(
                            condition=models.Q(
                                ("measure__in", ["spent", "committed", "forecast", "unit_cost"]),
                                ("action__in", ["notify", "approval", "cheaper", "no_borrowing", "no_bookings", "drain", "pause"]),
                                ("audience__in", ["leads", "admins", "both", "people"]),
                            ),
                            name="guardrail_choices",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(models.Q(("measure", "unit_cost"), _negated=True), ("action__in", ["notify", "pause"]), _connector="OR"),
                            name="guardrail_of_units",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="ClosedMonth",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("starts", models.DateField()),
                    ("ends", models.DateField()),
                    ("closed_at", models.DateTimeField()),
                    ("closed_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                ],
                options={
                    "ordering": ["-starts"],
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "starts"), name="month_closed_once"),
                        models.CheckConstraint(condition=models.Q(("ends__gt", models.F("starts"))), name="month_period"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="BudgetAlert",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    (
                        "measure",
                        models.CharField(
                            choices=[
                                ("spent", "Spent"),
                                ("committed", "Spent and held"),
                                ("forecast", "Forecast at the end of the period"),
                                ("unit_cost", "Spend per unit of progress"),
                            ],
                            max_length=10,
                        ),
                    ),
                    ("percent", models.PositiveSmallIntegerField()),
                    (
                        "action",
                        models.CharField(
                            choices=[
                                ("notify", "Notify"),
                                ("approval", "Ask for an approval of new bookings"),
                                ("cheaper", "Finish waiting work on the cheapest of its classes"),
                                ("no_borrowing", "Start nothing on borrowed GPUs"),
                                ("no_bookings", "Take no new bookings"),
                                ("drain", "Start nothing new"),
                                ("pause", "Pause what runs, after its notice"),
                            ],
                            max_length=12,
                        ),
                    ),
                    (
                        "audience",
                        models.CharField(
                            choices=[
                                ("leads", "Project leads"),
                                ("admins", "Tenant admins"),
                                ("both", "Project leads and tenant admins"),
                                ("people", "Only the people named"),
                            ],
                            max_length=8,
                        ),
                    ),
                    (
                        "people",
                        django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), help_text="Accounts that were notified, too.", size=None),
                    ),
                    ("reached_at", models.DateTimeField()),
                    ("cleared_at", models.DateTimeField(blank=True, help_text="When the share was lower, or the rung was removed.", null=True)),
                    ("amount", models.DecimalField(decimal_places=6, max_digits=20)),
                    ("spent", models.DecimalField(decimal_places=6, max_digits=20)),
                    ("held", models.DecimalField(decimal_places=6, max_digits=20)),
                    ("forecast", models.DecimalField(blank=True, decimal_places=6, max_digits=20, null=True)),
                    ("budget", models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name="alerts", to="billing.budget")),
                    ("tenant", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("unit_cost", models.DecimalField(blank=True, decimal_places=6, max_digits=20, null=True)),
                    ("unit_most", models.DecimalField(blank=True, decimal_places=6, max_digits=20, null=True)),
                ],
                options={
                    "ordering": ["-reached_at", "-id"],
                    "constraints": [
                        models.UniqueConstraint(
                            condition=models.Q(("cleared_at", None)), fields=("budget", "measure", "percent", "action"), name="budget_alert_once"
                        ),
                        models.CheckConstraint(
                            condition=models.Q(("cleared_at", None), ("cleared_at__gte", models.F("reached_at")), _connector="OR"), name="budget_alert_time"
                        ),
                    ],
                },
            ),
        )
    ]
