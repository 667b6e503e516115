import datetime
import uuid
from decimal import Decimal

import django.contrib.postgres.fields
import django.contrib.postgres.fields.ranges
import django.core.validators
import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.comparison
import django.db.models.functions.text
import django.db.models.lookups
from django.conf import settings
from django.db import migrations, models

import allocation.models.bookings
import allocation.rules.states
from tenants.platform.tables import CreateTables


class Migration(migrations.Migration):
    initial = True

    dependencies = [("billing", "0001_initial"), ("tenants", "0001_initial")]

    operations = [
        CreateTables(
            migrations.CreateModel(
                name="Series",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("project", models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, to="tenants.project")),
                    ("owner", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
                    ("name", models.CharField(blank=True, max_length=80)),
                    (
                        "labels",
                        models.JSONField(
                            blank=True, db_default=models.Value({}, output_field=models.JSONField()), default=dict, help_text="Those of its bookings."
                        ),
                    ),
                    ("external_ref", models.CharField(blank=True, db_default="", default="", help_text="URL or key of a ticket.", max_length=500)),
                    ("rule", models.CharField(help_text="RRULE, in local time.", max_length=120)),
                    ("zone", models.CharField(help_text="Time zone of the rule.", max_length=64)),
                    ("first", models.DateTimeField(help_text="Start of the first date.")),
                    ("is_partial", models.BooleanField(default=False, help_text="Dates are decided one by one; otherwise all or none.")),
                    ("skipped", models.JSONField(default=list, help_text="Dates that the calendar does not have.")),
                    ("failed", models.JSONField(default=list, help_text="Dates of a partial series that were refused: {starts, code, sentence}.")),
                    ("created", models.DateTimeField()),
                    (
                        "keeps_end",
                        models.BooleanField(
                            db_default=False, default=False, help_text="Each date ends at the same local time; otherwise each has the same length."
                        ),
                    ),
                ],
                options={
                    "ordering": ["-created", "id"],
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "id"), name="series_id_in_tenant"),
                        models.CheckConstraint(condition=models.Q(("external_ref__regex", "^\\S*$")), name="series_reference_sane"),
                        models.CheckConstraint(condition=models.Q(("is_partial", True), ("failed", []), _connector="OR"), name="series_whole_has_no_failed"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="WorkSpeed",
                fields=[
                    ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                    ("workload", models.SlugField(max_length=40)),
                    ("gpu_class", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.gpuclass")),
                    ("thousandths", models.PositiveIntegerField(help_text="1000 is the speed of a reference class.")),
                ],
                options={
                    "ordering": ["workload", "gpu_class"],
                    "constraints": [
                        models.UniqueConstraint(fields=("workload", "gpu_class"), name="work_speed_once"),
                        models.CheckConstraint(condition=models.Q(("thousandths__gte", 1), ("thousandths__lte", 1000000)), name="work_speed_sane"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="BookingArray",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("number", models.BigIntegerField(help_text="That of its elements: 2041 is shown as BK-2041.")),
                    ("project", models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, to="tenants.project")),
                    ("owner", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
                    (
                        "campaign",
                        models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to="billing.campaign"),
                    ),
                    (
                        "labels",
                        models.JSONField(
                            blank=True, db_default=models.Value({}, output_field=models.JSONField()), default=dict, help_text="Those of its elements."
                        ),
                    ),
                    ("external_ref", models.CharField(blank=True, db_default="", default="", help_text="URL or key of a ticket.", max_length=500)),
                    ("zone", models.CharField(default="UTC", help_text="Time zone of the request.", max_length=64)),
                    ("terms", models.JSONField(help_text="What each element asks for and costs.")),
                    ("submitted", models.DateTimeField()),
                    ("count", models.PositiveIntegerField(help_text="Elements; the first has index 1.")),
                    ("parallel", models.PositiveIntegerField(help_text="Elements that are open at a time, at most.")),
                    ("holds_all", models.BooleanField(default=True, help_text="The money of all elements is held; otherwise of the open ones.")),
                    ("stop_after_failures", models.PositiveIntegerField(blank=True, null=True)),
                    (
                        "state",
                        models.CharField(
                            choices=[("awaiting_approval", "Awaiting approval"), ("open", "Open"), ("ended", "Ended")], default="open", max_length=20
                        ),
                    ),
                    (
                        "outcome",
                        models.CharField(
                            blank=True,
                            choices=[
                                ("completed", "Completed"),
                                ("cancelled", "Cancelled"),
                                ("failures", "Stopped after failures"),
                                ("refused", "Stopped after a refusal"),
                                ("rejected", "Not approved"),
                                ("deadline", "Deadline passed"),
                                ("owner_left", "Its owner has left the project"),
                            ],
                            help_text="Why no further element is booked; empty: more follow.",
                            max_length=20,
                        ),
                    ),
                    ("next_index", models.PositiveIntegerField(default=1, help_text="The next element to book.")),
                    ("cancelled", models.JSONField(default=list, help_text="[first, last] of elements that were cancelled before their turn.")),
                    ("reasons", models.JSONField(default=list, help_text="Why the next element is not booked yet.")),
                    ("begun", models.PositiveIntegerField(default=0, help_text="Elements that have left the queue.")),
                    ("approved_hash", models.CharField(blank=True, default="", max_length=64)),
                    ("started_at", models.DateTimeField(blank=True, help_text="Its first start.", null=True)),
                    ("ended_at", models.DateTimeField(blank=True, help_text="Its last end.", null=True)),
                    ("failures_announced", models.PositiveIntegerField(default=0, help_text="Failures that its owner knows of.")),
                    ("failures_announced_at", models.DateTimeField(blank=True, null=True)),
                ],
                options={
                    "ordering": ["-submitted", "id"],
                    "indexes": [models.Index(condition=models.Q(("state", "ended"), _negated=True), fields=["state"], name="array_open")],
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "id"), name="array_id_in_tenant"),
                        models.UniqueConstraint(fields=("tenant", "number"), name="array_number_in_tenant"),
                        models.CheckConstraint(
                            condition=models.Q(
                                ("count__gte", 1),
                                ("count__lte", 10000),
                                ("next_index__gte", 1),
                                ("next_index__lte", django.db.models.expressions.CombinedExpression(models.F("count"), "+", models.Value(1))),
                                ("parallel__gte", 1),
                                ("parallel__lte", models.F("count")),
                            ),
                            name="array_indexes_sane",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(("stop_after_failures", None), ("stop_after_failures__gte", 1), _connector="OR"), name="array_failures_sane"
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("state", "ended"), _negated=True),
                                models.Q(("ended_at__isnull", False), models.Q(("outcome", ""), _negated=True)),
                                _connector="OR",
                            ),
                            name="array_ended_has_outcome",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="Rack",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("name", models.SlugField(max_length=40, unique=True)),
                    (
                        "zone",
                        models.ForeignKey(
                            blank=True,
                            help_text="Where it stands, with all of its nodes; null: in no zone.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="racks",
                            to="allocation.zone",
                        ),
                    ),
                ],
            ),
            migrations.CreateModel(
                name="Node",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("name", models.SlugField(max_length=60, unique=True)),
                    ("rack", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="allocation.rack")),
                    (
                        "state",
                        models.CharField(
                            choices=[("expected", "Expected"), ("ready", "Ready"), ("draining", "Draining"), ("quarantined", "Quarantined")],
                            default="expected",
                            max_length=12,
                        ),
                    ),
                    ("state_reason", models.CharField(blank=True, max_length=200)),
                    ("state_text", models.JSONField(blank=True, help_text="Code and facts of `state_reason`; null in old rows.", null=True)),
                    ("drain_by", models.DateTimeField(blank=True, help_text="When work must have left; null: it runs to its end.", null=True)),
                    ("cores", models.PositiveIntegerField(default=0)),
                    ("memory_mb", models.PositiveIntegerField(default=0)),
                    ("driver", models.CharField(blank=True, max_length=40)),
                    ("agent_version", models.CharField(blank=True, max_length=40)),
                    ("boot_id", models.CharField(blank=True, max_length=64)),
                    (
                        "host_limits",
                        models.CharField(
                            choices=[("counted", "Counted"), ("enforced", "Enforced")],
                            db_default="counted",
                            default="counted",
                            help_text="Whether the agent enforces host cores and memory of bookings.",
                            max_length=8,
                        ),
                    ),
                    ("host_note", models.CharField(blank=True, db_default="", default="", help_text="Why it does not.", max_length=200)),
                    (
                        "differences",
                        models.JSONField(db_default=[], default=list, help_text="Texts of inventory changes that wait for an operator; sentences in old rows."),
                    ),
                    ("link_digest", models.BinaryField(help_text="SHA-256 of the agent's Redis password; null without an agent.", max_length=32, null=True)),
                    ("key_version", models.PositiveIntegerField(default=1, help_text="Newest valid signing key.")),
                    ("key_confirmed", models.PositiveIntegerField(default=1, help_text="Oldest valid key: the one before, until the agent uses the newest.")),
                    ("generation", models.BigIntegerField(default=0, help_text="Rises with every change.")),
                    ("published_generation", models.BigIntegerField(default=-1, help_text="Last sent to the agent.")),
                    ("observed_generation", models.BigIntegerField(default=-1, help_text="Last one that it acts on.")),
                    ("ahead_epoch", models.BigIntegerField(blank=True, help_text="Epoch of an assignment that a restored database does not know.", null=True)),
                    ("report_seq", models.BigIntegerField(default=0)),
                    ("heartbeat_seq", models.BigIntegerField(db_default=0, default=0)),
                    ("telemetry_seq", models.BigIntegerField(db_default=0, default=0)),
                    ("inventory_seq", models.BigIntegerField(db_default=0, default=0)),
                    ("heartbeat_at", models.DateTimeField(blank=True, help_text="When the last accepted heartbeat arrived.", null=True)),
                    ("last_seen", models.DateTimeField(blank=True, help_text="Last message of any kind.", null=True)),
                    ("stale_dropped", models.BigIntegerField(db_default=0, default=0, help_text="Old messages.")),
                    ("refused", models.BigIntegerField(db_default=0, default=0, help_text="Invalid messages.")),
                    ("throttled", models.BigIntegerField(db_default=0, default=0, help_text="Seconds in which the agent sent too much.")),
                    ("implausible", models.BigIntegerField(db_default=0, default=0, help_text="Readings that can't be true.")),
                    ("conflicts", models.BigIntegerField(db_default=0, default=0, help_text="Reports that contradict the portal's record of a run.")),
                    ("refunded_seconds", models.BigIntegerField(db_default=0, default=0, help_text="GPU time not charged because it reported a failure.")),
                    ("reported_lease_seconds", models.PositiveIntegerField(db_default=0, default=0, help_text="Remaining lease in the last heartbeat.")),
                    (
                        "outage_lease_seconds",
                        models.PositiveIntegerField(db_default=0, default=0, help_text="Longest lease of a planned outage that may still run."),
                    ),
                    ("outage_lease_seq", models.BigIntegerField(db_default=0, default=0, help_text="Heartbeat that the last such lease answered.")),
                    (
                        "partitioned",
                        models.BooleanField(
                            db_default=False, default=False, help_text="A lease ran out, and the agent has not confirmed the newest assignment since."
                        ),
                    ),
                    ("unreachable_since", models.DateTimeField(blank=True, help_text="Last answer of a node that does not answer.", null=True)),
                    ("long_unreachable", models.BooleanField(db_default=False, default=False, help_text="Planned work is placed elsewhere.")),
                    ("clock_skew_seconds", models.IntegerField(blank=True, null=True)),
                    ("clock_wrong", models.BooleanField(db_default=False, default=False)),
                    ("unbooked_warn_after", models.PositiveIntegerField(blank=True, help_text="When its user is warned.", null=True)),
                    ("unbooked_end_after", models.PositiveIntegerField(blank=True, help_text="When the process is ended.", null=True)),
                    ("unbooked_override", models.BooleanField(db_default=False, default=False, help_text="Set for this node, not by the policy.")),
                    (
                        "engine",
                        models.CharField(
                            choices=[("device", "Agent"), ("slurm", "Slurm"), ("kubernetes", "Kubernetes"), ("quota", "Kubernetes without Kueue")],
                            db_default="device",
                            default="device",
                            help_text="Who gives its GPUs to bookings: the agent itself, or another scheduler for it.",
                            max_length=10,
                        ),
                    ),
                    (
                        "pool",
                        models.CharField(
                            blank=True,
                            db_default="",
                            default="",
                            help_text="Only bookings of the same pool are planned on it; empty: all others.",
                            max_length=40,
                        ),
                    ),
                    ("scratch_gb", models.PositiveIntegerField(db_default=0, default=0, help_text="Local space for programs in GB.")),
                    (
                        "storage",
                        models.CharField(
                            blank=True,
                            choices=[("", "Not known"), ("local", "Local NVMe"), ("shared", "Shared"), ("none", "None")],
                            db_default="",
                            default="",
                            help_text="What its programs write to.",
                            max_length=6,
                        ),
                    ),
                    (
                        "storage_by_operator",
                        models.BooleanField(db_default=False, default=False, help_text="An operator has set the storage: reports don't change it."),
                    ),
                    (
                        "reported_storage",
                        models.CharField(
                            blank=True,
                            choices=[("", "Not known"), ("local", "Local NVMe"), ("shared", "Shared"), ("none", "None")],
                            db_default="",
                            default="",
                            help_text="What its agent found; empty: no agent has looked.",
                            max_length=6,
                        ),
                    ),
                    ("reported_scratch_gb", models.PositiveIntegerField(db_default=0, default=0, help_text="Local space that its agent found, in GB.")),
                    (
                        "engine_agent",
                        models.ForeignKey(
                            blank=True,
                            help_text="Whose identity serves it, with the digest of its account; null: an agent of its own.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="nodes",
                            to="allocation.engineagent",
                        ),
                    ),
                ],
                options={
                    "ordering": ["name"],
                    "constraints": [
                        models.CheckConstraint(
                            condition=models.Q(("state_text__isnull", True), models.Q(("state_reason", ""), _negated=True), _connector="OR"),
                            name="node_state_text_is_reason",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                ("key_confirmed", models.F("key_version")),
                                ("key_confirmed", django.db.models.expressions.CombinedExpression(models.F("key_version"), "-", models.Value(1))),
                                _connector="OR",
                            ),
                            name="node_two_keys_at_most",
                        ),
                        models.CheckConstraint(condition=models.Q(("drain_by", None), ("state", "draining"), _connector="OR"), name="node_drain_by_drains"),
                        models.CheckConstraint(
                            condition=models.Q(("long_unreachable", False), ("unreachable_since__isnull", False), _connector="OR"),
                            name="node_long_unreachable_is_unreachable",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                ("unbooked_end_after", None),
                                models.Q(
                                    (
                                        "unbooked_end_after__gte",
                                        django.db.models.expressions.CombinedExpression(models.F("unbooked_warn_after"), "+", models.Value(60)),
                                    ),
                                    ("unbooked_warn_after__isnull", False),
                                ),
                                _connector="OR",
                            ),
                            name="node_warns_before_it_ends",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(("storage", "local"), models.Q(("scratch_gb", 0), ("storage__in", ["", "shared", "none"])), _connector="OR"),
                            name="node_scratch_is_local",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="NodeInventory",
                fields=[
                    (
                        "node",
                        models.OneToOneField(
                            on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name="inventory", serialize=False, to="allocation.node"
                        ),
                    ),
                    ("document", models.JSONField()),
                    ("at", models.DateTimeField()),
                ],
            ),
            migrations.CreateModel(
                name="NodeExamination",
                fields=[
                    (
                        "node",
                        models.OneToOneField(
                            on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name="examination", serialize=False, to="allocation.node"
                        ),
                    ),
                    ("checks", models.JSONField()),
                    ("seq", models.BigIntegerField(help_text="Number of the message.")),
                    ("at", models.DateTimeField(help_text="When the message was made.")),
                ],
            ),
            migrations.CreateModel(
                name="EnrolmentToken",
                fields=[
                    ("digest", models.BinaryField(max_length=32, primary_key=True, serialize=False)),
                    ("node", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, to="allocation.node")),
                    ("expires", models.DateTimeField()),
                    ("used_at", models.DateTimeField(blank=True, null=True)),
                    (
                        "made_with",
                        models.ForeignKey(
                            blank=True,
                            help_text="The operator's token that made it, with which it ends; null: a browser.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to="tenants.apitoken",
                        ),
                    ),
                    (
                        "engine_agent",
                        models.ForeignKey(
                            blank=True,
                            help_text="What it enrols in place of a node.",
                            null=True,
                            on_delete=django.db.models.deletion.CASCADE,
                            related_name="+",
                            to="allocation.engineagent",
                        ),
                    ),
                ],
                options={
                    "constraints": [
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("engine_agent__isnull", True), ("node__isnull", False)),
                                models.Q(("engine_agent__isnull", False), ("node__isnull", True)),
                                _connector="OR",
                            ),
                            name="token_enrols_one",
                        )
                    ],
                },
            ),
            migrations.CreateModel(
                name="GpuModel",
                fields=[
                    ("slug", models.SlugField(max_length=40, primary_key=True, serialize=False)),
                    ("product_name", models.CharField(max_length=80, unique=True)),
                    ("gpu_class", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.gpuclass")),
                    ("memory_mb", models.PositiveIntegerField()),
                    ("memory_slots", models.PositiveSmallIntegerField(default=8)),
                    ("compute_slices", models.PositiveSmallIntegerField(default=7)),
                    (
                        "mode_switch",
                        models.CharField(
                            choices=[("online", "Online"), ("reset", "Needs a reset")],
                            default="online",
                            help_text="How a GPU changes between whole and slices.",
                            max_length=6,
                        ),
                    ),
                    ("switch_seconds", models.PositiveSmallIntegerField(db_default=0, default=0, help_text="Time that a reset takes on an empty GPU.")),
                ],
                options={
                    "constraints": [
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("mode_switch", "online"), ("switch_seconds", 0)),
                                models.Q(("mode_switch", "reset"), ("switch_seconds__gte", 1), ("switch_seconds__lte", 600)),
                                _connector="OR",
                            ),
                            name="model_reset_takes_time",
                        )
                    ],
                },
            ),
            migrations.CreateModel(
                name="MigPlacement",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("model", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="placements", to="allocation.gpumodel")),
                    ("profile", models.CharField(max_length=24)),
                    ("profile_id", models.PositiveSmallIntegerField()),
                    ("start", models.PositiveSmallIntegerField()),
                    ("size", models.PositiveSmallIntegerField()),
                    ("compute", models.PositiveSmallIntegerField()),
                    ("limit", models.PositiveSmallIntegerField()),
                ],
                options={
                    "ordering": ["model_id", "profile", "start"],
                    "constraints": [
                        models.UniqueConstraint(fields=("model", "profile", "start", "size"), name="placement_once"),
                        models.CheckConstraint(condition=models.Q(("size__gte", 1), ("size__lte", 8), ("start__lte", 7)), name="placement_in_gpu"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="Gpu",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("number", models.BigIntegerField(help_text="Its slots are [8 * number, 8 * number + 8) among all slots.", unique=True)),
                    ("uuid", models.CharField(help_text="As NVML reports it.", max_length=80, unique=True)),
                    ("model", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="allocation.gpumodel")),
                    ("gpu_class", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.gpuclass")),
                    ("node", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="gpus", to="allocation.node")),
                    ("index", models.PositiveSmallIntegerField()),
                    ("domain", models.PositiveSmallIntegerField(blank=True, help_text="NVLink domain.", null=True)),
                    ("numa", models.SmallIntegerField(blank=True, help_text="NUMA node.", null=True)),
                    ("peers", models.JSONField(blank=True, db_default=[], default=list, help_text="Other GPUs of the node: [index, NVLinks, PCIe path].")),
                    ("health", models.CharField(choices=[("ok", "Healthy"), ("draining", "Draining"), ("lost", "Lost")], default="ok", max_length=10)),
                    ("health_reason", models.CharField(blank=True, max_length=200)),
                    ("health_text", models.JSONField(blank=True, help_text="Code and facts of `health_reason`; null in old rows.", null=True)),
                    ("drain_by", models.DateTimeField(blank=True, help_text="When work must have left; null: it runs to its end.", null=True)),
                    ("needs_operator", models.BooleanField(db_default=False, default=False, help_text="Only an operator can make it healthy again.")),
                    (
                        "mode",
                        models.CharField(
                            choices=[("whole", "Whole"), ("sliced", "Sliced"), ("shared", "Shared")],
                            default="whole",
                            help_text="As the agent read it.",
                            max_length=8,
                        ),
                    ),
                    (
                        "mode_wanted",
                        models.CharField(
                            blank=True,
                            choices=[("whole", "Whole"), ("sliced", "Sliced")],
                            db_default="",
                            default="",
                            help_text="Mode that the node was asked to set.",
                            max_length=8,
                        ),
                    ),
                    ("mode_wanted_at", models.DateTimeField(blank=True, null=True)),
                    (
                        "mode_pinned",
                        models.CharField(
                            blank=True,
                            choices=[("whole", "Whole"), ("sliced", "Sliced")],
                            db_default="",
                            default="",
                            help_text="Mode that an operator fixed.",
                            max_length=8,
                        ),
                    ),
                ],
                options={
                    "ordering": ["number"],
                    "constraints": [
                        models.CheckConstraint(
                            condition=models.Q(("health_text__isnull", True), models.Q(("health_reason", ""), _negated=True), _connector="OR"),
                            name="gpu_health_text_is_reason",
                        ),
                        models.UniqueConstraint(fields=("node", "index"), name="gpu_index_on_node"),
                        models.UniqueConstraint(fields=("id", "number", "model"), name="gpu_identity"),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("drain_by", None), ("needs_operator", False)), models.Q(("health", "ok"), _negated=True), _connector="OR"
                            ),
                            name="gpu_in_service_is_healthy",
                        ),
                        models.CheckConstraint(condition=models.Q(("mode_pinned__in", ["", "whole", "sliced"])), name="gpu_mode_pinned_is_one"),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("mode_wanted", ""), ("mode_wanted_at", None)),
                                models.Q(("mode_wanted__in", ["whole", "sliced"]), ("mode_wanted_at__isnull", False)),
                                _connector="OR",
                            ),
                            name="gpu_mode_wanted_since",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="PolicyVersion",
                fields=[
                    ("number", models.PositiveIntegerField(primary_key=True, serialize=False)),
                    ("document", models.JSONField()),
                    ("state", models.CharField(choices=[("draft", "Draft"), ("live", "Live"), ("retired", "Retired")], max_length=8)),
                    ("created", models.DateTimeField()),
                    ("created_by", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
                    (
                        "parts",
                        models.JSONField(
                            blank=True,
                            db_default=[],
                            default=list,
                            help_text="Parts of the site in which another version is in force: `version`, `classes`, `tenants` by id, and the `values` that it has otherwise there.",
                        ),
                    ),
                    (
                        "scenario",
                        models.JSONField(
                            blank=True, db_default={}, default=dict, help_text="What else it sets: `tiers`, `quotas` and `prices`; empty: nothing."
                        ),
                    ),
                ],
                options={
                    "constraints": [models.UniqueConstraint(condition=models.Q(("state", "live")), fields=("state",), name="policy_one_live")],
                },
            ),
            migrations.CreateModel(
                name="Decision",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("at", models.DateTimeField()),
                    ("leader_term", models.BigIntegerField()),
                    ("policy", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="allocation.policyversion")),
                    ("format", models.PositiveSmallIntegerField(db_default=2, default=2, help_text="3: by rows, as a keyframe or a delta.")),
                    (
                        "keyframe",
                        models.ForeignKey(
                            blank=True,
                            help_text="The decision with the whole documents; null if it is this one.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="deltas",
                            to="allocation.decision",
                        ),
                    ),
                    (
                        "base",
                        models.OneToOneField(
                            blank=True,
                            help_text="The decision before it, which its bytes are relative to.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to="allocation.decision",
                        ),
                    ),
                    ("snapshot", models.BinaryField()),
                    ("snapshot_sha256", models.CharField(max_length=64)),
                    ("plan", models.BinaryField()),
                    ("plan_sha256", models.CharField(max_length=64)),
                    ("software", models.CharField(help_text="Commit of the code, versions of its solver libraries.", max_length=160)),
                    ("solve_ms", models.PositiveIntegerField()),
                    ("counts", models.JSONField(db_default={}, default=dict, help_text="Rows of each part of the plan.")),
                    ("pieces", models.PositiveSmallIntegerField(db_default=1, default=1, help_text="Transactions that its changes are written in.")),
                    (
                        "withheld",
                        models.JSONField(
                            db_default=[],
                            default=list,
                            help_text="[kind, booking or order, why]: parts of the plan that were not written because a booking had changed since the snapshot.",
                        ),
                    ),
                    ("archived_in", models.CharField(db_default="", default="", help_text="Archive file with the bytes of snapshot and plan.", max_length=120)),
                    ("snapshot_archived", models.CharField(db_default="", default="", max_length=64)),
                    ("plan_archived", models.CharField(db_default="", default="", max_length=64)),
                ],
                options={
                    "ordering": ["-id"],
                    "constraints": [
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("base", None), ("keyframe", None)),
                                models.Q(("base__isnull", False), ("format", 3), ("keyframe__isnull", False)),
                                _connector="OR",
                            ),
                            name="decision_keyframe_or_delta",
                        )
                    ],
                },
            ),
            migrations.CreateModel(
                name="Booking",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("number", models.BigIntegerField(help_text="Unique in the tenant: 2041 is shown as BK-2041.")),
                    ("name", models.CharField(blank=True, max_length=80)),
                    (
                        "labels",
                        models.JSONField(
                            blank=True, db_default=models.Value({}, output_field=models.JSONField()), default=dict, help_text="Key-value pairs, at most 32."
                        ),
                    ),
                    ("external_ref", models.CharField(blank=True, db_default="", default="", help_text="URL or key of a ticket.", max_length=500)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("project", models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, to="tenants.project")),
                    ("owner", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
                    (
                        "campaign",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            help_text="The campaign whose budget counts it, too.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            to="billing.campaign",
                        ),
                    ),
                    ("tier", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tier")),
                    (
                        "series",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            help_text="The series that this booking is one date of.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="bookings",
                            to="allocation.series",
                        ),
                    ),
                    (
                        "array",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            help_text="The array that this booking is one element of.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="elements",
                            to="allocation.bookingarray",
                        ),
                    ),
                    ("array_index", models.PositiveIntegerField(blank=True, help_text="Its index in the array, from 1.", null=True)),
                    ("ask", models.JSONField(help_text="The request as `allocation.rules.ask` writes it.")),
                    ("request_text", models.CharField(blank=True, help_text="As it was typed.", max_length=200)),
                    ("zone", models.CharField(default="UTC", help_text="Time zone of the request.", max_length=64)),
                    ("submitted", models.DateTimeField()),
                    ("starts", models.DateTimeField(blank=True, help_text="Start of a fixed window; null for a flexible request.", null=True)),
                    ("not_before", models.DateTimeField(help_text="Earliest start.")),
                    ("deadline", models.DateTimeField(blank=True, help_text="Latest end.", null=True)),
                    ("duration_seconds", models.PositiveIntegerField(help_text="Length on the class that was chosen.")),
                    ("class_durations", models.JSONField(default=list, help_text="[class, seconds], cheapest first, where classes differ in speed.")),
                    ("extension_until", models.DateTimeField(blank=True, help_text="End that the owner asked to extend to; not yet decided.", null=True)),
                    (
                        "waitlist",
                        models.CharField(
                            blank=True,
                            choices=[("auto", "Book it"), ("offer", "Offer it")],
                            db_default="",
                            default="",
                            help_text="How it waits if its window is full; empty: it is refused.",
                            max_length=5,
                        ),
                    ),
                    (
                        "state",
                        models.CharField(choices=allocation.models.bookings.booking_states, default=allocation.rules.states.State["REQUESTED"], max_length=20),
                    ),
                    ("outcome", models.CharField(blank=True, help_text="How an ended booking ended.", max_length=20)),
                    ("awaits_parents", models.BooleanField(db_default=False, default=False, help_text="It depends on bookings that are not over.")),
                    (
                        "result",
                        models.CharField(
                            blank=True,
                            choices=[("success", "Success"), ("failure", "Failure")],
                            db_default="",
                            default="",
                            help_text="What its program has reported.",
                            max_length=8,
                        ),
                    ),
                    ("version", models.BigIntegerField(default=1, help_text="Rises with every change.")),
                    ("revision", models.PositiveIntegerField(db_default=1, default=1, help_text="Of the request: rises with each change of it.")),
                    ("ranked_at", models.DateTimeField(blank=True, help_text="Its place in line, if a change has given it another.", null=True)),
                    ("approved_hash", models.CharField(blank=True, db_default="", help_text="Digest that was approved; empty: none.", max_length=64)),
                    ("place_from", models.DateTimeField(blank=True, help_text="Earliest start of the place that is kept until then.", null=True)),
                    ("place_until", models.DateTimeField(blank=True, help_text="How long its place is kept while it awaits an approval.", null=True)),
                    ("has_override", models.BooleanField(db_default=False, default=False, help_text="A limit does not count it, or forbids it nothing.")),
                    (
                        "is_drained",
                        models.BooleanField(
                            db_default=False, default=False, help_text="A stop or a budget's ladder keeps it from starting; it has no planned start."
                        ),
                    ),
                    (
                        "may_borrow",
                        models.BooleanField(db_default=True, default=True, help_text="False while the ladder of a budget keeps it within guarantees."),
                    ),
                    (
                        "on_cheapest",
                        models.BooleanField(
                            db_default=False, default=False, help_text="The ladder of a budget wants the cheapest of its classes, not the first end."
                        ),
                    ),
                    (
                        "decision",
                        models.ForeignKey(
                            blank=True,
                            help_text="The decision that last planned or placed it.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to="allocation.decision",
                        ),
                    ),
                    ("planned_starts", models.DateTimeField(blank=True, null=True)),
                    ("planned_ends", models.DateTimeField(blank=True, null=True)),
                    (
                        "planned_strength",
                        models.CharField(
                            blank=True,
                            choices=[("firm", "Firm"), ("guaranteed", "Guaranteed"), ("expected", "Expected")],
                            help_text="Who may still delay the planned start; null if that is not known.",
                            max_length=10,
                            null=True,
                        ),
                    ),
                    ("announced_from", models.DateTimeField(blank=True, help_text="Start of the range that was last announced to the owner.", null=True)),
                    ("announced_until", models.DateTimeField(blank=True, help_text="Latest start that was announced to the owner.", null=True)),
                    ("planned_class", models.CharField(blank=True, max_length=40)),
                    ("planned_places", models.JSONField(default=list, help_text="{gpu, profile, start, size, share}.")),
                    ("reasons", models.JSONField(default=list, help_text="Why it does not start now.")),
                    ("alternatives", models.JSONField(default=list, help_text="Other ways to serve the request.")),
                    ("first_planned_start", models.DateTimeField(blank=True, help_text="The first planned start that was ever shown.", null=True)),
                    ("first_planned_at", models.DateTimeField(blank=True, help_text="When the first planned start was decided.", null=True)),
                    ("borrowed_units", models.BigIntegerField(db_default=0, default=0, help_text="Units above guarantees, of what it has or is planned.")),
                    ("at_risk_from", models.DateTimeField(blank=True, help_text="When a lender starts to wait for the borrowed units.", null=True)),
                    ("reclaims_from", models.DateTimeField(blank=True, help_text="When this booking starts to wait for units that are lent.", null=True)),
                    ("claimed_from", models.DateTimeField(blank=True, help_text="When it first waited for units that are lent.", null=True)),
                    ("currency", models.CharField(default="EUR", max_length=3)),
                    ("price_version", models.PositiveIntegerField(help_text="The price book that was in force.")),
                    ("price_per_hour", models.DecimalField(decimal_places=6, help_text="Of the whole booking.", max_digits=20)),
                    ("price_lines", models.JSONField(default=list, help_text="[{seconds, per_hour}] in order, if parts of its time have different prices.")),
                    ("peak_surcharge", models.DecimalField(db_default=0, decimal_places=6, default=0, help_text="More per hour in peak hours.", max_digits=20)),
                    ("peak_zone", models.CharField(blank=True, db_default="", default="", max_length=64)),
                    ("peak_weekly", models.JSONField(db_default=[], default=list, help_text="Peak hours, as its price book has them.")),
                    ("hold_amount", models.DecimalField(decimal_places=6, help_text="The most that it can cost.", max_digits=20)),
                    (
                        "settled",
                        models.DecimalField(db_default=0, decimal_places=6, default=0, help_text="Charged for earlier runs, out of the hold.", max_digits=20),
                    ),
                    (
                        "charged",
                        models.DecimalField(blank=True, decimal_places=6, help_text="Charged in all; null until it is over.", max_digits=20, null=True),
                    ),
                    (
                        "corrected",
                        models.DecimalField(
                            db_default=0, decimal_places=6, default=0, help_text="Operators' later corrections; refunds are < 0.", max_digits=20
                        ),
                    ),
                    ("fee_seconds", models.PositiveIntegerField(db_default=0, default=0, help_text="Charged beyond the use: a no-show's fee.")),
                    ("notice_seconds", models.PositiveIntegerField(db_default=0, default=0, help_text="As its tier had it when it was booked or changed.")),
                    ("late_share", models.PositiveSmallIntegerField(db_default=0, default=0, help_text="Percent of the price of time that is given up late.")),
                    ("setup_fee", models.DecimalField(db_default=0, decimal_places=6, default=0, help_text="Charged once, at the first start.", max_digits=20)),
                    (
                        "setup_paid",
                        models.DecimalField(db_default=0, decimal_places=6, default=0, help_text="What of it is charged, a part of `settled`.", max_digits=20),
                    ),
                    (
                        "late_fees",
                        models.DecimalField(db_default=0, decimal_places=6, default=0, help_text="Charged for late time, a part of `settled`.", max_digits=20),
                    ),
                    (
                        "late_refunded",
                        models.DecimalField(db_default=0, decimal_places=6, default=0, help_text="Late shares that an undo has given back.", max_digits=20),
                    ),
                    (
                        "cooling_until",
                        models.DateTimeField(
                            blank=True,
                            help_text="It was cancelled after others had notice for it: until then nobody is paused for its owner on its class.",
                            null=True,
                        ),
                    ),
                    ("ready_at", models.DateTimeField(blank=True, help_text="When its GPUs were ready.", null=True)),
                    ("checked_in_at", models.DateTimeField(blank=True, help_text="First sign of use.", null=True)),
                    ("saved_at", models.DateTimeField(blank=True, help_text="Last save of the work.", null=True)),
                    ("notified_at", models.DateTimeField(blank=True, help_text="When the notice of a pause was given.", null=True)),
                    ("released_at", models.DateTimeField(blank=True, help_text="When its run ended.", null=True)),
                    ("ended_at", models.DateTimeField(blank=True, help_text="When the booking was over.", null=True)),
                    ("hardware_lost_at", models.DateTimeField(blank=True, help_text="When hardware or its maintenance last broke a run.", null=True)),
                    ("pause_count", models.PositiveSmallIntegerField(db_default=0, default=0)),
                    ("replacement_count", models.PositiveSmallIntegerField(db_default=0, default=0, help_text="How often it was restarted on other nodes.")),
                    ("used_seconds", models.PositiveIntegerField(db_default=0, default=0, help_text="Of earlier runs that still have to be charged.")),
                    ("used_peak_seconds", models.PositiveIntegerField(db_default=0, default=0, help_text="Those of `used_seconds` that were in peak hours.")),
                    ("redo_seconds", models.PositiveIntegerField(db_default=0, default=0, help_text="Credited by pauses and not done again yet.")),
                    ("credited_seconds", models.PositiveIntegerField(db_default=0, default=0, help_text="Credited by pauses in all.")),
                    ("idle_seconds", models.PositiveIntegerField(db_default=0, default=0, help_text="Time with all GPUs idle without a break.")),
                    ("idle_counted_at", models.DateTimeField(blank=True, help_text="Until when `idle_seconds` are counted.", null=True)),
                    ("idle_veto_until", models.DateTimeField(blank=True, help_text="Until then its warned owner can say it is still needed.", null=True)),
                    ("idle_vetoes", models.PositiveSmallIntegerField(db_default=0, default=0, help_text="How often in a row the owner said so.")),
                    (
                        "awaits_check_in",
                        models.BooleanField(db_default=False, default=False, help_text="Paused because its GPUs were idle; it resumes only after a check-in."),
                    ),
                    ("absent_seconds", models.PositiveIntegerField(db_default=0, default=0, help_text="Time without any sign of use, up to `absent_until`.")),
                    ("absent_until", models.DateTimeField(blank=True, null=True)),
                    ("absence_warnings", models.PositiveSmallIntegerField(db_default=0, default=0, help_text="Warnings sent to the owner.")),
                    ("changed_at", models.DateTimeField(blank=True, help_text="Time of the last change; null: none since submission.", null=True)),
                    (
                        "by_cost",
                        models.BooleanField(
                            db_default=False, default=False, help_text="Its project lets the portal take the class that costs least, not the first end."
                        ),
                    ),
                    (
                        "pool",
                        models.CharField(
                            blank=True, db_default="", default="", help_text="The pool whose nodes it is planned on; empty: nodes of none.", max_length=40
                        ),
                    ),
                ],
                options={
                    "ordering": ["-submitted", "id"],
                    "indexes": [
                        models.Index(
                            condition=models.Q(("state__in", ["ended", "refused", "rejected", "expired", "cancelled", "failed"]), _negated=True),
                            fields=["state", "planned_starts"],
                            name="booking_open",
                        ),
                        models.Index(
                            condition=models.Q(("borrowed_units__gt", 0), ("at_risk_from__isnull", False), ("reclaims_from__isnull", False), _connector="OR"),
                            fields=["state"],
                            name="booking_borrowing",
                        ),
                        models.Index(condition=models.Q(("extension_until__isnull", False)), fields=["state"], name="booking_extended"),
                        models.Index(condition=models.Q(("is_drained", True)), fields=["tenant"], name="booking_drained"),
                        models.Index(condition=models.Q(("cooling_until__isnull", False)), fields=["cooling_until"], name="booking_cooling"),
                        models.Index(condition=models.Q(("may_borrow", False)), fields=["tenant"], name="booking_kept_within"),
                        models.Index(condition=models.Q(("on_cheapest", True)), fields=["tenant"], name="booking_on_cheapest"),
                        models.Index(fields=["tenant", "-submitted"], include=("id", "number", "name", "project", "owner"), name="booking_search"),
                        models.Index(fields=["tenant", "project", "-submitted"], include=("id", "number", "name", "owner"), name="booking_search_in_project"),
                        models.Index(condition=models.Q(("external_ref", ""), _negated=True), fields=["tenant", "external_ref"], name="booking_by_reference"),
                        models.Index(
                            condition=models.Q(("first_planned_start__isnull", False)), fields=["tier", "-first_planned_start"], name="booking_first_planned"
                        ),
                        models.Index(condition=models.Q(("ready_at__isnull", False)), fields=["-ended_at"], name="booking_finished_runs"),
                        models.Index(condition=models.Q(("has_override", True)), fields=["has_override"], name="booking_overridden"),
                        models.Index(condition=models.Q(("ask__has_key", "data")), fields=["state"], name="booking_with_data"),
                    ],
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "number", "array_index"), name="booking_number_in_tenant_once", nulls_distinct=False),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("array", None), ("array_index", None)),
                                models.Q(("array__isnull", False), ("array_index__gte", 1), ("array_index__isnull", False)),
                                _connector="OR",
                            ),
                            name="booking_index_of_an_array",
                        ),
                        models.UniqueConstraint(fields=("tenant", "id"), name="booking_id_in_tenant"),
                        models.CheckConstraint(condition=models.Q(("external_ref__regex", "^\\S*$")), name="booking_reference_sane"),
                        models.CheckConstraint(
                            condition=models.Q(("duration_seconds__gte", 60), ("duration_seconds__lte", 7776000)), name="booking_duration_sane"
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                ("hold_amount__gte", 0),
                                ("price_per_hour__gte", 0),
                                models.Q(("charged", None), models.Q(("charged__gte", 0), ("charged__lte", models.F("hold_amount"))), _connector="OR"),
                            ),
                            name="booking_money_sane",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                ("corrected", 0),
                                models.Q(
                                    ("charged__isnull", False),
                                    ("corrected__gte", django.db.models.expressions.CombinedExpression(models.F("charged"), "*", models.Value(-1))),
                                    ("corrected__lte", django.db.models.expressions.CombinedExpression(models.F("hold_amount"), "-", models.F("charged"))),
                                ),
                                _connector="OR",
                            ),
                            name="booking_correction_sane",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(("late_refunded__gte", 0), ("late_refunded__lte", models.F("late_fees"))), name="booking_refund_within_late_fees"
                        ),
                        models.CheckConstraint(condition=models.Q(("settled__gte", 0), ("settled__lte", models.F("hold_amount"))), name="booking_settled_sane"),
                        models.CheckConstraint(
                            condition=models.Q(
                                ("planned_strength", None),
                                models.Q(("planned_starts__isnull", False), ("planned_strength__in", ["firm", "guaranteed", "expected"])),
                                _connector="OR",
                            ),
                            name="booking_strength_of_a_start",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("announced_from", None), ("announced_until", None)),
                                models.Q(
                                    ("announced_from__isnull", False),
                                    ("announced_until__gte", models.F("announced_from")),
                                    ("announced_until__isnull", False),
                                    ("planned_starts__isnull", False),
                                ),
                                _connector="OR",
                            ),
                            name="booking_announced_range_sane",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="Allocation",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    (
                        "booking",
                        models.ForeignKey(
                            db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name="allocations", to="allocation.booking"
                        ),
                    ),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("project", models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, to="tenants.project")),
                    (
                        "decision",
                        models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="allocation.decision"),
                    ),
                    ("gpu", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="allocation.gpu")),
                    ("gpu_number", models.BigIntegerField()),
                    ("model", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="allocation.gpumodel")),
                    ("mode", models.CharField(choices=[("whole", "Whole"), ("sliced", "Sliced"), ("shared", "Shared")], max_length=8)),
                    ("profile", models.CharField(blank=True, max_length=24, null=True)),
                    ("start", models.PositiveSmallIntegerField(help_text="First memory slot of the slice.")),
                    ("size", models.PositiveSmallIntegerField(help_text="Memory slots of the slice; 8 are a GPU.")),
                    ("share", models.PositiveSmallIntegerField(blank=True, help_text="Thousandths of a shared GPU.", null=True)),
                    (
                        "slots",
                        models.GeneratedField(
                            db_persist=True,
                            expression=models.Func(
                                django.db.models.expressions.CombinedExpression(
                                    django.db.models.expressions.CombinedExpression(models.F("gpu_number"), "*", models.Value(8)), "+", models.F("start")
                                ),
                                django.db.models.expressions.CombinedExpression(
                                    django.db.models.expressions.CombinedExpression(
                                        django.db.models.expressions.CombinedExpression(models.F("gpu_number"), "*", models.Value(8)), "+", models.F("start")
                                    ),
                                    "+",
                                    models.F("size"),
                                ),
                                function="int8range",
                                output_field=django.contrib.postgres.fields.ranges.BigIntegerRangeField(),
                            ),
                            help_text="[8 * gpu_number + start, + size): unique slots over all GPUs.",
                            output_field=django.contrib.postgres.fields.ranges.BigIntegerRangeField(),
                        ),
                    ),
                    ("units", models.BigIntegerField(help_text="Quota and price units of the place.")),
                    ("period", django.contrib.postgres.fields.ranges.DateTimeRangeField()),
                    ("granted_cycle", models.BigIntegerField(blank=True, help_text="The decision that wrote this row; null for older rows.", null=True)),
                    ("granted_position", models.PositiveIntegerField(blank=True, help_text="Its booking's place in the queue of that decision.", null=True)),
                    ("preemptor", models.BooleanField(db_default=False, default=False, help_text="Another booking was paused for this row.")),
                    ("extended_from", models.DateTimeField(blank=True, help_text="From here on the row has the grant of its extension.", null=True)),
                    ("extended_cycle", models.BigIntegerField(blank=True, help_text="The decision that granted the extension.", null=True)),
                    (
                        "state",
                        models.CharField(
                            choices=[
                                ("planned", "Planned"),
                                ("starting", "Starting"),
                                ("active", "Active"),
                                ("releasing", "Releasing"),
                                ("ended", "Ended"),
                                ("superseded", "Superseded"),
                            ],
                            default="planned",
                            max_length=12,
                        ),
                    ),
                    ("devices", models.JSONField(default=list, help_text="Device names that the agent reported.")),
                    (
                        "agent_steps",
                        models.JSONField(
                            blank=True,
                            help_text="Name, start and length in ms of what its agent did until it was ready; null unless traces are on, or data was fetched.",
                            null=True,
                        ),
                    ),
                    ("error", models.CharField(blank=True, help_text="Why the agent failed to start.", max_length=200)),
                    ("saved_at", models.DateTimeField(blank=True, help_text="Last save here, as the agent reported it.", null=True)),
                    ("suspended", models.BooleanField(db_default=False, default=False, help_text="Its processes are suspended on the node.")),
                    ("leased", models.BooleanField(db_default=False, default=False, help_text="The node ends it when its lease runs out.")),
                    (
                        "abandoned",
                        models.BooleanField(
                            db_default=False, default=False, help_text="The booking continues without it; only the proof of empty hardware is due."
                        ),
                    ),
                    ("counted_seconds", models.PositiveIntegerField(db_default=0, default=0, help_text="Charged time of the run that was abandoned here.")),
                    ("job", models.PositiveBigIntegerField(blank=True, help_text="Number of the job by which the node's engine holds the device.", null=True)),
                ],
                options={
                    "indexes": [models.Index(fields=["booking"], name="allocation_of_booking")],
                    "constraints": [
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("mode", "whole"), ("profile", None), ("share", None), ("size", 8), ("start", 0)),
                                models.Q(("mode", "sliced"), ("profile__isnull", False), ("share", None)),
                                models.Q(("mode", "shared"), ("profile", None), ("share__gte", 1), ("share__lte", 999), ("size", 8), ("start", 0)),
                                _connector="OR",
                            ),
                            name="allocation_mode_fits",
                        ),
                        models.CheckConstraint(condition=models.Q(("units__gt", 0)), name="allocation_units"),
                        models.CheckConstraint(
                            condition=models.Q(("abandoned", False), ("state__in", ["releasing", "ended"]), _connector="OR"),
                            name="allocation_abandoned_is_over",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("granted_cycle", None), ("granted_position", None)),
                                models.Q(("granted_cycle__isnull", False), ("granted_position__isnull", False)),
                                _connector="OR",
                            ),
                            name="allocation_grant_whole",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("extended_cycle", None), ("extended_from", None)),
                                models.Q(("extended_cycle__isnull", False), ("extended_from__isnull", False)),
                                _connector="OR",
                            ),
                            name="allocation_extension_whole",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="Occupancy",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("allocation", models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, to="allocation.allocation")),
                    ("gpu", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="allocation.gpu")),
                    ("slots", django.contrib.postgres.fields.ranges.BigIntegerRangeField()),
                    ("share", models.PositiveSmallIntegerField(blank=True, help_text="Thousandths of a shared GPU.", null=True)),
                    ("opened", models.DateTimeField()),
                    ("closed", models.DateTimeField(blank=True, null=True)),
                ],
            ),
            migrations.CreateModel(
                name="DecisionPiece",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("decision", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="written", to="allocation.decision")),
                    ("number", models.PositiveSmallIntegerField(help_text="From 1 to the decision's `pieces`.")),
                    ("withheld", models.JSONField(default=list, help_text="As the decision's.")),
                ],
                options={
                    "constraints": [models.UniqueConstraint(fields=("decision", "number"), name="decision_piece_once")],
                },
            ),
            migrations.CreateModel(
                name="DecisionReplay",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("decision", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="replays", to="allocation.decision")),
                    ("asked_at", models.DateTimeField()),
                    (
                        "asked_by",
                        models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL),
                    ),
                    ("started_at", models.DateTimeField(blank=True, null=True)),
                    ("attempts", models.PositiveSmallIntegerField(default=0)),
                    ("finished_at", models.DateTimeField(blank=True, null=True)),
                    (
                        "outcome",
                        models.CharField(
                            blank=True,
                            choices=[
                                ("same", "Same result"),
                                ("different", "Another result"),
                                ("damaged", "The stored bytes are damaged"),
                                ("archived", "Its documents are in the archive"),
                                ("failed", "It did not end"),
                            ],
                            max_length=10,
                        ),
                    ),
                    ("note", models.CharField(blank=True, help_text="What is wrong, if anything.", max_length=200)),
                    ("comparison", models.CharField(blank=True, help_text="`bytes`, or `meaning` for a plan of format 1.", max_length=8)),
                    ("snapshot_sha256", models.CharField(blank=True, max_length=64)),
                    ("plan_sha256", models.CharField(blank=True, max_length=64)),
                    ("software", models.CharField(blank=True, help_text="That replayed it.", max_length=160)),
                    ("took_ms", models.PositiveIntegerField(default=0)),
                ],
                options={
                    "ordering": ["-asked_at", "id"],
                    "indexes": [
                        models.Index(condition=models.Q(("finished_at", None)), fields=["asked_at"], name="replay_open"),
                        models.Index(fields=["decision", "-asked_at"], name="replay_of_decision"),
                        models.Index(condition=models.Q(("asked_by", None)), fields=["-asked_at"], name="replay_nightly"),
                    ],
                    "constraints": [
                        models.UniqueConstraint(condition=models.Q(("finished_at", None)), fields=("decision",), name="replay_one_open"),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("finished_at", None), ("outcome", "")),
                                models.Q(("finished_at__isnull", False), models.Q(("outcome", ""), _negated=True)),
                                _connector="OR",
                            ),
                            name="replay_ends_with_an_outcome",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="QueuePlace",
                fields=[
                    (
                        "booking",
                        models.OneToOneField(
                            db_constraint=False,
                            on_delete=django.db.models.deletion.PROTECT,
                            primary_key=True,
                            related_name="+",
                            serialize=False,
                            to="allocation.booking",
                        ),
                    ),
                    (
                        "key",
                        django.contrib.postgres.fields.ArrayField(
                            base_field=models.BigIntegerField(), help_text="As `Waiting.key` has it; of two, the lower goes first.", size=None
                        ),
                    ),
                ],
            ),
            migrations.CreateModel(
                name="MachineClock",
                fields=[
                    ("machine", models.CharField(max_length=64, primary_key=True, serialize=False)),
                    ("clock_offset", models.DurationField(help_text="Wall clock minus monotonic clock.")),
                    ("jump", models.DurationField(blank=True, help_text="How far the wall clock jumped; null if it did not.", null=True)),
                ],
            ),
            migrations.CreateModel(
                name="SolverState",
                fields=[
                    ("id", models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                    ("leader_term", models.BigIntegerField(default=0)),
                    ("epoch", models.BigIntegerField(default=1, help_text="Rises when the database is restored.")),
                    (
                        "withheld_cycles",
                        models.PositiveIntegerField(db_default=0, default=0, help_text="Cycles in a row that could not write all they decided."),
                    ),
                ],
                options={
                    "constraints": [models.CheckConstraint(condition=models.Q(("id", 1)), name="solver_state_single")],
                },
            ),
            migrations.CreateModel(
                name="BookingChange",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    (
                        "booking",
                        models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name="changes", to="allocation.booking"),
                    ),
                    ("group", models.UUIDField(blank=True, help_text="Changes that are made all or none.", null=True)),
                    ("is_partial", models.BooleanField(db_default=False, default=False, help_text="It may be made without the rest of its group.")),
                    ("strength", models.CharField(help_text="Word, weaker or stronger.", max_length=8)),
                    (
                        "state",
                        models.CharField(
                            choices=[
                                ("asked", "Asked"),
                                ("awaiting_approval", "Awaiting approval"),
                                ("changed", "Changed"),
                                ("kept", "Kept"),
                                ("replaced", "Replaced"),
                                ("withdrawn", "Withdrawn"),
                            ],
                            max_length=20,
                        ),
                    ),
                    ("base_revision", models.PositiveIntegerField(help_text="Of the booking when it was asked.")),
                    ("target", models.JSONField(help_text="The fields of the booking that it asks for.")),
                    ("before", models.JSONField(help_text="The same fields as they were.")),
                    ("differences", models.JSONField(default=dict, help_text="Before and after, by field.")),
                    ("until", models.DateTimeField(blank=True, help_text="The later end that is asked for, of a running booking.", null=True)),
                    (
                        "gives_back",
                        models.JSONField(
                            db_default=models.Value([], output_field=models.JSONField()), default=list, help_text="Allocations that a running booking gives up."
                        ),
                    ),
                    (
                        "keep_trying_until",
                        models.DateTimeField(blank=True, help_text="It waits for room until then; null: if there is none it is kept as it is.", null=True),
                    ),
                    (
                        "is_sooner",
                        models.BooleanField(
                            db_default=False, default=False, help_text="Any earlier start is taken, and becomes the start of the fixed window."
                        ),
                    ),
                    ("calendar_due", models.BooleanField(default=False, help_text="The calendar has still to give up what the change gave up.")),
                    ("start_by", models.DateTimeField(blank=True, help_text="Latest start.", null=True)),
                    (
                        "least_strength",
                        models.CharField(
                            blank=True,
                            choices=[("firm", "Firm"), ("guaranteed", "Guaranteed"), ("expected", "Expected")],
                            help_text="The least that the start may be worth; empty: not less than before.",
                            max_length=10,
                        ),
                    ),
                    ("delta_held", models.DecimalField(decimal_places=6, default=0, help_text="Held for the added cost until it is decided.", max_digits=20)),
                    (
                        "late_fee",
                        models.DecimalField(db_default=0, decimal_places=6, default=0, help_text="The most that what it gives up late costs.", max_digits=20),
                    ),
                    (
                        "undoes",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            help_text="The change that it takes back.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to="allocation.bookingchange",
                        ),
                    ),
                    (
                        "restores",
                        models.JSONField(
                            db_default=models.Value({}, output_field=models.JSONField()),
                            default=dict,
                            help_text="What an undo gives back besides `before`, as it was when the change was made.",
                        ),
                    ),
                    ("asked_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    ("asked_at", models.DateTimeField(help_text="Its place in the queue, too.")),
                    ("decided_at", models.DateTimeField(blank=True, null=True)),
                    (
                        "decision",
                        models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="allocation.decision"),
                    ),
                    ("reasons", models.JSONField(default=list, help_text="Why the booking keeps what it has.")),
                    ("alternatives", models.JSONField(default=list, help_text="Windows that would work.")),
                ],
                options={
                    "ordering": ["-asked_at", "id"],
                    "indexes": [
                        models.Index(fields=["tenant", "booking", "-asked_at"], name="change_of_booking"),
                        models.Index(
                            condition=models.Q(("state__in", ["asked", "awaiting_approval"]), ("calendar_due", True), _connector="OR"),
                            fields=["state"],
                            name="change_to_do",
                        ),
                    ],
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "id"), name="change_id_in_tenant"),
                        models.UniqueConstraint(
                            condition=models.Q(("state__in", ["asked", "awaiting_approval"])), fields=("booking",), name="change_open_once"
                        ),
                        models.UniqueConstraint(condition=models.Q(("state__in", ["asked", "changed"])), fields=("undoes",), name="change_undone_once"),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("decided_at", None), ("state__in", ["asked", "awaiting_approval"])),
                                models.Q(("decided_at__isnull", False), ("state__in", ["changed", "kept", "replaced", "withdrawn"])),
                                _connector="OR",
                            ),
                            name="change_decided_or_open",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(("strength__in", ["word", "weaker", "stronger"]), ("delta_held__gte", 0)), name="change_sane"
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="ApprovalRule",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    (
                        "project",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            help_text="The project that it is for; null for all of the organisation.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            to="tenants.project",
                        ),
                    ),
                    ("name", models.CharField(max_length=80)),
                    ("min_cost", models.DecimalField(blank=True, decimal_places=6, max_digits=20, null=True)),
                    ("min_gpu_hours", models.DecimalField(blank=True, decimal_places=3, max_digits=12, null=True)),
                    ("min_gpus", models.PositiveIntegerField(blank=True, help_text="At once.", null=True)),
                    ("min_seconds", models.PositiveIntegerField(blank=True, help_text="Length.", null=True)),
                    ("classes", models.JSONField(default=list, help_text="GPU classes; empty for all.")),
                    ("tiers", models.JSONField(default=list, help_text="Tiers; empty for all.")),
                    ("hours_begin", models.TimeField(blank=True, help_text="Outside of these hours only.", null=True)),
                    ("hours_end", models.TimeField(blank=True, null=True)),
                    ("weekdays", models.JSONField(default=list, help_text="Days of these hours; 0 is Monday.")),
                    ("zone", models.CharField(default="UTC", help_text="Time zone of the hours.", max_length=64)),
                    ("is_first", models.BooleanField(default=False, help_text="A person's first in the project.")),
                    ("steps", models.JSONField(help_text="[{role, needed, hours, escalates}], in order.")),
                    ("created", models.DateTimeField()),
                    ("created_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    ("retired", models.DateTimeField(blank=True, null=True)),
                    (
                        "retired_by",
                        models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL),
                    ),
                    ("version", models.PositiveIntegerField(db_default=1, default=1, help_text="Rises with every change.")),
                ],
                options={
                    "ordering": ["created", "id"],
                    "indexes": [models.Index(condition=models.Q(("retired", None)), fields=["tenant"], name="approval_rule_in_force")],
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "id"), name="approval_rule_in_tenant"),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("min_cost", None), ("min_cost__gt", 0), _connector="OR"),
                                models.Q(("min_gpu_hours", None), ("min_gpu_hours__gt", 0), _connector="OR"),
                                models.Q(("min_gpus", None), ("min_gpus__gt", 0), _connector="OR"),
                                models.Q(("min_seconds", None), ("min_seconds__gt", 0), _connector="OR"),
                            ),
                            name="approval_rule_amounts_sane",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("hours_begin", None), ("hours_end", None), ("weekdays", [])),
                                models.Q(
                                    ("hours_begin__isnull", False),
                                    ("hours_end__gt", models.F("hours_begin")),
                                    ("hours_end__isnull", False),
                                    models.Q(("weekdays", []), _negated=True),
                                ),
                                _connector="OR",
                            ),
                            name="approval_rule_hours_sane",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                ("min_cost__isnull", False),
                                ("min_gpu_hours__isnull", False),
                                ("min_gpus__isnull", False),
                                ("min_seconds__isnull", False),
                                models.Q(("classes", []), _negated=True),
                                models.Q(("tiers", []), _negated=True),
                                ("hours_begin__isnull", False),
                                ("is_first", True),
                                _connector="OR",
                            ),
                            name="approval_rule_states_something",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(models.Q(("retired", None), ("retired_by", None)), ("retired__gte", models.F("created")), _connector="OR"),
                            name="approval_rule_retired_later",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="Approval",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("project", models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, to="tenants.project")),
                    (
                        "booking",
                        models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name="approvals", to="allocation.booking"),
                    ),
                    (
                        "series",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            help_text="All of its dates are decided together.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            to="allocation.series",
                        ),
                    ),
                    (
                        "change",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            help_text="The change that is to be approved; null for the booking itself.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="approvals",
                            to="allocation.bookingchange",
                        ),
                    ),
                    ("asker", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    ("digest", models.CharField(help_text="SHA-256 of what is to be approved.", max_length=64)),
                    (
                        "covers",
                        models.JSONField(
                            db_default=[], default=list, help_text="Digests of larger requests that it was before: approving one approves it, too."
                        ),
                    ),
                    ("rules", models.JSONField(help_text="Rules that the booking meets: {id, name}.")),
                    ("asked", models.DateTimeField()),
                    ("steps", models.JSONField(help_text="As those of a rule.")),
                    ("step", models.PositiveSmallIntegerField(default=1)),
                    ("decide_by", models.DateTimeField(help_text="End of the present step.")),
                    ("latest", models.DateTimeField(blank=True, help_text="When an approval comes too late for the booking.", null=True)),
                    (
                        "state",
                        models.CharField(
                            choices=[
                                ("open", "Waiting"),
                                ("approved", "Approved"),
                                ("declined", "Declined"),
                                ("expired", "Expired"),
                                ("withdrawn", "Withdrawn"),
                            ],
                            default="open",
                            max_length=10,
                        ),
                    ),
                    ("decided", models.DateTimeField(blank=True, null=True)),
                    (
                        "decided_by",
                        models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL),
                    ),
                    ("reason", models.CharField(blank=True, max_length=200)),
                ],
                options={
                    "ordering": ["asked", "id"],
                    "indexes": [
                        models.Index(condition=models.Q(("state", "open")), fields=["tenant", "asked", "id"], name="approval_inbox"),
                        models.Index(fields=["tenant", "-decided", "id"], name="approval_decided"),
                        models.Index(condition=models.Q(("state", "open")), fields=["decide_by"], name="approval_due"),
                    ],
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "id"), name="approval_id_in_tenant"),
                        models.UniqueConstraint(condition=models.Q(("state", "open")), fields=("booking",), name="approval_one_open"),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("decided", None), ("decided_by", None), ("state", "open")),
                                models.Q(
                                    ("decided__gte", models.F("asked")),
                                    ("decided__lt", models.F("decide_by")),
                                    ("decided_by__isnull", False),
                                    ("state__in", ["approved", "declined"]),
                                ),
                                models.Q(("decided__gte", models.F("decide_by")), ("decided_by", None), ("state", "expired")),
                                models.Q(("decided__isnull", False), ("decided_by", None), ("state", "withdrawn")),
                                _connector="OR",
                            ),
                            name="approval_decided_in_time",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(("decided_by", None), models.Q(("decided_by", models.F("asker")), _negated=True), _connector="OR"),
                            name="approval_by_another",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="ApprovalAct",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    (
                        "approval",
                        models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name="acts", to="allocation.approval"),
                    ),
                    ("step", models.PositiveSmallIntegerField()),
                    ("person", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    (
                        "principal",
                        models.ForeignKey(
                            blank=True,
                            help_text="The approver that the person stood in for; null: nobody.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to=settings.AUTH_USER_MODEL,
                        ),
                    ),
                    ("verdict", models.CharField(choices=[("approve", "Approved"), ("decline", "Declined")], max_length=8)),
                    ("reason", models.CharField(blank=True, max_length=200)),
                    ("at", models.DateTimeField()),
                ],
                options={
                    "ordering": ["id"],
                    "constraints": [models.UniqueConstraint(fields=("approval", "person"), name="approval_act_once")],
                },
            ),
            migrations.CreateModel(
                name="BookingEvent",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    (
                        "booking",
                        models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name="events", to="allocation.booking"),
                    ),
                    ("at", models.DateTimeField()),
                    ("kind", models.CharField(max_length=40)),
                    ("state", models.CharField(choices=allocation.models.bookings.booking_states, max_length=20)),
                    ("sentence", models.CharField(max_length=300)),
                    ("actor", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
                    ("detail", models.JSONField(default=dict)),
                ],
                options={
                    "ordering": ["id"],
                    "indexes": [models.Index(fields=["tenant", "booking", "id"], name="event_of_booking")],
                },
            ),
            migrations.CreateModel(
                name="MovedStart",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    (
                        "booking",
                        models.ForeignKey(
                            db_constraint=False,
                            db_index=False,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="moved_starts",
                            to="allocation.booking",
                        ),
                    ),
                    ("at", models.DateTimeField()),
                    ("decision", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="allocation.decision")),
                    ("was_from", models.DateTimeField()),
                    ("was_until", models.DateTimeField()),
                    ("now_from", models.DateTimeField()),
                    ("now_until", models.DateTimeField()),
                    (
                        "strength",
                        models.CharField(
                            choices=[("firm", "Firm"), ("guaranteed", "Guaranteed"), ("expected", "Expected")],
                            help_text="Of the start that was left.",
                            max_length=10,
                        ),
                    ),
                    ("rule", models.CharField(max_length=8)),
                    ("overtaken_by", models.CharField(blank=True, help_text="Key of the order by which another booking goes first.", max_length=10)),
                    ("is_own", models.BooleanField(help_text="The own organisation's work goes first.")),
                    (
                        "claimant",
                        models.ForeignKey(
                            blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="allocation.booking"
                        ),
                    ),
                    ("reason", models.JSONField(help_text="The reason as the plan gives it.")),
                ],
                options={
                    "ordering": ["id"],
                    "indexes": [
                        models.Index(fields=["tenant", "booking", "id"], name="moved_start_of_booking"),
                        models.Index(fields=["at"], name="moved_start_by_time"),
                    ],
                    "constraints": [
                        models.CheckConstraint(
                            condition=models.Q(
                                ("now_from__gt", models.F("was_until")), ("now_until__gte", models.F("now_from")), ("was_until__gte", models.F("was_from"))
                            ),
                            name="moved_start_is_later",
                        ),
                        models.CheckConstraint(condition=models.Q(("claimant", None), ("is_own", True), _connector="OR"), name="moved_start_names_own_only"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="ChargeSum",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    (
                        "account",
                        models.ForeignKey(
                            db_constraint=False,
                            db_index=False,
                            help_text="The account of the project's budget that paid.",
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to="billing.account",
                        ),
                    ),
                    ("day", models.DateField()),
                    (
                        "owner",
                        models.ForeignKey(
                            db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
                        ),
                    ),
                    ("tier", models.CharField(blank=True, max_length=40)),
                    ("gpu_class", models.CharField(blank=True, max_length=40)),
                    (
                        "campaign",
                        models.ForeignKey(
                            db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.campaign"
                        ),
                    ),
                    ("lines", models.PositiveIntegerField()),
                    ("corrections", models.PositiveIntegerField()),
                    ("exact", models.DecimalField(decimal_places=6, help_text="As the ledger has it.", max_digits=20)),
                    ("amount", models.DecimalField(decimal_places=2, help_text="Of the lines, each rounded half-even to cents.", max_digits=20)),
                ],
                options={
                    "indexes": [models.Index(fields=["tenant", "day"], name="charge_sum_day")],
                    "constraints": [
                        models.UniqueConstraint(
                            fields=("account", "day", "owner", "tier", "gpu_class", "campaign"), name="charge_sum_once", nulls_distinct=False
                        ),
                        models.CheckConstraint(condition=models.Q(("corrections__lte", models.F("lines"))), name="charge_sum_corrections"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="CompactionOrder",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("beneficiary", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="allocation.booking")),
                    ("document", models.JSONField(help_text="gpu_class, places of the beneficiary, and moves: booking, source, target.")),
                    ("created", models.DateTimeField()),
                    ("created_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
                    ("decided_at", models.DateTimeField(blank=True, null=True)),
                    (
                        "decision",
                        models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="allocation.decision"),
                    ),
                    ("declined", models.CharField(blank=True, help_text="Why it was declined.", max_length=300)),
                ],
                options={
                    "ordering": ["-created", "id"],
                    "constraints": [
                        models.UniqueConstraint(condition=models.Q(("decided_at", None)), fields=("beneficiary",), name="compaction_one_open"),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("decided_at", None), ("decision", None), ("declined", "")),
                                models.Q(("decided_at__isnull", False), ("decision__isnull", False)),
                                _connector="OR",
                            ),
                            name="compaction_answered_once",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="Dependency",
                fields=[
                    ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    (
                        "booking",
                        models.ForeignKey(
                            db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name="dependencies", to="allocation.booking"
                        ),
                    ),
                    (
                        "parent",
                        models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name="dependents", to="allocation.booking"),
                    ),
                    ("needs", models.CharField(choices=[("end", "End"), ("success", "Success")], default="end", max_length=8)),
                ],
                options={
                    "ordering": ["booking", "id"],
                    "constraints": [
                        models.UniqueConstraint(fields=("booking", "parent"), name="dependency_once"),
                        models.CheckConstraint(condition=models.Q(("booking", models.F("parent")), _negated=True), name="dependency_of_another"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="StatementDispute",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    (
                        "project",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            help_text="Null: the statement of the whole organisation.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            to="tenants.project",
                        ),
                    ),
                    ("month", models.DateField(help_text="The first day of the month.")),
                    (
                        "booking",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            help_text="The booking whose charges are disputed; null: the statement.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to="allocation.booking",
                        ),
                    ),
                    ("note", models.CharField(max_length=1000)),
                    (
                        "state",
                        models.CharField(
                            choices=[("open", "Open"), ("accepted", "Accepted"), ("declined", "Declined"), ("withdrawn", "Withdrawn")],
                            default="open",
                            max_length=9,
                        ),
                    ),
                    ("raised_at", models.DateTimeField()),
                    ("raised_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    ("answer", models.CharField(blank=True, max_length=1000)),
                    ("answered_at", models.DateTimeField(blank=True, null=True)),
                    (
                        "answered_by",
                        models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL),
                    ),
                ],
                options={
                    "ordering": ["-raised_at", "id"],
                    "indexes": [models.Index(fields=["tenant", "month"], name="dispute_month")],
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "id"), name="dispute_id_in_tenant"),
                        models.UniqueConstraint(
                            condition=models.Q(("state", "open")),
                            fields=("tenant", "project", "month", "booking"),
                            name="dispute_open_once",
                            nulls_distinct=False,
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("answer", ""), ("answered_by", None), ("state__in", ["open", "withdrawn"])),
                                models.Q(
                                    ("answered_at__gte", models.F("raised_at")),
                                    ("answered_by__isnull", False),
                                    ("state__in", ["accepted", "declined"]),
                                    models.Q(("answer", ""), _negated=True),
                                ),
                                _connector="OR",
                            ),
                            name="dispute_answered_by_somebody",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="CalendarFeed",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("owner", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
                    (
                        "project",
                        models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.project"),
                    ),
                    ("gpu_class", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.gpuclass")),
                    ("digest", models.BinaryField(max_length=32, unique=True)),
                    ("created", models.DateTimeField()),
                    ("revoked", models.DateTimeField(blank=True, null=True)),
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
                    "ordering": ["created", "id"],
                    "constraints": [
                        models.CheckConstraint(condition=models.Q(("project", None), ("gpu_class", None), _connector="OR"), name="feed_of_one_thing")
                    ],
                },
            ),
            migrations.CreateModel(
                name="JiraConnection",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    (
                        "receiver",
                        models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name="jira", to="tenants.webhook"),
                    ),
                    ("flavour", models.CharField(choices=[("cloud", "Cloud"), ("data_center", "Data Center")], max_length=20)),
                    ("account", models.CharField(blank=True, help_text="E-mail address of the account; of Cloud only.", max_length=254)),
                    ("sealed_token", models.TextField(help_text="API token or personal access token, encrypted.")),
                ],
                options={
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "id"), name="jira_connection_in_tenant"),
                        models.CheckConstraint(
                            condition=models.Q(models.Q(("flavour", "cloud"), _negated=True), models.Q(("account", ""), _negated=True), _connector="OR"),
                            name="jira_cloud_has_account",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="JiraProject",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    (
                        "connection",
                        models.ForeignKey(
                            db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name="projects", to="allocation.jiraconnection"
                        ),
                    ),
                    ("key", models.CharField(help_text="Key of the Jira project, such as GPU.", max_length=20)),
                    ("project", models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, to="tenants.project")),
                    (
                        "owner",
                        models.ForeignKey(help_text="Whose bookings they are.", on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL),
                    ),
                    ("tier", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tier")),
                    ("act", models.CharField(choices=[("book", "Book"), ("quote", "Quote")], max_length=10)),
                    ("request", models.CharField(help_text="With fields: {customfield_10050}.", max_length=200)),
                    ("labels", models.JSONField(default=dict)),
                    ("transitions", models.JSONField(default=dict, help_text="State of the booking to status of the issue.")),
                    (
                        "approver",
                        models.ForeignKey(
                            blank=True,
                            help_text="In whose name the statuses below decide; null: none does.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to=settings.AUTH_USER_MODEL,
                        ),
                    ),
                    ("approve_status", models.CharField(blank=True, db_default="", default="", help_text="Approves the booking.", max_length=60)),
                    ("decline_status", models.CharField(blank=True, db_default="", default="", help_text="Declines the booking.", max_length=60)),
                    ("board", models.BigIntegerField(blank=True, help_text="Whose sprints are booked.", null=True)),
                    ("sprint_request", models.CharField(blank=True, max_length=200)),
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
                    "constraints": [
                        models.UniqueConstraint(fields=("connection", "key"), name="jira_project_once"),
                        models.UniqueConstraint(condition=models.Q(("board__isnull", False)), fields=("connection", "board"), name="jira_board_once"),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("board", None), ("sprint_request", "")),
                                models.Q(("board__isnull", False), models.Q(("sprint_request", ""), _negated=True)),
                                _connector="OR",
                            ),
                            name="jira_board_has_request",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("approve_status", ""), ("approver", None), ("decline_status", "")),
                                models.Q(("approver__isnull", False), models.Q(("approver", models.F("owner")), _negated=True)),
                                _connector="OR",
                            ),
                            name="jira_approver_is_another",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="JiraMessage",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    (
                        "connection",
                        models.ForeignKey(
                            db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name="messages", to="allocation.jiraconnection"
                        ),
                    ),
                    ("delivery", models.CharField(help_text="The same when it is sent again.", max_length=100)),
                    ("subject", models.CharField(help_text="`GPU-7` or `sprint:12`.", max_length=80)),
                    ("at", models.DateTimeField(help_text="When it happened in Jira.")),
                    ("received", models.DateTimeField()),
                    ("content", models.JSONField(help_text="What was read from the message.")),
                    (
                        "state",
                        models.CharField(
                            choices=[("received", "Received"), ("done", "Done"), ("refused", "Refused"), ("ignored", "Ignored")],
                            default="received",
                            max_length=10,
                        ),
                    ),
                    ("answer", models.CharField(blank=True, max_length=500)),
                    (
                        "booking",
                        models.ForeignKey(
                            blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="allocation.booking"
                        ),
                    ),
                ],
                options={
                    "indexes": [
                        models.Index(fields=["tenant", "connection", "-id"], name="jira_message_log"),
                        models.Index(fields=["connection", "subject", "-at"], name="jira_message_subject"),
                        models.Index(condition=models.Q(("state", "received")), fields=["id"], name="jira_message_waiting"),
                    ],
                    "constraints": [models.UniqueConstraint(fields=("connection", "delivery"), name="jira_message_once")],
                },
            ),
            migrations.CreateModel(
                name="BookingLabel",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    (
                        "booking",
                        models.ForeignKey(
                            db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="allocation.booking"
                        ),
                    ),
                    ("key", models.CharField(max_length=63)),
                    ("value", models.CharField(max_length=100)),
                ],
                options={
                    "indexes": [models.Index(fields=["tenant", "key", "value", "booking"], name="booking_by_label")],
                    "constraints": [models.UniqueConstraint(fields=("tenant", "booking", "key"), name="booking_label_once")],
                },
            ),
            migrations.CreateModel(
                name="Maintenance",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("rack", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to="allocation.rack")),
                    ("node", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to="allocation.node")),
                    ("gpu", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to="allocation.gpu")),
                    ("starts", models.DateTimeField()),
                    ("ends", models.DateTimeField()),
                    ("drain_by", models.DateTimeField(help_text="When running work must have left.")),
                    ("reason", models.CharField(max_length=120)),
                    ("created", models.DateTimeField()),
                    ("created_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
                    ("ended_at", models.DateTimeField(blank=True, help_text="Set if it was cancelled or ended early.", null=True)),
                    (
                        "last_event",
                        models.CharField(
                            choices=[("planned", "Planned"), ("started", "Started"), ("ended", "Ended"), ("cancelled", "Cancelled")],
                            db_default="planned",
                            default="planned",
                            help_text="The last of its events that was sent to programs.",
                            max_length=9,
                        ),
                    ),
                    ("series", models.UUIDField(blank=True, null=True)),
                    ("rule", models.CharField(blank=True, db_default="", default="", help_text="RRULE, in local time.", max_length=120)),
                    ("zone", models.CharField(blank=True, db_default="", default="", help_text="Time zone of the rule.", max_length=64)),
                    ("revision", models.PositiveIntegerField(db_default=0, default=0, help_text="Rises when its window or reason changes or it ends.")),
                    ("changed_at", models.DateTimeField(blank=True, help_text="Time of the last such change; null: none.", null=True)),
                    (
                        "skipped",
                        models.JSONField(
                            blank=True,
                            db_default=models.Value([], models.JSONField()),
                            default=list,
                            help_text="Days of the rule that the calendar does not have.",
                        ),
                    ),
                ],
                options={
                    "ordering": ["starts", "id"],
                    "indexes": [
                        models.Index(condition=models.Q(("ended_at", None)), fields=["ends"], name="maintenance_open"),
                        models.Index(condition=models.Q(("last_event__in", ("planned", "started"))), fields=["starts"], name="maintenance_to_announce"),
                    ],
                    "constraints": [
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("gpu", None), ("node", None), ("rack__isnull", False)),
                                models.Q(("gpu", None), ("node__isnull", False), ("rack", None)),
                                models.Q(("gpu__isnull", False), ("node", None), ("rack", None)),
                                _connector="OR",
                            ),
                            name="maintenance_of_one_thing",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(("drain_by__gte", models.F("starts")), ("starts__lt", models.F("ends")), ("drain_by__lte", models.F("ends"))),
                            name="maintenance_window_sane",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("rule", ""), ("series", None), ("zone", "")),
                                models.Q(models.Q(("series__isnull", False)), models.Q(("rule", ""), _negated=True), models.Q(("zone", ""), _negated=True)),
                                _connector="OR",
                            ),
                            name="maintenance_repeats_by_a_rule",
                        ),
                        models.UniqueConstraint(fields=("series", "starts"), name="maintenance_once_a_date"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="GpuEvent",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("node", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="events", to="allocation.node")),
                    ("gpu", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, to="allocation.gpu")),
                    (
                        "kind",
                        models.CharField(
                            choices=[
                                ("xid", "Error"),
                                ("ecc", "Memory error"),
                                ("lost", "Not found"),
                                ("drift", "Slices made by hand"),
                                ("unbooked", "Unbooked use"),
                                ("outside", "Use outside the booking"),
                                ("hang", "Driver hangs"),
                                ("unreachable", "Unreachable"),
                                ("slow", "Slow start"),
                                ("mode", "Mode change"),
                                ("warned", "Users warned"),
                                ("asked", "Asked to end"),
                                ("killed", "Ended"),
                                ("conflict", "Contradiction"),
                                ("operator", "Operator"),
                            ],
                            max_length=12,
                        ),
                    ),
                    ("code", models.IntegerField(blank=True, help_text="XID or other error code.", null=True)),
                    ("instance", models.CharField(blank=True, help_text="UUID of the MIG instance.", max_length=80)),
                    ("slot", models.SmallIntegerField(blank=True, help_text="First slot of the instance.", null=True)),
                    ("at", models.DateTimeField()),
                    ("until", models.DateTimeField(blank=True, null=True)),
                    ("sentence", models.CharField(max_length=300)),
                    ("text", models.JSONField(blank=True, help_text="Code and facts of `sentence`; null in old rows.", null=True)),
                ],
                options={
                    "ordering": ["-id"],
                    "indexes": [models.Index(fields=["node", "-id"], name="gpu_event_of_node")],
                    "constraints": [
                        models.UniqueConstraint(
                            condition=models.Q(("kind__in", ["xid", "ecc", "warned", "asked", "killed"])),
                            fields=("gpu", "kind", "code", "instance", "at"),
                            name="gpu_error_once",
                        ),
                        models.UniqueConstraint(
                            condition=models.Q(("kind__in", ["drift", "unbooked", "outside", "hang"]), ("until", None)),
                            fields=("gpu", "kind", "slot"),
                            name="gpu_condition_once",
                            nulls_distinct=False,
                        ),
                        models.UniqueConstraint(
                            condition=models.Q(("kind__in", ["unreachable", "slow"]), ("until", None)), fields=("node", "kind"), name="node_condition_once"
                        ),
                        models.UniqueConstraint(condition=models.Q(("kind", "mode"), ("until", None)), fields=("gpu",), name="gpu_mode_change_once"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="PortalMode",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("kind", models.CharField(choices=[("outage", "Planned outage"), ("freeze", "Decisions frozen")], max_length=6)),
                    ("since", models.DateTimeField()),
                    ("until", models.DateTimeField(blank=True, help_text="Planned end; null: until an operator ends it.", null=True)),
                    ("closed_at", models.DateTimeField(blank=True, help_text="From when an outage refuses changes by members.", null=True)),
                    ("reason", models.CharField(max_length=120)),
                    ("begun_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    ("ended_at", models.DateTimeField(blank=True, help_text="When an operator ended it.", null=True)),
                ],
                options={
                    "ordering": ["-since"],
                    "constraints": [
                        models.UniqueConstraint(condition=models.Q(("ended_at", None)), fields=("kind",), name="portal_mode_open_once"),
                        models.CheckConstraint(
                            condition=models.Q(("until", None), ("until__gt", models.F("since")), _connector="OR"), name="portal_mode_window_sane"
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("closed_at", None), ("kind", "freeze")), models.Q(("kind", "outage"), ("until__isnull", False)), _connector="OR"
                            ),
                            name="portal_mode_outage_ends",
                        ),
                        models.CheckConstraint(condition=models.Q(("reason", ""), _negated=True), name="portal_mode_has_reason"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="Backup",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("at", models.DateTimeField()),
                    ("lsn", models.CharField(help_text="Position in the write-ahead log.", max_length=24)),
                    ("size", models.BigIntegerField(help_text="Bytes.")),
                    ("sha256", models.CharField(max_length=64)),
                    ("checked_at", models.DateTimeField(blank=True, help_text="When it was last restored for a check.", null=True)),
                ],
                options={
                    "ordering": ["-at"],
                },
            ),
            migrations.CreateModel(
                name="Override",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    (
                        "kind",
                        models.CharField(
                            choices=[
                                ("quota", "GPUs at once"),
                                ("gpu_hours", "GPU-hours"),
                                ("budget", "Budget"),
                                ("length", "Length of a booking"),
                                ("lab_quota", "GPUs of a lab at once"),
                                ("person_quota", "Your GPUs at once"),
                                ("shorter", "Shortest length of a booking"),
                                ("notice", "Time before the start"),
                                ("start_hours", "Hours of starts"),
                                ("tier_class", "Classes of a tier"),
                                ("tier_audience", "People of a tier"),
                                ("open_bookings", "Open bookings"),
                                ("open_gpus", "GPUs of a person at once"),
                            ],
                            max_length=16,
                        ),
                    ),
                    (
                        "project",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            help_text="Whose limit it is about, or whose lab's; null for the whole organisation.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            to="tenants.project",
                        ),
                    ),
                    (
                        "person",
                        models.ForeignKey(
                            blank=True,
                            help_text="The only person that it is for; null for everybody.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to=settings.AUTH_USER_MODEL,
                        ),
                    ),
                    ("gpu_class", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.gpuclass")),
                    ("tier", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.tier")),
                    ("budget", models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to="billing.budget")),
                    (
                        "amount",
                        models.DecimalField(
                            decimal_places=6,
                            help_text="On top of the limit: quota units, GPU-hours, money, seconds, bookings or GPUs. 1 where a rule without a number is lifted.",
                            max_digits=20,
                        ),
                    ),
                    ("is_once", models.BooleanField(default=False, help_text="For one booking, whenever it runs.")),
                    (
                        "booking",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            help_text="The booking that uses it; null until one does.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="overrides",
                            to="allocation.booking",
                        ),
                    ),
                    ("starts", models.DateTimeField(blank=True, null=True)),
                    ("until", models.DateTimeField(blank=True, null=True)),
                    (
                        "asked_by",
                        models.ForeignKey(
                            blank=True,
                            help_text="Null: its decider gave it without being asked.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to=settings.AUTH_USER_MODEL,
                        ),
                    ),
                    ("asked", models.DateTimeField()),
                    ("reason", models.CharField(blank=True, max_length=200)),
                    ("request_text", models.CharField(blank=True, help_text="The request that was refused, to send it again.", max_length=400)),
                    (
                        "decider",
                        models.CharField(
                            choices=[("operator", "Operator"), ("tenant_admin", "Tenant admin"), ("lead", "Project lead")],
                            help_text="Who decides.",
                            max_length=16,
                        ),
                    ),
                    (
                        "state",
                        models.CharField(
                            choices=[
                                ("asked", "Waiting"),
                                ("granted", "Granted"),
                                ("declined", "Declined"),
                                ("withdrawn", "Withdrawn"),
                                ("ended", "Ended early"),
                            ],
                            default="asked",
                            max_length=10,
                        ),
                    ),
                    ("decided", models.DateTimeField(blank=True, null=True)),
                    (
                        "decided_by",
                        models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL),
                    ),
                    ("answer", models.CharField(blank=True, max_length=200)),
                    ("ended", models.DateTimeField(blank=True, null=True)),
                    ("warned", models.DateTimeField(blank=True, help_text="When people were notified that it ends soon.", null=True)),
                ],
                options={
                    "ordering": ["-asked", "id"],
                    "indexes": [
                        models.Index(condition=models.Q(("state", "asked")), fields=["tenant", "-asked"], name="override_waiting"),
                        models.Index(condition=models.Q(("state", "granted")), fields=["tenant", "kind"], name="override_granted"),
                    ],
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "id"), name="override_id_in_tenant"),
                        models.UniqueConstraint(
                            condition=models.Q(("state", "asked")),
                            fields=("tenant", "asked_by", "kind", "project", "gpu_class", "tier", "budget", "booking"),
                            name="override_asked_once",
                            nulls_distinct=False,
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("budget", None), ("gpu_class__isnull", False), ("kind__in", ["quota", "gpu_hours"]), ("tier", None)),
                                models.Q(("budget", None), ("gpu_class__isnull", False), ("kind", "lab_quota"), ("project__isnull", False), ("tier", None)),
                                models.Q(("budget", None), ("gpu_class__isnull", False), ("kind", "person_quota"), ("person__isnull", False), ("tier", None)),
                                models.Q(
                                    ("budget", None), ("gpu_class__isnull", False), ("kind", "tier_class"), ("project__isnull", False), ("tier__isnull", False)
                                ),
                                models.Q(
                                    ("budget", None),
                                    ("gpu_class", None),
                                    ("kind__in", ["length", "notice", "shorter", "start_hours", "tier_audience"]),
                                    ("project__isnull", False),
                                    ("tier__isnull", False),
                                ),
                                models.Q(("budget", None), ("gpu_class", None), ("is_once", False), ("kind__in", ["open_bookings", "open_gpus"])),
                                models.Q(("budget__isnull", False), ("gpu_class", None), ("is_once", False), ("kind", "budget"), ("tier", None)),
                                _connector="OR",
                            ),
                            name="override_fits_its_kind",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(models.Q(("kind", "gpu_hours"), _negated=True), ("is_once", False), _connector="OR"), name="override_hours_dated"
                        ),
                        models.CheckConstraint(condition=models.Q(("amount__gt", 0), ("amount__lt", 1000000000000)), name="override_amount_sane"),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("booking", None), ("is_once", False)),
                                models.Q(("is_once", True), ("kind", "length")),
                                models.Q(("booking__isnull", False), ("is_once", True), ("kind__in", ["quota", "lab_quota", "person_quota"])),
                                _connector="OR",
                            ),
                            name="override_booking_once",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(("starts", None), ("until", None), ("until__gt", models.F("starts")), _connector="OR"),
                            name="override_ends_later",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("state__in", ["granted", "ended"]), _negated=True),
                                models.Q(("kind", "budget"), ("until", None)),
                                models.Q(("is_once", True), ("until", None)),
                                models.Q(("is_once", False), ("starts__isnull", False), ("until__isnull", False)),
                                _connector="OR",
                            ),
                            name="override_granted_has_an_end",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("decided_by", None), ("state__in", ["asked", "withdrawn"])),
                                models.Q(("decided__gte", models.F("asked")), ("decided_by__isnull", False), ("state__in", ["granted", "declined", "ended"])),
                                _connector="OR",
                            ),
                            name="override_decided_by_somebody",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(("asked_by", None), models.Q(("decided_by", models.F("asked_by")), _negated=True), _connector="OR"),
                            name="override_decided_by_another",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(models.Q(("ended__gte", models.F("decided")), ("state", "ended")), ("ended", None), _connector="OR"),
                            name="override_ended_later",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="PauseCause",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    (
                        "beneficiary",
                        models.ForeignKey(
                            help_text="Null: the ladder of a budget, or an operator, asked for the pause.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to="allocation.booking",
                        ),
                    ),
                    ("handed_over_at", models.DateTimeField(blank=True, help_text="When the beneficiary was notified that its GPUs are empty.", null=True)),
                ],
            ),
            migrations.CreateModel(
                name="Pause",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    (
                        "booking",
                        models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name="pauses", to="allocation.booking"),
                    ),
                    ("number", models.PositiveSmallIntegerField(help_text="1 for the booking's first pause.")),
                    ("cause", models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, to="allocation.pausecause")),
                    ("beneficiary_label", models.CharField(blank=True, help_text="Empty if it is another tenant's booking.", max_length=24)),
                    ("may_wait", models.BooleanField(help_text="The beneficiary has no fixed start, so more time can be asked for.")),
                    (
                        "relation",
                        models.CharField(
                            blank=True,
                            choices=[
                                ("owner", "the same owner"),
                                ("project", "the same project"),
                                ("tenant", "the same organisation"),
                                ("member", "a member of this organisation"),
                                ("idle", "anybody, because its GPUs were idle"),
                            ],
                            db_default="",
                            default="",
                            help_text="If set, nothing is credited, and the grace period is charged.",
                            max_length=8,
                        ),
                    ),
                    (
                        "decision",
                        models.ForeignKey(
                            help_text="Null for a pause by the ladder of a budget, or by an operator.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to="allocation.decision",
                        ),
                    ),
                    ("policy_version", models.PositiveIntegerField()),
                    ("rule", models.CharField(max_length=8)),
                    ("sentence", models.CharField(help_text="The reason as the owner saw it.", max_length=300)),
                    (
                        "method",
                        models.CharField(
                            choices=[("stop", "Ended by the node"), ("signal", "Ends itself, killed at the deadline"), ("suspend", "Suspended on its node")],
                            max_length=8,
                        ),
                    ),
                    ("notified_at", models.DateTimeField(help_text="When the owner was notified.")),
                    ("deadline", models.DateTimeField(help_text="End of the grace period.")),
                    ("grace_seconds", models.PositiveIntegerField()),
                    ("more_asked_at", models.DateTimeField(blank=True, help_text="When the owner asked for more time; not yet answered.", null=True)),
                    ("more_times_used", models.PositiveSmallIntegerField(default=0)),
                    ("acknowledged_at", models.DateTimeField(blank=True, help_text="When the owner confirmed that the work is saved.", null=True)),
                    ("emptied_at", models.DateTimeField(blank=True, help_text="When the GPUs were proven empty.", null=True)),
                    ("resumed_at", models.DateTimeField(blank=True, null=True)),
                    ("ended_at", models.DateTimeField(blank=True, help_text="When the booking ended, or the notice was withdrawn.", null=True)),
                    ("withdrawn", models.BooleanField(db_default=False, default=False)),
                    ("ready_at", models.DateTimeField(help_text="Start of the run that the pause ended.")),
                    ("ends_before", models.DateTimeField(help_text="End of that run as it was planned.")),
                    ("lost_seconds", models.PositiveIntegerField(default=0, help_text="Work since the last save, to be done again.")),
                    ("credit_seconds", models.PositiveIntegerField(default=0, help_text="Lost time that is credited.")),
                    ("credit", models.DecimalField(decimal_places=6, default=0, max_digits=20)),
                    ("charged", models.DecimalField(decimal_places=6, default=0, help_text="Cost of the run after the credit.", max_digits=20)),
                    ("remaining_seconds", models.PositiveIntegerField(blank=True, help_text="Time that is left for the booking to run.", null=True)),
                ],
                options={
                    "ordering": ["booking", "number"],
                    "constraints": [
                        models.UniqueConstraint(fields=("booking", "number"), name="pause_number"),
                        models.UniqueConstraint(condition=models.Q(("ended_at", None), ("resumed_at", None)), fields=("booking",), name="pause_one_open"),
                        models.CheckConstraint(condition=models.Q(("resumed_at", None), ("ended_at", None), _connector="OR"), name="pause_resolved_once"),
                        models.CheckConstraint(
                            condition=models.Q(("resumed_at", None), ("emptied_at__isnull", False), _connector="OR"), name="pause_resumed_after_it_was_empty"
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                ("emptied_at", None), ("acknowledged_at__isnull", False), ("emptied_at__gte", models.F("deadline")), _connector="OR"
                            ),
                            name="pause_never_before_its_deadline",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                ("withdrawn", False),
                                models.Q(("ended_at__isnull", False), ("ended_at__lt", models.F("deadline")), ("acknowledged_at", None), ("emptied_at", None)),
                                _connector="OR",
                            ),
                            name="pause_withdrawn_in_time",
                        ),
                        models.CheckConstraint(condition=models.Q(("ends_before__gte", models.F("deadline"))), name="pause_in_order"),
                        models.CheckConstraint(
                            condition=models.Q(("charged__gte", 0), ("credit__gte", 0), ("credit_seconds__lte", models.F("lost_seconds"))),
                            name="pause_credit_sane",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(("relation__in", ["", "owner", "project", "tenant", "member", "idle"])), name="pause_relation_known"
                        ),
                        models.UniqueConstraint(fields=("tenant", "id"), name="pause_id_in_tenant"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="ReportSubscription",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="tenants.tenant")),
                    ("user", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL)),
                    (
                        "project",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            help_text="Null: the statement of the whole organisation.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to="tenants.project",
                        ),
                    ),
                    (
                        "lab",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            help_text="The statement of the projects of a lab.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to="tenants.lab",
                        ),
                    ),
                    ("cadence", models.CharField(choices=[("weekly", "Every week"), ("monthly", "Every month")], max_length=7)),
                    (
                        "format",
                        models.CharField(
                            choices=[("pdf", "PDF"), ("csv", "CSV"), ("focus.csv", "FOCUS 1.2, CSV"), ("focus.parquet", "FOCUS 1.2, Parquet")], max_length=13
                        ),
                    ),
                    ("at", models.TimeField(default=datetime.time(8, 0), help_text="By the clocks of `zone`.")),
                    ("zone", models.CharField(help_text="The person's time zone when it was made.", max_length=64)),
                    ("due", models.DateTimeField(help_text="When the next report is sent.")),
                    ("created", models.DateTimeField()),
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
                    "ordering": ["created", "id"],
                    "indexes": [models.Index(fields=["due"], name="report_due")],
                    "constraints": [
                        models.UniqueConstraint(fields=("user", "tenant", "project", "lab", "cadence", "format"), name="report_once", nulls_distinct=False),
                        models.CheckConstraint(condition=models.Q(("lab", None), ("project", None), _connector="OR"), name="report_of_one_owner"),
                        models.CheckConstraint(
                            condition=models.Q(("cadence__in", ["weekly", "monthly"]), ("format__in", ["pdf", "csv", "focus.csv", "focus.parquet"])),
                            name="report_choices",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="Requirement",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    (
                        "tenant",
                        models.ForeignKey(
                            blank=True, help_text="Empty: of all tenants.", null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant"
                        ),
                    ),
                    ("gpu_class", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.gpuclass")),
                    ("tier", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.tier")),
                    ("kind", models.CharField(choices=[("terms", "Text to accept"), ("training", "Training with a date")], max_length=8)),
                    ("name", models.CharField(max_length=80)),
                    ("version", models.PositiveIntegerField()),
                    ("text", models.TextField(help_text="What is accepted, or how people get the training.", max_length=20000)),
                    ("valid_days", models.PositiveIntegerField(blank=True, help_text="How long it holds for a person; null: without an end.", null=True)),
                    (
                        "projects",
                        models.JSONField(
                            db_default=models.Value([], models.JSONField()),
                            default=list,
                            help_text="Slugs of the projects in which a tier demands it; empty: in all.",
                        ),
                    ),
                    ("created", models.DateTimeField()),
                    ("created_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    ("ended", models.DateTimeField(blank=True, null=True)),
                ],
                options={
                    "ordering": ["name", "-version", "id"],
                    "constraints": [
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("gpu_class__isnull", False), ("tenant", None), ("tier", None)),
                                models.Q(("gpu_class", None), ("tenant__isnull", False), ("tier__isnull", False)),
                                _connector="OR",
                            ),
                            name="requirement_of_class_or_tier",
                        ),
                        models.CheckConstraint(condition=models.Q(("kind__in", ["terms", "training"])), name="requirement_kind"),
                        models.CheckConstraint(
                            condition=models.Q(("valid_days", None), models.Q(("valid_days__gte", 1), ("valid_days__lte", 3650)), _connector="OR"),
                            name="requirement_valid_days",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(("ended", None), ("ended__gte", models.F("created")), _connector="OR"), name="requirement_ends_after"
                        ),
                        models.CheckConstraint(
                            condition=models.Q(("projects", []), ("tier__isnull", False), _connector="OR"), name="requirement_projects_of_tier"
                        ),
                        models.UniqueConstraint(
                            condition=models.Q(("ended", None)),
                            fields=("tenant", "gpu_class", "tier", "name"),
                            name="requirement_open_once",
                            nulls_distinct=False,
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="Acceptance",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    (
                        "requirement",
                        models.ForeignKey(
                            db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name="acceptances", to="allocation.requirement"
                        ),
                    ),
                    ("user", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    ("at", models.DateTimeField(help_text="When it was accepted, or the day of the training.")),
                    ("until", models.DateTimeField(blank=True, help_text="Null: without an end.", null=True)),
                    ("warned_days", models.PositiveSmallIntegerField(blank=True, help_text="So many days before its end was the last notice.", null=True)),
                    ("address", models.GenericIPAddressField(blank=True, null=True)),
                    ("recorded", models.DateTimeField()),
                    ("recorded_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                ],
                options={
                    "ordering": ["-recorded", "id"],
                    "indexes": [
                        models.Index(fields=["tenant", "user", "requirement"], name="acceptance_of_user"),
                        models.Index(condition=models.Q(("until__isnull", False)), fields=["until"], name="acceptance_running_out"),
                    ],
                    "constraints": [
                        models.CheckConstraint(condition=models.Q(("warned_days", None), ("until__isnull", False), _connector="OR"), name="acceptance_warned"),
                        models.CheckConstraint(
                            condition=models.Q(("until", None), ("until__gt", models.F("at")), _connector="OR"), name="acceptance_ends_after"
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="StandIn",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("approver", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    (
                        "person",
                        models.ForeignKey(
                            help_text="Who decides for the approver.",
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to=settings.AUTH_USER_MODEL,
                        ),
                    ),
                    (
                        "project",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            help_text="Requests of this project only; null: all that the approver decides.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            to="tenants.project",
                        ),
                    ),
                    ("starts", models.DateTimeField()),
                    ("until", models.DateTimeField()),
                    ("created", models.DateTimeField()),
                    ("created_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    ("ended", models.DateTimeField(blank=True, help_text="When it was ended early.", null=True)),
                    (
                        "ended_by",
                        models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL),
                    ),
                    (
                        "made_with",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            help_text="The token that named them, with which it ends; null: a browser.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to="tenants.apitoken",
                        ),
                    ),
                ],
                options={
                    "ordering": ["starts", "id"],
                    "indexes": [
                        models.Index(condition=models.Q(("ended", None)), fields=["tenant", "person"], name="stand_in_by_person"),
                        models.Index(condition=models.Q(("ended", None)), fields=["tenant", "approver"], name="stand_in_by_approver"),
                    ],
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "id"), name="stand_in_id_in_tenant"),
                        models.CheckConstraint(condition=models.Q(("person", models.F("approver")), _negated=True), name="stand_in_is_another"),
                        models.CheckConstraint(condition=models.Q(("until__gt", models.F("starts"))), name="stand_in_ends_later"),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("ended", None), ("ended_by", None)),
                                models.Q(("ended__gte", models.F("created")), ("ended_by__isnull", False)),
                                _connector="OR",
                            ),
                            name="stand_in_ended_by_somebody",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="CounterOffer",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    (
                        "approval",
                        models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name="counters", to="allocation.approval"),
                    ),
                    ("person", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    (
                        "principal",
                        models.ForeignKey(
                            blank=True,
                            help_text="The approver that the person stands in for; null: nobody.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to=settings.AUTH_USER_MODEL,
                        ),
                    ),
                    ("request_text", models.CharField(max_length=400)),
                    ("target", models.JSONField(help_text="The terms that the booking would have.")),
                    ("differences", models.JSONField(help_text="What differs: before and after, by field.")),
                    ("digest", models.CharField(help_text="SHA-256 of what the asker accepts.", max_length=64)),
                    ("reason", models.CharField(blank=True, max_length=200)),
                    ("at", models.DateTimeField()),
                    (
                        "state",
                        models.CharField(
                            choices=[("open", "Waiting for the asker"), ("accepted", "Accepted"), ("declined", "Declined"), ("replaced", "Replaced")],
                            default="open",
                            max_length=10,
                        ),
                    ),
                    ("answered", models.DateTimeField(blank=True, null=True)),
                ],
                options={
                    "ordering": ["-at", "id"],
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "id"), name="counter_id_in_tenant"),
                        models.UniqueConstraint(condition=models.Q(("state", "open")), fields=("approval",), name="counter_one_open"),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("answered", None), ("state", "open")),
                                models.Q(models.Q(("state", "open"), _negated=True), ("answered__gte", models.F("at"))),
                                _connector="OR",
                            ),
                            name="counter_answered_later",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="Stop",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    (
                        "scope",
                        models.CharField(
                            choices=[
                                ("site", "The whole site"),
                                ("tenant", "A tenant"),
                                ("tier", "A tier"),
                                ("class", "A GPU class"),
                                ("booking", "One paused booking"),
                            ],
                            max_length=7,
                        ),
                    ),
                    ("tenant", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("tier", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.tier")),
                    ("gpu_class", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.gpuclass")),
                    (
                        "booking",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="stops",
                            to="allocation.booking",
                        ),
                    ),
                    ("since", models.DateTimeField()),
                    ("until", models.DateTimeField(blank=True, help_text="Planned end; null: until an operator ends it.", null=True)),
                    ("reason", models.CharField(help_text="Shown to everybody who is stopped.", max_length=120)),
                    ("begun_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    ("ended_at", models.DateTimeField(blank=True, help_text="When an operator ended it.", null=True)),
                ],
                options={
                    "ordering": ["-since", "id"],
                    "constraints": [
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(models.Q(("booking", None), ("gpu_class", None), ("tenant", None), ("tier", None)), ("scope", "site")),
                                models.Q(("booking", None), ("gpu_class", None), ("scope", "tenant"), ("tenant__isnull", False), ("tier", None)),
                                models.Q(("booking", None), ("gpu_class", None), ("scope", "tier"), ("tenant", None), ("tier__isnull", False)),
                                models.Q(("booking", None), ("gpu_class__isnull", False), ("scope", "class"), ("tenant", None), ("tier", None)),
                                models.Q(("booking__isnull", False), ("gpu_class", None), ("scope", "booking"), ("tenant__isnull", False), ("tier", None)),
                                _connector="OR",
                            ),
                            name="stop_names_its_scope",
                        ),
                        models.UniqueConstraint(
                            condition=models.Q(("ended_at", None)),
                            fields=("scope", "tenant", "tier", "gpu_class", "booking"),
                            name="stop_open_once",
                            nulls_distinct=False,
                        ),
                        models.CheckConstraint(condition=models.Q(("until", None), ("until__gt", models.F("since")), _connector="OR"), name="stop_window_sane"),
                        models.CheckConstraint(condition=models.Q(("reason", ""), _negated=True), name="stop_has_reason"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="GpuSample",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("gpu", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="allocation.gpu")),
                    ("tenant", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("slot", models.PositiveSmallIntegerField(blank=True, null=True)),
                    ("allocation_id", models.UUIDField(blank=True, null=True)),
                    ("at", models.DateTimeField()),
                    ("utilisation", models.PositiveSmallIntegerField(blank=True, null=True)),
                    ("memory_used_mb", models.PositiveIntegerField(blank=True, null=True)),
                    ("memory_total_mb", models.PositiveIntegerField(blank=True, null=True)),
                    ("power_mw", models.PositiveIntegerField(blank=True, null=True)),
                    ("temperature_c", models.PositiveSmallIntegerField(blank=True, null=True)),
                    ("processes", models.PositiveSmallIntegerField(blank=True, null=True)),
                    ("bandwidth", models.PositiveSmallIntegerField(blank=True, null=True)),
                    ("tensor", models.PositiveSmallIntegerField(blank=True, null=True)),
                    ("sm_mhz", models.PositiveIntegerField(blank=True, null=True)),
                    ("throttle", models.PositiveBigIntegerField(blank=True, null=True)),
                    ("pcie_rx_kb", models.PositiveIntegerField(blank=True, null=True)),
                    ("pcie_tx_kb", models.PositiveIntegerField(blank=True, null=True)),
                    ("nvlink_rx_kb", models.PositiveIntegerField(blank=True, null=True)),
                    ("nvlink_tx_kb", models.PositiveIntegerField(blank=True, null=True)),
                    ("energy_mj", models.PositiveBigIntegerField(blank=True, null=True)),
                ],
                options={
                    "indexes": [models.Index(fields=["at"], name="sample_age"), models.Index(fields=["allocation_id", "-at"], name="sample_of_allocation")],
                    "constraints": [
                        models.UniqueConstraint(fields=("gpu", "at", "slot"), name="sample_once", nulls_distinct=False),
                        models.CheckConstraint(
                            condition=models.Q(("utilisation", None), ("utilisation__lte", 100), _connector="OR"), name="sample_utilisation_percent"
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("bandwidth", None), ("bandwidth__lte", 100), _connector="OR"),
                                models.Q(("tensor", None), ("tensor__lte", 100), _connector="OR"),
                            ),
                            name="sample_percents",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("allocation_id", None), ("tenant", None)),
                                models.Q(("allocation_id__isnull", False), ("tenant__isnull", False)),
                                _connector="OR",
                            ),
                            name="sample_whose",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="GpuUse",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("gpu", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to="allocation.gpu")),
                    ("tenant", models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("slot", models.PositiveSmallIntegerField(blank=True, null=True)),
                    ("allocation_id", models.UUIDField(blank=True, null=True)),
                    ("at", models.DateTimeField()),
                    ("seconds", models.PositiveSmallIntegerField()),
                    ("measured", models.PositiveSmallIntegerField()),
                    ("busy_min", models.PositiveSmallIntegerField(blank=True, null=True)),
                    ("busy_avg", models.FloatField(blank=True, null=True)),
                    ("busy_max", models.PositiveSmallIntegerField(blank=True, null=True)),
                    ("memory_avg_mb", models.PositiveIntegerField(blank=True, null=True)),
                    ("memory_max_mb", models.PositiveIntegerField(blank=True, null=True)),
                    ("memory_total_mb", models.PositiveIntegerField(blank=True, null=True)),
                    ("power_avg_mw", models.PositiveIntegerField(blank=True, null=True)),
                    ("power_max_mw", models.PositiveIntegerField(blank=True, null=True)),
                    ("temperature_max_c", models.PositiveSmallIntegerField(blank=True, null=True)),
                    ("processes_max", models.PositiveSmallIntegerField(blank=True, null=True)),
                    ("bandwidth_avg", models.FloatField(blank=True, null=True)),
                    ("tensor_avg", models.FloatField(blank=True, null=True)),
                    ("pcie_kb", models.PositiveIntegerField(blank=True, null=True)),
                    ("nvlink_kb", models.PositiveIntegerField(blank=True, null=True)),
                    ("throttled", models.PositiveSmallIntegerField(blank=True, null=True)),
                    ("energy_mj", models.PositiveBigIntegerField(blank=True, null=True)),
                ],
                options={
                    "indexes": [
                        models.Index(fields=["at"], name="use_age"),
                        models.Index(condition=models.Q(("allocation_id__isnull", False)), fields=["allocation_id", "at"], name="use_of_allocation"),
                    ],
                    "constraints": [
                        models.UniqueConstraint(fields=("gpu", "at", "slot", "allocation_id"), name="use_once", nulls_distinct=False),
                        models.CheckConstraint(condition=models.Q(("measured__lte", models.F("seconds")), ("seconds__lte", 300)), name="use_seconds"),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("busy_avg", None), ("measured", 0)),
                                models.Q(("busy_avg__gte", 0), ("busy_avg__lte", 100), ("measured__gt", 0)),
                                _connector="OR",
                            ),
                            name="use_measured_or_null",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("allocation_id", None), ("tenant", None)),
                                models.Q(("allocation_id__isnull", False), ("tenant__isnull", False)),
                                _connector="OR",
                            ),
                            name="use_whose",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="EventCounter",
                fields=[
                    ("name", models.CharField(max_length=80, primary_key=True, serialize=False)),
                    ("count", models.PositiveBigIntegerField(default=0)),
                ],
            ),
            migrations.CreateModel(
                name="TierVersion",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("tier", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tier")),
                    ("starts", models.DateTimeField(help_text="In force from then on.")),
                    (
                        "audience",
                        models.CharField(
                            choices=[("everybody", "Everybody who may book"), ("leads", "Leads and admins"), ("admins", "Admins")],
                            default="everybody",
                            max_length=10,
                        ),
                    ),
                    ("projects", models.JSONField(default=list, help_text="Short names; empty for all projects.")),
                    ("classes", models.JSONField(default=list, help_text="GPU classes; empty for all.")),
                    ("min_seconds", models.PositiveIntegerField(blank=True, null=True)),
                    ("max_seconds", models.PositiveIntegerField(blank=True, null=True)),
                    ("min_lead_seconds", models.PositiveIntegerField(blank=True, help_text="Between the request and the start at least.", null=True)),
                    ("max_lead_seconds", models.PositiveIntegerField(blank=True, null=True)),
                    ("max_open", models.PositiveIntegerField(blank=True, help_text="Bookings of a person that are not over.", null=True)),
                    ("max_open_gpus", models.PositiveIntegerField(blank=True, help_text="GPUs of these bookings.", null=True)),
                    ("start_hours", models.JSONField(default=list, help_text="[[weekday, first hour, hour of the end]]; empty: at any time.")),
                    ("zone", models.CharField(default="UTC", help_text="Time zone of the hours.", max_length=64)),
                    ("created", models.DateTimeField()),
                    ("created_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    ("withdrawn", models.DateTimeField(blank=True, help_text="Before it was in force; null: it was not.", null=True)),
                ],
                options={
                    "ordering": ["tier", "starts", "created", "id"],
                    "constraints": [
                        models.UniqueConstraint(condition=models.Q(("withdrawn", None)), fields=("tenant", "tier", "starts"), name="tier_version_once"),
                        models.CheckConstraint(condition=models.Q(("starts__gte", models.F("created"))), name="tier_version_not_backdated"),
                        models.CheckConstraint(
                            condition=models.Q(("withdrawn", None), ("withdrawn__lt", models.F("starts")), _connector="OR"),
                            name="tier_version_withdrawn_before",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(("withdrawn", None), ("withdrawn__gte", models.F("created")), _connector="OR"),
                            name="tier_version_withdrawn_after",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("max_open", None), ("max_open__gte", 1), _connector="OR"),
                                models.Q(("max_open_gpus", None), ("max_open_gpus__gte", 1), _connector="OR"),
                                models.Q(("max_seconds", None), ("max_seconds__gte", 60), _connector="OR"),
                                models.Q(("min_seconds", None), ("max_seconds", None), ("min_seconds__lte", models.F("max_seconds")), _connector="OR"),
                                models.Q(
                                    ("min_lead_seconds", None),
                                    ("max_lead_seconds", None),
                                    ("min_lead_seconds__lte", models.F("max_lead_seconds")),
                                    _connector="OR",
                                ),
                            ),
                            name="tier_version_limits_sane",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="SpendVariance",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    (
                        "tenant",
                        models.ForeignKey(
                            blank=True,
                            help_text="Null: of a budget of the platform.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            to="tenants.tenant",
                        ),
                    ),
                    ("budget", models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.budget")),
                    ("day", models.DateField(help_text="The last day of UTC that counts.")),
                    ("against", models.CharField(choices=[("weekday", "The same weekday before"), ("plan", "The plan")], max_length=7)),
                    ("actual", models.DecimalField(decimal_places=6, max_digits=20)),
                    ("expected", models.DecimalField(decimal_places=6, max_digits=20)),
                    ("parts", models.JSONField(help_text="[{cause, amount, facts, bookings: [{booking, amount}]}]; amounts add up.")),
                    ("is_unusual", models.BooleanField(help_text="Whether it crossed the budget's thresholds.")),
                    ("at", models.DateTimeField()),
                ],
                options={
                    "ordering": ["-day", "against", "budget"],
                    "indexes": [models.Index(fields=["tenant", "-day"], name="variance_day")],
                    "constraints": [
                        models.UniqueConstraint(fields=("budget", "day", "against"), name="variance_once"),
                        models.CheckConstraint(condition=models.Q(("against__in", ["weekday", "plan"])), name="variance_against"),
                        models.CheckConstraint(
                            condition=models.Q(("is_unusual", False), ("actual__gt", models.F("expected")), _connector="OR"), name="variance_unusual_is_more"
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="WaitEntry",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    (
                        "booking",
                        models.OneToOneField(
                            db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name="wait_entry", to="allocation.booking"
                        ),
                    ),
                    ("owner", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    ("mode", models.CharField(choices=[("auto", "Book it"), ("offer", "Offer it")], max_length=5)),
                    ("slot", models.PositiveSmallIntegerField(blank=True, help_text="1 to 5: each person has so many entries; null: closed.", null=True)),
                    ("windows", models.JSONField(help_text="[from, until] in which all of its time must be.")),
                    ("until", models.DateTimeField(help_text="Its last possible start: after that it expires.")),
                    ("cost", models.DecimalField(decimal_places=6, help_text="The most that it can cost, held or not.", max_digits=20)),
                    ("expired_count", models.PositiveSmallIntegerField(default=0, help_text="Offers in a row that nobody answered; after two it gets none.")),
                    ("quiet_until", models.DateTimeField(blank=True, help_text="It is night for its owner: no offer before this time.", null=True)),
                    ("created_at", models.DateTimeField()),
                    ("any_of", models.UUIDField(blank=True, help_text="Entries with the same one exclude each other.", null=True)),
                    ("is_met", models.BooleanField(db_default=False, default=False, help_text="Its booking got a place.")),
                ],
                options={
                    "ordering": ["created_at", "id"],
                    "indexes": [models.Index(condition=models.Q(("slot__isnull", False)), fields=["until"], name="wait_entry_due")],
                    "constraints": [
                        models.UniqueConstraint(
                            condition=models.Q(("slot__isnull", False)), fields=("tenant", "owner", "slot"), name="wait_entries_of_a_person"
                        ),
                        models.UniqueConstraint(fields=("tenant", "id"), name="wait_entry_in_tenant"),
                        models.UniqueConstraint(condition=models.Q(("is_met", True)), fields=("any_of",), name="wait_entry_met_once"),
                        models.CheckConstraint(
                            condition=models.Q(("slot", None), models.Q(("slot__gte", 1), ("slot__lte", 5)), _connector="OR"), name="wait_entry_slot_sane"
                        ),
                        models.CheckConstraint(condition=models.Q(("cost__gte", 0), ("mode__in", ["auto", "offer"])), name="wait_entry_sane"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="WaitOffer",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    (
                        "booking",
                        models.ForeignKey(
                            db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name="wait_offers", to="allocation.booking"
                        ),
                    ),
                    ("owner", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    ("gpu_class", models.CharField(max_length=40)),
                    ("starts", models.DateTimeField()),
                    ("ends", models.DateTimeField()),
                    ("made_at", models.DateTimeField()),
                    ("until", models.DateTimeField(help_text="It can be accepted before this time.")),
                    ("decision", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="allocation.decision")),
                    (
                        "state",
                        models.CharField(
                            choices=[("open", "Open"), ("accepted", "Accepted"), ("declined", "Declined"), ("expired", "Expired"), ("withdrawn", "Withdrawn")],
                            default="open",
                            max_length=10,
                        ),
                    ),
                    ("decided_at", models.DateTimeField(blank=True, null=True)),
                    (
                        "decided_by",
                        models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL),
                    ),
                ],
                options={
                    "ordering": ["-made_at", "id"],
                    "indexes": [
                        models.Index(condition=models.Q(("state", "open")), fields=["until"], name="wait_offer_due"),
                        models.Index(fields=["tenant", "owner", "-made_at"], name="wait_offers_of_a_person"),
                    ],
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "id"), name="wait_offer_in_tenant"),
                        models.UniqueConstraint(condition=models.Q(("state", "open")), fields=("booking",), name="wait_offer_one_open"),
                        models.UniqueConstraint(
                            condition=models.Q(("state", "open")), fields=("tenant", "owner", "gpu_class"), name="wait_offer_one_of_a_class"
                        ),
                        models.CheckConstraint(
                            condition=models.Q(("made_at__lt", models.F("until")), ("starts__lt", models.F("ends")), ("until__lte", models.F("starts"))),
                            name="wait_offer_times_sane",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("decided_at", None), ("decided_by", None), ("state", "open")),
                                models.Q(
                                    ("decided_at__gte", models.F("made_at")),
                                    ("decided_at__lt", models.F("until")),
                                    ("decided_by__isnull", False),
                                    ("state__in", ["accepted", "declined"]),
                                ),
                                models.Q(("decided_at__gte", models.F("until")), ("decided_by", None), ("state", "expired")),
                                models.Q(("decided_at__isnull", False), ("state", "withdrawn")),
                                _connector="OR",
                            ),
                            name="wait_offer_decided_in_time",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="StatementExport",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="tenants.tenant")),
                    ("user", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL)),
                    (
                        "project",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            help_text="Null: the statement of the whole organisation.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to="tenants.project",
                        ),
                    ),
                    ("month", models.DateField(help_text="Its first day.")),
                    (
                        "kind",
                        models.CharField(
                            choices=[("pdf", "PDF"), ("csv", "CSV"), ("focus.csv", "FOCUS 1.2, CSV"), ("focus.parquet", "FOCUS 1.2, Parquet")], max_length=13
                        ),
                    ),
                    ("created", models.DateTimeField()),
                    ("lines", models.PositiveIntegerField(help_text="Lines of the statement when it was asked for.")),
                    ("lines_done", models.PositiveIntegerField(default=0)),
                    ("attempts", models.PositiveSmallIntegerField(default=0)),
                    ("claimed_until", models.DateTimeField(blank=True, null=True)),
                    ("finished_at", models.DateTimeField(blank=True, help_text="When it was ready, or given up.", null=True)),
                    ("name", models.CharField(blank=True, help_text="The file's name, once ready.", max_length=120)),
                    ("size", models.PositiveBigIntegerField(default=0, help_text="Bytes of the file.")),
                    ("content", models.BinaryField(help_text="The file, compressed by zlib.", null=True)),
                ],
                options={
                    "ordering": ["created", "id"],
                    "indexes": [models.Index(condition=models.Q(("finished_at__isnull", True)), fields=["created"], name="export_open")],
                    "constraints": [
                        models.UniqueConstraint(fields=("user", "tenant", "project", "month", "kind"), name="export_once", nulls_distinct=False),
                        models.CheckConstraint(condition=models.Q(("kind__in", ["pdf", "csv", "focus.csv", "focus.parquet"])), name="export_kind"),
                        models.CheckConstraint(
                            condition=models.Q(("content__isnull", True), ("finished_at__isnull", False), _connector="OR"), name="export_ready_is_finished"
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="Progress",
                fields=[
                    (
                        "booking",
                        models.OneToOneField(
                            db_constraint=False,
                            on_delete=django.db.models.deletion.PROTECT,
                            primary_key=True,
                            related_name="progress",
                            serialize=False,
                            to="allocation.booking",
                        ),
                    ),
                    ("step", models.FloatField(help_text="Steps that are done.")),
                    ("of", models.FloatField(blank=True, help_text="Steps in all; null: not said.", null=True)),
                    ("unit", models.CharField(max_length=24)),
                    ("metrics", models.JSONField(help_text="Numbers by name, such as a loss.")),
                    ("at", models.DateTimeField()),
                    ("anchor_at", models.DateTimeField(help_text="From here on the rate is measured.")),
                    ("anchor_step", models.FloatField()),
                    ("mark_at", models.DateTimeField(help_text="The next anchor.")),
                    ("mark_step", models.FloatField()),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    (
                        "driver",
                        models.CharField(
                            blank=True,
                            db_default="",
                            default="",
                            help_text="Driver versions of its nodes when its rate began to be measured; empty: not known.",
                            max_length=80,
                        ),
                    ),
                ],
                options={
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "booking"), name="progress_in_tenant"),
                        models.CheckConstraint(condition=models.Q(("step__gte", 0), ("step__lte", 1000000000000000.0)), name="progress_is_a_number"),
                        models.CheckConstraint(
                            condition=models.Q(
                                ("of", None), models.Q(("of__gt", 0), ("of__gte", models.F("step")), ("of__lte", 1000000000000000.0)), _connector="OR"
                            ),
                            name="progress_of_all",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(("anchor_at__lte", models.F("mark_at")), ("mark_at__lte", models.F("at"))), name="progress_in_order"
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="PolicyApproval",
                fields=[
                    (
                        "version",
                        models.OneToOneField(
                            on_delete=django.db.models.deletion.PROTECT,
                            primary_key=True,
                            related_name="approval",
                            serialize=False,
                            to="allocation.policyversion",
                        ),
                    ),
                    ("at", models.DateTimeField()),
                    ("by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                ],
            ),
            migrations.CreateModel(
                name="PolicyActivation",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    (
                        "kind",
                        models.CharField(
                            choices=[("published", "Published"), ("activation", "Activation"), ("rollback", "Rollback"), ("return", "Return by the guard")],
                            max_length=12,
                        ),
                    ),
                    (
                        "state",
                        models.CharField(
                            choices=[("waiting", "Waiting"), ("done", "In force since"), ("withdrawn", "Withdrawn"), ("failed", "Failed")],
                            default="waiting",
                            max_length=10,
                        ),
                    ),
                    ("asked_at", models.DateTimeField()),
                    ("starts", models.DateTimeField(help_text="From when on it is to be in force.")),
                    ("due_at", models.DateTimeField(blank=True, help_text="When it is carried out; null: a second operator approves first.", null=True)),
                    ("reason", models.CharField(blank=True, max_length=300)),
                    ("waiver", models.CharField(blank=True, help_text="Why a site's only operator did not wait for a day.", max_length=300)),
                    ("ended_at", models.DateTimeField(blank=True, help_text="When it was carried out or given up.", null=True)),
                    ("note", models.CharField(blank=True, help_text="Why it failed.", max_length=300)),
                    (
                        "asked_by",
                        models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL),
                    ),
                    (
                        "former",
                        models.ForeignKey(
                            blank=True,
                            help_text="The version that was in force before.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to="allocation.policyversion",
                        ),
                    ),
                    ("version", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="activations", to="allocation.policyversion")),
                    (
                        "guard",
                        models.JSONField(blank=True, db_default={}, default=dict, help_text="`hours`, and `figures` with bands; empty: nothing is guarded."),
                    ),
                    ("classes", models.JSONField(blank=True, db_default=[], default=list, help_text="Slugs of GPU classes; empty: for all.")),
                    (
                        "in_force",
                        models.ForeignKey(
                            blank=True,
                            help_text="The version that it put into force: another one than `version` for a part of the site.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to="allocation.policyversion",
                        ),
                    ),
                    ("tenants", models.JSONField(blank=True, db_default=[], default=list, help_text="Ids of organisations; empty: for all.")),
                    (
                        "applied",
                        models.JSONField(
                            blank=True,
                            db_default=[],
                            default=list,
                            help_text="What it changed of tiers, quotas and prices: [kind, whose, field, before, after].",
                        ),
                    ),
                ],
                options={
                    "ordering": ["-id"],
                    "indexes": [models.Index(condition=models.Q(("state", "waiting")), fields=["due_at"], name="policy_due")],
                    "constraints": [
                        models.UniqueConstraint(condition=models.Q(("state", "waiting")), fields=("version",), name="policy_activation_one_waiting"),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("ended_at", None), ("state", "waiting")),
                                models.Q(models.Q(("state", "waiting"), _negated=True), ("ended_at__isnull", False)),
                                _connector="OR",
                            ),
                            name="policy_activation_ends_once",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(("due_at", None), ("due_at__gte", models.F("starts")), _connector="OR"), name="policy_activation_not_early"
                        ),
                        models.CheckConstraint(
                            condition=models.Q(models.Q(("kind", "rollback"), _negated=True), models.Q(("reason", ""), _negated=True), _connector="OR"),
                            name="policy_rollback_has_a_reason",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("in_force__isnull", False), ("state", "done")),
                                models.Q(models.Q(("state", "done"), _negated=True), ("in_force", None)),
                                _connector="OR",
                            ),
                            name="policy_activation_in_force",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="AdviceShown",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("workload", models.CharField(max_length=63)),
                    ("code", models.CharField(max_length=16)),
                    ("shown", models.PositiveIntegerField()),
                    ("first_at", models.DateTimeField()),
                    ("last_at", models.DateTimeField()),
                    (
                        "project",
                        models.ForeignKey(
                            db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenants.project"
                        ),
                    ),
                    ("tenant", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                ],
                options={
                    "constraints": [models.UniqueConstraint(fields=("project", "workload", "code"), name="advice_shown_once")],
                },
            ),
            migrations.CreateModel(
                name="Diversion",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("workload", models.CharField(blank=True, max_length=63)),
                    ("mode", models.CharField(choices=[("off", "Off"), ("suggest", "Suggest"), ("automatic", "Automatic")], max_length=9)),
                    ("since", models.DateTimeField()),
                    ("changed_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    (
                        "project",
                        models.ForeignKey(
                            db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenants.project"
                        ),
                    ),
                    ("tenant", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                ],
                options={
                    "constraints": [
                        models.UniqueConstraint(fields=("project", "workload"), name="diversion_once"),
                        models.CheckConstraint(condition=models.Q(("mode__in", ("off", "suggest", "automatic"))), name="diversion_mode_known"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="PolicyTrial",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("days", models.PositiveSmallIntegerField()),
                    ("seeds", models.PositiveSmallIntegerField()),
                    ("until", models.DateTimeField(help_text="The end of the past that is played.")),
                    ("asked_at", models.DateTimeField()),
                    (
                        "state",
                        models.CharField(
                            choices=[("waiting", "Waiting"), ("running", "Running"), ("done", "Done"), ("cancelled", "Cancelled"), ("failed", "Failed")],
                            default="waiting",
                            max_length=10,
                        ),
                    ),
                    ("attempts", models.PositiveSmallIntegerField(default=0, help_text="Processes that have begun it.")),
                    ("alive_at", models.DateTimeField(blank=True, help_text="When its process wrote last.", null=True)),
                    ("permille", models.PositiveSmallIntegerField(default=0, help_text="How far it is.")),
                    ("finished_at", models.DateTimeField(blank=True, null=True)),
                    ("took_ms", models.PositiveIntegerField(default=0, help_text="Time of the processor.")),
                    ("note", models.CharField(blank=True, help_text="Why it failed.", max_length=300)),
                    ("report", models.JSONField(blank=True, null=True)),
                    (
                        "against",
                        models.ForeignKey(
                            help_text="The version that was in force.",
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to="allocation.policyversion",
                        ),
                    ),
                    (
                        "asked_by",
                        models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL),
                    ),
                    ("candidate", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="allocation.policyversion")),
                    (
                        "demand",
                        models.JSONField(
                            blank=True, db_default={}, default=dict, help_text="`load`, `sizes` and `bursts` in percent; empty: the demand of the past."
                        ),
                    ),
                    (
                        "fleet",
                        models.JSONField(
                            blank=True,
                            db_default={},
                            default=dict,
                            help_text="`gpu_class`, `gpus`, `from_hour` and `to_hour` that the site has more; empty: none.",
                        ),
                    ),
                ],
                options={
                    "ordering": ["-asked_at", "id"],
                    "indexes": [models.Index(condition=models.Q(("finished_at", None)), fields=["asked_at"], name="policy_trial_open")],
                    "constraints": [
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("finished_at", None), ("state__in", ("waiting", "running"))),
                                models.Q(models.Q(("state__in", ("waiting", "running")), _negated=True), ("finished_at__isnull", False)),
                                _connector="OR",
                            ),
                            name="policy_trial_ends_once",
                        ),
                        models.CheckConstraint(condition=models.Q(("report", None), ("state", "done"), _connector="OR"), name="policy_trial_done_with_report"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="PolicyTrialPart",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("is_candidate", models.BooleanField()),
                    ("seed", models.PositiveSmallIntegerField()),
                    ("outcome", models.JSONField()),
                    ("made_at", models.DateTimeField()),
                    ("trial", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="parts", to="allocation.policytrial")),
                ],
                options={
                    "constraints": [models.UniqueConstraint(fields=("trial", "is_candidate", "seed"), name="policy_trial_part_once")],
                },
            ),
            migrations.CreateModel(
                name="PolicyShadow",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("every", models.PositiveSmallIntegerField(help_text="Of so many decisions, one is decided again.")),
                    ("started_at", models.DateTimeField()),
                    ("ended_at", models.DateTimeField(blank=True, null=True)),
                    ("last_decision", models.BigIntegerField(help_text="The newest decision that was looked at.")),
                    ("next_at", models.DateTimeField(help_text="Not before then, so that it takes a fifth of a core at most.")),
                    ("decided", models.PositiveIntegerField(default=0, help_text="Decisions that were decided again.")),
                    ("differing", models.PositiveIntegerField(default=0, help_text="Those in which something differs.")),
                    ("failed", models.PositiveIntegerField(default=0, help_text="Those that could not be decided again.")),
                    ("took_ms", models.PositiveBigIntegerField(default=0, help_text="Time of the processor.")),
                    ("note", models.CharField(blank=True, help_text="Why the last one failed.", max_length=200)),
                    (
                        "started_by",
                        models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL),
                    ),
                    ("version", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="shadows", to="allocation.policyversion")),
                ],
                options={
                    "ordering": ["-id"],
                    "constraints": [
                        models.UniqueConstraint(condition=models.Q(("ended_at", None)), fields=("version",), name="policy_shadow_one_open"),
                        models.CheckConstraint(condition=models.Q(("every__gte", 1)), name="policy_shadow_every"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="PolicyShadowDifference",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    (
                        "kind",
                        models.CharField(
                            choices=[
                                ("earlier", "Starts earlier"),
                                ("later", "Starts later"),
                                ("paused", "Is paused"),
                                ("spared", "Is not paused"),
                                ("refused", "Is refused"),
                                ("taken", "Is not refused"),
                            ],
                            max_length=8,
                        ),
                    ),
                    ("times", models.PositiveIntegerField(help_text="Decisions in which it did.")),
                    ("first_at", models.DateTimeField()),
                    ("last_at", models.DateTimeField()),
                    ("decision", models.BigIntegerField(help_text="The last of these decisions.")),
                    ("active_starts", models.DateTimeField(blank=True, help_text="Planned by the live version.", null=True)),
                    ("starts", models.DateTimeField(blank=True, help_text="Planned by the candidate.", null=True)),
                    ("rule", models.CharField(blank=True, help_text="The code of the candidate's reason.", max_length=40)),
                    ("booking", models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="allocation.booking")),
                    ("shadow", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="differences", to="allocation.policyshadow")),
                ],
                options={
                    "ordering": ["-last_at", "id"],
                    "constraints": [models.UniqueConstraint(fields=("shadow", "booking", "kind"), name="policy_shadow_difference_once")],
                },
            ),
            migrations.CreateModel(
                name="DemandForecast",
                fields=[
                    ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                    (
                        "kind",
                        models.CharField(
                            choices=[("requested", "GPUs asked for"), ("in_use", "GPUs in use"), ("wanted", "GPUs in use and waited for")], max_length=12
                        ),
                    ),
                    ("at", models.DateTimeField(help_text="The first hour that it forecasts, in which it was made.")),
                    (
                        "low",
                        django.contrib.postgres.fields.ArrayField(
                            base_field=models.FloatField(), help_text="8 in 10 hours are expected between low and high.", size=None
                        ),
                    ),
                    ("middle", django.contrib.postgres.fields.ArrayField(base_field=models.FloatField(), size=None)),
                    ("high", django.contrib.postgres.fields.ArrayField(base_field=models.FloatField(), size=None)),
                    (
                        "hits",
                        models.JSONField(
                            help_text="By hours ahead: how many hours of the last four weeks kept forecasts had in their bands, of how many, and how far off they were on average in GPUs."
                        ),
                    ),
                    ("gpu_class", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.gpuclass")),
                ],
                options={
                    "ordering": ["gpu_class", "kind", "-at"],
                    "constraints": [models.UniqueConstraint(fields=("gpu_class", "kind", "at"), name="demand_forecast_once")],
                },
            ),
            migrations.CreateModel(
                name="DemandHour",
                fields=[
                    ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                    ("at", models.DateTimeField(help_text="The hour's begin.")),
                    ("requested", models.FloatField(help_text="GPUs that bookings asked for in it.")),
                    ("in_use", models.FloatField(help_text="GPUs that bookings had, on average.")),
                    ("wanted", models.FloatField(help_text="These, and the GPUs of bookings that waited.")),
                    ("gpu_class", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.gpuclass")),
                ],
                options={
                    "ordering": ["gpu_class", "at"],
                    "constraints": [
                        models.UniqueConstraint(fields=("gpu_class", "at"), name="demand_hour_once"),
                        models.CheckConstraint(condition=models.Q(("in_use__gte", 0), ("requested__gte", 0), ("wanted__gte", 0)), name="demand_hour_positive"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="ObservedCluster",
                fields=[
                    ("slug", models.SlugField(max_length=40, primary_key=True, serialize=False)),
                    ("engine", models.CharField(choices=[("slurm", "Slurm"), ("kubernetes", "Kubernetes")], default="slurm", max_length=12)),
                    ("created", models.DateTimeField()),
                    ("read_at", models.DateTimeField(help_text="When records were read last.")),
                ],
                options={
                    "ordering": ["slug"],
                },
            ),
            migrations.CreateModel(
                name="ObservedAccount",
                fields=[
                    ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                    ("name", models.CharField(max_length=64)),
                    (
                        "project",
                        models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.project"),
                    ),
                    ("tenant", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("cluster", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="allocation.observedcluster")),
                ],
                options={
                    "ordering": ["cluster", "name"],
                    "constraints": [
                        models.UniqueConstraint(fields=("cluster", "name"), name="observed_account_once"),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("project", None), ("tenant", None)), models.Q(("project__isnull", False), ("tenant__isnull", False)), _connector="OR"
                            ),
                            name="observed_account_of_project",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="ObservedJob",
                fields=[
                    ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                    ("number", models.CharField(max_length=64)),
                    ("gpu_type", models.CharField(blank=True, max_length=64)),
                    ("gpus", models.PositiveIntegerField()),
                    ("person", models.CharField(blank=True, help_text="Its owner's account on the cluster.", max_length=64)),
                    ("partition", models.CharField(blank=True, max_length=64)),
                    ("state", models.CharField(max_length=24)),
                    ("nodes", models.TextField(blank=True)),
                    ("submitted", models.DateTimeField()),
                    ("eligible", models.DateTimeField()),
                    ("started", models.DateTimeField(blank=True, null=True)),
                    ("ended", models.DateTimeField(blank=True, null=True)),
                    ("limit_seconds", models.PositiveBigIntegerField(blank=True, null=True)),
                    ("is_booking", models.BooleanField(help_text="It holds the devices of a booking, which counts by itself.")),
                    ("read_at", models.DateTimeField(help_text="What runs then is known to run until then.")),
                    ("account", models.CharField(blank=True, max_length=64)),
                    (
                        "project",
                        models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.project"),
                    ),
                    ("cluster", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="allocation.observedcluster")),
                    ("gpu_class", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.gpuclass")),
                    (
                        "tenant",
                        models.ForeignKey(
                            blank=True,
                            help_text="The account's; null: operators' only.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            to="tenants.tenant",
                        ),
                    ),
                ],
                options={
                    "ordering": ["cluster", "submitted", "id"],
                    "indexes": [
                        models.Index(fields=["cluster", "started"], name="observed_job_started"),
                        models.Index(fields=["read_at"], name="observed_job_read"),
                    ],
                    "constraints": [
                        models.UniqueConstraint(fields=("cluster", "number", "submitted", "gpu_type"), name="observed_job_once"),
                        models.CheckConstraint(condition=models.Q(("gpus__gt", 0)), name="observed_job_gpus"),
                        models.CheckConstraint(
                            condition=models.Q(
                                ("eligible__gte", models.F("submitted")),
                                models.Q(("started", None), ("started__gte", models.F("submitted")), _connector="OR"),
                                models.Q(("ended", None), ("ended__gte", models.F("submitted")), _connector="OR"),
                                models.Q(("ended", None), ("started", None), ("ended__gte", models.F("started")), _connector="OR"),
                            ),
                            name="observed_job_times",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="ObservedType",
                fields=[
                    ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                    ("name", models.CharField(blank=True, help_text="Empty: the cluster has no types.", max_length=64)),
                    ("cluster", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="allocation.observedcluster")),
                    ("gpu_class", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.gpuclass")),
                ],
                options={
                    "ordering": ["cluster", "name"],
                    "constraints": [models.UniqueConstraint(fields=("cluster", "name"), name="observed_type_once")],
                },
            ),
            migrations.CreateModel(
                name="CapacityPlan",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("gpus", models.PositiveSmallIntegerField(help_text="GPUs at once.")),
                    ("starts", models.DateTimeField()),
                    ("until", models.DateTimeField(help_text="No machine is kept longer for new work.")),
                    ("most_cost", models.DecimalField(decimal_places=6, max_digits=20)),
                    ("currency", models.CharField(max_length=3)),
                    (
                        "source",
                        models.CharField(
                            choices=[("person", "A person"), ("sprint", "A sprint"), ("backlog", "The backlog"), ("forecast", "The forecast")], max_length=8
                        ),
                    ),
                    ("reference", models.CharField(blank=True, help_text="Address of the sprint, or `backlog:` or `forecast:` and the class.", max_length=500)),
                    (
                        "state",
                        models.CharField(
                            choices=[("proposed", "Proposed"), ("active", "Active"), ("ended", "Ended"), ("cancelled", "Cancelled"), ("refused", "Refused")],
                            max_length=9,
                        ),
                    ),
                    ("note", models.CharField(blank=True, help_text="Why it is in its state.", max_length=300)),
                    ("committed", models.DecimalField(db_default=Decimal("0"), decimal_places=6, default=Decimal("0"), max_digits=20)),
                    (
                        "charged",
                        models.DecimalField(
                            db_default=Decimal("0"),
                            decimal_places=6,
                            default=Decimal("0"),
                            help_text="What its machines cost beyond what bookings on them paid.",
                            max_digits=20,
                        ),
                    ),
                    ("created", models.DateTimeField()),
                    ("ended", models.DateTimeField(blank=True, null=True)),
                    (
                        "booking",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            help_text="The only booking that it is for; null: all of the project on the class.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to="allocation.booking",
                        ),
                    ),
                    ("created_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    (
                        "decided_by",
                        models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL),
                    ),
                    ("gpu_class", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.gpuclass")),
                    (
                        "made_with",
                        models.ForeignKey(
                            blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenants.apitoken"
                        ),
                    ),
                    (
                        "project",
                        models.ForeignKey(
                            db_constraint=False, help_text="Who pays and uses it.", on_delete=django.db.models.deletion.PROTECT, to="tenants.project"
                        ),
                    ),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                ],
                options={
                    "ordering": ["-created", "id"],
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "id"), name="capacity_plan_in_tenant"),
                        models.UniqueConstraint(fields=("booking",), name="capacity_plan_of_booking_once"),
                        models.UniqueConstraint(
                            condition=models.Q(("state__in", ("proposed", "active")), models.Q(("reference", ""), _negated=True)),
                            fields=("project", "reference"),
                            name="capacity_plan_of_sprint_once",
                        ),
                        models.CheckConstraint(condition=models.Q(("gpus__gte", 1)), name="capacity_plan_has_gpus"),
                        models.CheckConstraint(condition=models.Q(("until__gt", models.F("starts"))), name="capacity_plan_ends_later"),
                        models.CheckConstraint(
                            condition=models.Q(("committed__gte", 0), ("committed__lte", models.F("most_cost"))), name="capacity_plan_within_money"
                        ),
                        models.CheckConstraint(
                            condition=models.Q(("charged__gte", 0), ("charged__lte", models.F("committed"))), name="capacity_plan_charges_cost"
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("ended", None), ("state__in", ("proposed", "active"))),
                                models.Q(("ended__isnull", False), ("state__in", ("ended", "cancelled", "refused"))),
                                _connector="OR",
                            ),
                            name="capacity_plan_ends_once",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="CapacityMachine",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("provider", models.CharField(max_length=40)),
                    ("offer", models.CharField(blank=True, max_length=40)),
                    ("name", models.CharField(help_text="Of the machine at its provider.", max_length=60)),
                    ("node", models.CharField(blank=True, help_text="Name of its node in the fleet.", max_length=60)),
                    ("slot", models.PositiveSmallIntegerField(blank=True, null=True)),
                    ("most", models.PositiveSmallIntegerField(blank=True, help_text="Machines that its provider may have at once.", null=True)),
                    ("gpus", models.PositiveSmallIntegerField(default=0)),
                    ("zone", models.CharField(blank=True, max_length=40)),
                    ("interruptible", models.BooleanField(default=False)),
                    ("price", models.DecimalField(decimal_places=6, default=Decimal("0"), help_text="Of the machine in an hour.", max_digits=20)),
                    ("currency", models.CharField(blank=True, max_length=3)),
                    ("least_seconds", models.PositiveIntegerField(default=0, help_text="The first paid period.")),
                    ("period_seconds", models.PositiveIntegerField(default=0, help_text="Every later one.")),
                    ("provider_id", models.CharField(blank=True, help_text="Empty until it is known.", max_length=120)),
                    (
                        "state",
                        models.CharField(
                            choices=[
                                ("requested", "Requested"),
                                ("booting", "Booting"),
                                ("ready", "Ready"),
                                ("draining", "Draining"),
                                ("releasing", "Releasing"),
                                ("released", "Released"),
                                ("lost", "Lost"),
                                ("orphan", "Orphan"),
                            ],
                            max_length=9,
                        ),
                    ),
                    ("note", models.CharField(blank=True, help_text="What is wrong, or why it left.", max_length=300)),
                    ("requested", models.DateTimeField()),
                    ("asked", models.DateTimeField(blank=True, help_text="When the provider was last asked for it.", null=True)),
                    ("due", models.DateTimeField(blank=True, help_text="It is late after this time.", null=True)),
                    ("came", models.DateTimeField(blank=True, help_text="When the provider first listed it.", null=True)),
                    ("ready", models.DateTimeField(blank=True, help_text="When bookings could use it.", null=True)),
                    ("paid_until", models.DateTimeField(blank=True, help_text="End of its paid period.", null=True)),
                    ("released", models.DateTimeField(blank=True, help_text="When the provider listed it no more.", null=True)),
                    (
                        "cost",
                        models.DecimalField(
                            db_default=Decimal("0"), decimal_places=6, default=Decimal("0"), help_text="Until the end of its paid period.", max_digits=20
                        ),
                    ),
                    ("gpu_class", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.gpuclass")),
                    ("tenant", models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    (
                        "plan",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="machines",
                            to="allocation.capacityplan",
                        ),
                    ),
                    ("leaves", models.DateTimeField(blank=True, help_text="When its provider takes it back, by its own notice.", null=True)),
                ],
                options={
                    "ordering": ["-requested", "id"],
                    "constraints": [
                        models.UniqueConstraint(
                            condition=models.Q(("state", "orphan"), _negated=True), fields=("provider", "name"), name="capacity_machine_named_once"
                        ),
                        models.UniqueConstraint(
                            condition=models.Q(("provider_id", ""), _negated=True), fields=("provider", "provider_id"), name="capacity_machine_known_once"
                        ),
                        models.UniqueConstraint(
                            condition=models.Q(("state__in", ("requested", "booting", "ready", "draining", "releasing"))),
                            fields=("provider", "slot"),
                            name="capacity_machine_in_slot",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                ("plan", None), models.Q(("slot__gte", 1), ("slot__isnull", False), ("slot__lte", models.F("most"))), _connector="OR"
                            ),
                            name="capacity_machine_within_cap",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("plan", None), ("state", "orphan"), ("tenant", None)),
                                models.Q(models.Q(("state", "orphan"), _negated=True), ("plan__isnull", False), ("tenant__isnull", False)),
                                models.Q(("plan", None), ("state", "released"), ("tenant", None)),
                                _connector="OR",
                            ),
                            name="capacity_machine_has_plan",
                        ),
                        models.CheckConstraint(condition=models.Q(("cost__gte", 0)), name="capacity_machine_cost_positive"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="CapacitySpend",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("provider", models.CharField(max_length=40)),
                    ("month", models.DateField()),
                    ("committed", models.DecimalField(db_default=Decimal("0"), decimal_places=6, default=Decimal("0"), max_digits=20)),
                    ("most", models.DecimalField(decimal_places=6, max_digits=20)),
                ],
                options={
                    "constraints": [
                        models.UniqueConstraint(fields=("provider", "month"), name="capacity_spend_once"),
                        models.CheckConstraint(
                            condition=models.Q(("committed__gte", 0), ("committed__lte", models.F("most"))), name="capacity_spend_within_most"
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="SprintRule",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    (
                        "mode",
                        models.CharField(
                            choices=[("off", "Nothing"), ("propose", "A plan that a lead approves"), ("rent", "A plan that is active")], max_length=7
                        ),
                    ),
                    ("gpus", models.PositiveSmallIntegerField()),
                    ("most_cost", models.DecimalField(decimal_places=6, help_text="Of each sprint.", max_digits=20)),
                    ("issue", models.CharField(blank=True, help_text="It gets comments, such as GPU-1.", max_length=40)),
                    ("changed", models.DateTimeField()),
                    ("changed_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    ("gpu_class", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.gpuclass")),
                    (
                        "project",
                        models.ForeignKey(
                            db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenants.project"
                        ),
                    ),
                    ("tenant", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                ],
                options={
                    "constraints": [
                        models.UniqueConstraint(fields=("project",), name="sprint_rule_once"),
                        models.CheckConstraint(condition=models.Q(("mode__in", ("off", "propose", "rent"))), name="sprint_rule_mode_known"),
                        models.CheckConstraint(condition=models.Q(("gpus__gte", 1), ("most_cost__gt", 0)), name="sprint_rule_has_bounds"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="HeadroomHour",
                fields=[
                    ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                    ("at", models.DateTimeField(help_text="The hour's begin.")),
                    ("gpus", models.PositiveIntegerField(help_text="GPUs that were kept free.")),
                    ("there", models.PositiveIntegerField(help_text="GPUs of the class.")),
                    ("counted", models.BooleanField(default=False, help_text="Whether the hour is over and counted.")),
                    ("served", models.PositiveIntegerField(default=0, help_text="Short bookings that started at once on GPUs that were kept free.")),
                    ("idle", models.FloatField(default=0, help_text="GPU-hours of them that nobody used.")),
                    ("waited", models.FloatField(default=0, help_text="Of these, while others waited for the class.")),
                    ("gpu_class", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.gpuclass")),
                ],
                options={
                    "ordering": ["gpu_class", "at"],
                    "constraints": [
                        models.UniqueConstraint(fields=("gpu_class", "at"), name="headroom_hour_once"),
                        models.CheckConstraint(condition=models.Q(("idle__gte", 0), ("waited__gte", 0)), name="headroom_hour_positive"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="NodeNotebooks",
                fields=[
                    (
                        "node",
                        models.OneToOneField(
                            on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name="+", serialize=False, to="allocation.node"
                        ),
                    ),
                    ("programs", models.JSONField(help_text="Names of the site's list on the node.")),
                    ("seq", models.PositiveBigIntegerField(help_text="The number of its last message.")),
                ],
            ),
            migrations.CreateModel(
                name="Notebook",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("program", models.CharField(max_length=40)),
                    ("label", models.CharField(help_text="Its host's name below NOTEBOOK_URL's.", max_length=24, unique=True)),
                    (
                        "state",
                        models.CharField(
                            choices=[("asked", "Asked"), ("starting", "Starting"), ("ready", "Ready"), ("ended", "Ended"), ("failed", "Failed")],
                            default="asked",
                            max_length=8,
                        ),
                    ),
                    ("reason", models.CharField(blank=True, help_text="Why it ended or failed.", max_length=300)),
                    ("key", models.CharField(blank=True, help_text="SHA-256 of the secret of its tunnels; empty: none is known.", max_length=64)),
                    ("is_ordered", models.BooleanField(default=False, help_text="It stands in its node's document.")),
                    ("run", models.DateTimeField(help_text="When the run of the booking began, with which it ends.")),
                    ("asked_at", models.DateTimeField()),
                    ("ready_at", models.DateTimeField(blank=True, null=True)),
                    ("ended_at", models.DateTimeField(blank=True, null=True)),
                    (
                        "booking",
                        models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name="notebooks", to="allocation.booking"),
                    ),
                    ("node", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="allocation.node")),
                    ("owner", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                ],
                options={
                    "ordering": ["-asked_at", "id"],
                    "indexes": [
                        models.Index(condition=models.Q(("is_ordered", True)), fields=["node"], name="notebook_ordered"),
                        models.Index(fields=["booking", "-asked_at"], name="notebook_of_booking"),
                    ],
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "id"), name="notebook_id_in_tenant"),
                        models.UniqueConstraint(condition=models.Q(("ended_at", None)), fields=("booking",), name="notebook_open_once"),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("ended_at", None), ("state__in", ["asked", "starting", "ready"])),
                                models.Q(("ended_at__isnull", False), ("state__in", ["ended", "failed"])),
                                _connector="OR",
                            ),
                            name="notebook_ended",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="NotebookEntry",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("session", models.BinaryField(help_text="Digest of the portal's session.", max_length=32)),
                    ("ticket", models.BinaryField(max_length=32, unique=True)),
                    ("ticket_until", models.DateTimeField()),
                    ("cookie", models.BinaryField(blank=True, max_length=32, null=True, unique=True)),
                    (
                        "notebook",
                        models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name="entries", to="allocation.notebook"),
                    ),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                ],
                options={
                    "constraints": [models.UniqueConstraint(fields=("tenant", "id"), name="notebook_entry_in_tenant")],
                },
            ),
            migrations.CreateModel(
                name="BacklogRule",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    (
                        "mode",
                        models.CharField(
                            choices=[("off", "Nothing"), ("propose", "A plan that a lead approves"), ("rent", "A plan that is active")], max_length=7
                        ),
                    ),
                    ("wait_minutes", models.PositiveSmallIntegerField(help_text="Longest wait from when a booking could begin to its expected start.")),
                    ("gpus", models.PositiveSmallIntegerField()),
                    ("hours", models.PositiveSmallIntegerField(help_text="That a plan is open.")),
                    ("most_cost", models.DecimalField(decimal_places=6, help_text="Of its plans of a calendar month (UTC).", max_digits=20)),
                    ("note", models.CharField(blank=True, help_text="Why it could make no plan.", max_length=300)),
                    ("changed", models.DateTimeField()),
                    ("changed_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    ("gpu_class", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.gpuclass")),
                    (
                        "project",
                        models.ForeignKey(
                            db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenants.project"
                        ),
                    ),
                    ("tenant", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                ],
                options={
                    "constraints": [
                        models.UniqueConstraint(fields=("project", "gpu_class"), name="backlog_rule_once"),
                        models.CheckConstraint(condition=models.Q(("mode__in", ("off", "propose", "rent"))), name="backlog_rule_mode_known"),
                        models.CheckConstraint(
                            condition=models.Q(("gpus__gte", 1), ("hours__gte", 1), ("most_cost__gt", 0), ("wait_minutes__gte", 10)),
                            name="backlog_rule_has_bounds",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="HandOver",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("revision", models.PositiveIntegerField(help_text="Of the booking's request, as it is offered.")),
                    ("note", models.CharField(blank=True, help_text="What the taker reads.", max_length=200)),
                    ("created", models.DateTimeField()),
                    ("until", models.DateTimeField()),
                    (
                        "state",
                        models.CharField(
                            choices=[("open", "Open"), ("accepted", "Accepted"), ("declined", "Declined"), ("withdrawn", "Withdrawn"), ("expired", "Expired")],
                            default="open",
                            max_length=9,
                        ),
                    ),
                    ("answered", models.DateTimeField(blank=True, null=True)),
                    ("accepted_in", models.BigIntegerField(blank=True, help_text="The transaction of the acceptance; a trigger writes it.", null=True)),
                    (
                        "answered_by",
                        models.ForeignKey(
                            blank=True,
                            help_text="Null: nobody, it expired.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to=settings.AUTH_USER_MODEL,
                        ),
                    ),
                    (
                        "booking",
                        models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name="hand_overs", to="allocation.booking"),
                    ),
                    (
                        "created_by",
                        models.ForeignKey(
                            help_text="The owner, or a lead of the project.",
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to=settings.AUTH_USER_MODEL,
                        ),
                    ),
                    (
                        "giver",
                        models.ForeignKey(help_text="The owner.", on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL),
                    ),
                    (
                        "made_with",
                        models.ForeignKey(
                            blank=True,
                            db_constraint=False,
                            help_text="The token that offered it, with which it ends; null: a browser.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to="tenants.apitoken",
                        ),
                    ),
                    (
                        "taker",
                        models.ForeignKey(
                            help_text="Who may accept it.", on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
                        ),
                    ),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                ],
                options={
                    "ordering": ["-created", "id"],
                    "indexes": [
                        models.Index(fields=["tenant", "taker", "-created"], name="hand_over_by_taker"),
                        models.Index(fields=["tenant", "giver", "-created"], name="hand_over_by_giver"),
                        models.Index(condition=models.Q(("state", "open")), fields=["until"], name="hand_over_open"),
                    ],
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "id"), name="hand_over_id_in_tenant"),
                        models.UniqueConstraint(condition=models.Q(("state", "open")), fields=("booking",), name="hand_over_open_once"),
                        models.CheckConstraint(condition=models.Q(("giver", models.F("taker")), _negated=True), name="hand_over_to_another"),
                        models.CheckConstraint(condition=models.Q(("until__gt", models.F("created"))), name="hand_over_ends_later"),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("answered", None), ("answered_by", None), ("state", "open")),
                                models.Q(("answered__isnull", False), ("answered_by", None), ("state", "expired")),
                                models.Q(("answered__isnull", False), ("answered_by__isnull", False), ("state__in", ["declined", "withdrawn"])),
                                models.Q(
                                    ("answered__isnull", False),
                                    ("answered__lt", models.F("until")),
                                    ("answered_by", models.F("taker")),
                                    ("answered_by__isnull", False),
                                    ("state", "accepted"),
                                ),
                                _connector="OR",
                            ),
                            name="hand_over_answered",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("accepted_in__isnull", False), ("state", "accepted")),
                                models.Q(models.Q(("state", "accepted"), _negated=True), ("accepted_in", None)),
                                _connector="OR",
                            ),
                            name="hand_over_accepted_in",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="PauseAppeal",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("reason", models.CharField(max_length=500)),
                    ("decider", models.CharField(choices=[("admin", "The organisation's admins"), ("operator", "The operators")], max_length=8)),
                    ("raised", models.DateTimeField()),
                    ("state", models.CharField(choices=[("open", "Open"), ("accepted", "Accepted"), ("declined", "Declined")], default="open", max_length=8)),
                    ("answer", models.CharField(blank=True, max_length=500)),
                    ("answered", models.DateTimeField(blank=True, null=True)),
                    (
                        "answered_by",
                        models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL),
                    ),
                    ("booking", models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="allocation.booking")),
                    (
                        "pause",
                        models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name="appeal", to="allocation.pause"),
                    ),
                    ("raised_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                ],
                options={
                    "ordering": ["-raised", "id"],
                    "indexes": [
                        models.Index(fields=["tenant", "-raised"], name="pause_appeal_of_tenant"),
                        models.Index(condition=models.Q(("state", "open")), fields=["raised"], name="pause_appeal_open"),
                    ],
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "id"), name="pause_appeal_id_in_tenant"),
                        models.CheckConstraint(condition=models.Q(("reason", ""), _negated=True), name="pause_appeal_has_a_reason"),
                        models.CheckConstraint(condition=models.Q(("decider__in", ["admin", "operator"])), name="pause_appeal_decider_known"),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("answer", ""), ("answered", None), ("answered_by", None), ("state", "open")),
                                models.Q(
                                    ("answered__gte", models.F("raised")),
                                    ("answered__isnull", False),
                                    ("answered_by__isnull", False),
                                    ("state__in", ["accepted", "declined"]),
                                    models.Q(("answer", ""), _negated=True),
                                    models.Q(("answered_by", models.F("raised_by")), _negated=True),
                                ),
                                _connector="OR",
                            ),
                            name="pause_appeal_answered_by_another",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="ForecastRule",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    (
                        "mode",
                        models.CharField(
                            choices=[("off", "Nothing"), ("propose", "A plan that a lead approves"), ("rent", "A plan that is active")], max_length=7
                        ),
                    ),
                    ("gpus", models.PositiveSmallIntegerField()),
                    ("most_cost", models.DecimalField(decimal_places=6, help_text="Of its plans of a calendar month (UTC).", max_digits=20)),
                    ("note", models.CharField(blank=True, help_text="Why it could make no plan.", max_length=300)),
                    ("changed", models.DateTimeField()),
                    ("hours", models.PositiveSmallIntegerField(help_text="So many hours have to be short at least.")),
                    ("days", models.PositiveSmallIntegerField(help_text="Of the coming days that are looked at.")),
                    ("checked", models.DateTimeField(blank=True, help_text="When it last read the forecast.", null=True)),
                    ("changed_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    ("gpu_class", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.gpuclass")),
                    (
                        "project",
                        models.ForeignKey(
                            db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenants.project"
                        ),
                    ),
                    ("tenant", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                ],
                options={
                    "constraints": [
                        models.UniqueConstraint(fields=("project", "gpu_class"), name="forecast_rule_once"),
                        models.CheckConstraint(condition=models.Q(("mode__in", ("off", "propose", "rent"))), name="forecast_rule_mode_known"),
                        models.CheckConstraint(
                            condition=models.Q(("days__gte", 1), ("days__lte", 14), ("gpus__gte", 1), ("hours__gte", 1), ("most_cost__gt", 0)),
                            name="forecast_rule_has_bounds",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="SliceAhead",
                fields=[
                    ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                    ("profile", models.CharField(max_length=24)),
                    ("profile_id", models.PositiveIntegerField()),
                    ("start", models.PositiveSmallIntegerField(help_text="Its first memory slot.")),
                    ("size", models.PositiveSmallIntegerField()),
                    ("ordered", models.DateTimeField()),
                    ("closed", models.DateTimeField(blank=True, help_text="When it was taken, or no longer expected.", null=True)),
                    ("taken", models.BooleanField(default=False, help_text="Whether a booking started on it.")),
                    ("ready_seconds", models.FloatField(blank=True, help_text="From the order to start that booking until its device was ready.", null=True)),
                    ("gpu", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="allocation.gpu")),
                    ("reset_seconds", models.PositiveIntegerField(db_default=0, default=0, help_text="Of the reset that its GPU needed first; 0: none.")),
                ],
                options={
                    "ordering": ["ordered", "id"],
                    "constraints": [
                        models.UniqueConstraint(condition=models.Q(("closed", None)), fields=("gpu", "start"), name="slice_ahead_once"),
                        models.CheckConstraint(
                            condition=models.Q(models.Q(("closed", None), ("taken", False)), ("closed__gte", models.F("ordered")), _connector="OR"),
                            name="slice_ahead_closed",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="CutPause",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("released", models.DateTimeField(blank=True, help_text="When the booking fitted the limit again.", null=True)),
                    ("pause", models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="allocation.pause")),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    (
                        "cut",
                        models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name="pauses", to="allocation.limitcut"),
                    ),
                ],
                options={
                    "constraints": [models.UniqueConstraint(fields=("pause",), name="cut_pause_once")],
                },
            ),
            migrations.CreateModel(
                name="KeptBooking",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("booking", models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="allocation.booking")),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("cut", models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name="kept", to="allocation.limitcut")),
                ],
                options={
                    "constraints": [models.UniqueConstraint(fields=("cut", "booking"), name="kept_booking_once")],
                },
            ),
            migrations.CreateModel(
                name="LimitCut",
                fields=[
                    ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                    ("of_persons", models.BooleanField(default=False, help_text="The limit is that of a person there.")),
                    ("limit_units", models.BigIntegerField(blank=True, help_text="Null: only the cap was cut.", null=True)),
                    ("cap_gpu_hours", models.PositiveIntegerField(blank=True, null=True)),
                    ("cap_days", models.PositiveSmallIntegerField(blank=True, null=True)),
                    ("cap_carries", models.BooleanField(default=False)),
                    ("answer", models.CharField(choices=[("keep", "Keep"), ("drain", "Drain"), ("pause", "Pause")], max_length=5)),
                    ("created", models.DateTimeField()),
                    ("changed", models.DateTimeField(help_text="When the limit or the answer was last set.")),
                    ("ended", models.DateTimeField(blank=True, null=True)),
                    (
                        "outcome",
                        models.CharField(blank=True, choices=[("met", "Met"), ("raised", "Raised"), ("cancelled", "Cancelled")], default="", max_length=9),
                    ),
                    (
                        "changed_by",
                        models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL),
                    ),
                    ("gpu_class", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.gpuclass")),
                    ("lab", models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.lab")),
                    (
                        "person",
                        models.ForeignKey(
                            blank=True,
                            help_text="Null: everybody there.",
                            null=True,
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to=settings.AUTH_USER_MODEL,
                        ),
                    ),
                    (
                        "project",
                        models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to="tenants.project"),
                    ),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("before_units", models.BigIntegerField(blank=True, help_text="What a guarantee was: what was above it is not concerned.", null=True)),
                    ("of_guarantee", models.BooleanField(db_default=False, default=False, help_text="It is what the owner is guaranteed.")),
                    ("since", models.DateTimeField(blank=True, help_text="Of a guarantee between dates.", null=True)),
                    ("source", models.UUIDField(blank=True, help_text="The limit at some times, or guarantee between dates.", null=True)),
                    ("until", models.DateTimeField(blank=True, null=True)),
                ],
                options={
                    "ordering": ["created", "id"],
                    "indexes": [models.Index(fields=["tenant", "-created"], name="limit_cut_by_tenant")],
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "id"), name="limit_cut_id_in_tenant"),
                        models.CheckConstraint(condition=models.Q(("project", None), ("lab", None), _connector="OR"), name="limit_cut_of_one_owner"),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("of_persons", False), ("person", None)), models.Q(("lab", None), ("of_persons", True)), _connector="OR"
                            ),
                            name="limit_cut_of_persons",
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("limit_units__gte", 0), ("limit_units__isnull", False)),
                                models.Q(("cap_gpu_hours__isnull", False), ("limit_units", None)),
                                _connector="OR",
                            ),
                            name="limit_cut_has_a_limit",
                        ),
                        models.CheckConstraint(condition=models.Q(("answer__in", ["keep", "drain", "pause"])), name="limit_cut_answer_known"),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("ended", None), ("outcome", "")),
                                models.Q(("ended__gte", models.F("created")), ("ended__isnull", False), ("outcome__in", ["met", "raised", "cancelled"])),
                                _connector="OR",
                            ),
                            name="limit_cut_ended_with_an_outcome",
                        ),
                        models.UniqueConstraint(
                            condition=models.Q(("ended", None)),
                            fields=("tenant", "gpu_class", "project", "lab", "of_persons", "person", "of_guarantee", "source"),
                            name="limit_cut_open_once",
                            nulls_distinct=False,
                        ),
                        models.CheckConstraint(
                            condition=models.Q(
                                models.Q(("before_units", None), ("of_guarantee", False)),
                                models.Q(("before_units__isnull", False), ("limit_units__isnull", False), ("of_guarantee", True), ("of_persons", False)),
                                _connector="OR",
                            ),
                            name="limit_cut_of_a_guarantee",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="NodeCache",
                fields=[
                    (
                        "node",
                        models.OneToOneField(
                            on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name="+", serialize=False, to="allocation.node"
                        ),
                    ),
                    ("sets", models.JSONField(help_text="By name: the size in MiB and the Unix seconds of the last use, or null.")),
                    ("said_at", models.DateTimeField(help_text="When the node said so.")),
                ],
                options={
                    "constraints": [
                        models.CheckConstraint(
                            condition=django.db.models.lookups.LessThanOrEqual(
                                django.db.models.functions.text.Length(django.db.models.functions.comparison.Cast("sets", models.TextField())), 24000
                            ),
                            name="node_cache_bounded",
                        )
                    ],
                },
            ),
            migrations.CreateModel(
                name="SpareCores",
                fields=[
                    (
                        "project",
                        models.OneToOneField(
                            db_constraint=False,
                            on_delete=django.db.models.deletion.PROTECT,
                            primary_key=True,
                            related_name="+",
                            serialize=False,
                            to="tenants.project",
                        ),
                    ),
                    ("is_on", models.BooleanField()),
                    ("changed_at", models.DateTimeField()),
                    ("changed_by", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
                    ("tenant", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                ],
            ),
            migrations.CreateModel(
                name="HostUse",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("at", models.DateTimeField(help_text="Of the newest measurement.")),
                    ("seconds", models.FloatField(help_text="Measured time.")),
                    ("cpu_seconds", models.FloatField(help_text="Core-seconds that were used.")),
                    ("core_seconds", models.FloatField(help_text="Core-seconds that it could use; 0: not limited, or not known.")),
                    ("cores", models.PositiveIntegerField(help_text="That it can use now.")),
                    ("spare", models.PositiveIntegerField(help_text="Cores that the node could lend to it.")),
                    ("cpu", models.PositiveIntegerField(help_text="Thousandths of a core in the newest measurement.")),
                    ("memory_mb", models.PositiveIntegerField(help_text="Now.", null=True)),
                    ("peak_memory_mb", models.PositiveIntegerField(null=True)),
                    ("read_mb", models.FloatField(help_text="From disks.", null=True)),
                    ("written_mb", models.FloatField(help_text="To disks.", null=True)),
                    ("received_mb", models.FloatField(help_text="From the network.", null=True)),
                    ("sent_mb", models.FloatField(help_text="To the network.", null=True)),
                    (
                        "booking",
                        models.ForeignKey(
                            db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="host_uses", to="allocation.booking"
                        ),
                    ),
                    ("node", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="allocation.node")),
                    ("tenant", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                    ("network_seconds", models.FloatField(db_default=0, default=0, help_text="Measured time with a network, on which its sums are based.")),
                ],
                options={
                    "constraints": [
                        models.UniqueConstraint(fields=("booking", "node"), name="host_use_once"),
                        models.CheckConstraint(
                            condition=models.Q(("core_seconds__gte", 0), ("cpu_seconds__gte", 0), ("seconds__gte", 0)), name="host_use_is_a_number"
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="RaisedCores",
                fields=[
                    (
                        "booking",
                        models.OneToOneField(
                            db_constraint=False,
                            on_delete=django.db.models.deletion.PROTECT,
                            primary_key=True,
                            related_name="raised_cores",
                            serialize=False,
                            to="allocation.booking",
                        ),
                    ),
                    ("most", models.PositiveIntegerField()),
                    ("run", models.DateTimeField(help_text="When the run began for which it was raised.")),
                    ("raised_at", models.DateTimeField()),
                    ("ended_at", models.DateTimeField(help_text="When it was taken back.", null=True)),
                    ("evidence", models.JSONField(help_text="The numbers by which its work waited for input.")),
                    ("tenant", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                ],
                options={
                    "constraints": [models.CheckConstraint(condition=models.Q(("most__gte", 1), ("most__lte", 1024)), name="raised_cores_bounded")],
                },
            ),
            migrations.CreateModel(
                name="Staging",
                fields=[
                    (
                        "booking",
                        models.OneToOneField(
                            db_constraint=False,
                            on_delete=django.db.models.deletion.PROTECT,
                            primary_key=True,
                            related_name="staging",
                            serialize=False,
                            to="allocation.booking",
                        ),
                    ),
                    ("nodes", models.JSONField(help_text="By name of the node: `data`, `began_at` (Unix s), `seconds` (null: not yet), `error`.")),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                ],
                options={
                    "constraints": [models.UniqueConstraint(fields=("tenant", "booking"), name="staging_in_tenant")],
                },
            ),
            migrations.CreateModel(
                name="Zone",
                fields=[
                    (
                        "slug",
                        models.CharField(
                            max_length=40, primary_key=True, serialize=False, validators=[django.core.validators.RegexValidator("^[a-z][a-z0-9-]*$")]
                        ),
                    ),
                    ("name", models.CharField(max_length=60)),
                    ("time_zone", models.CharField(max_length=50)),
                    (
                        "price",
                        django.contrib.postgres.fields.ArrayField(
                            base_field=models.DecimalField(decimal_places=4, max_digits=8),
                            default=list,
                            help_text="Money per kWh by hour, in the site's currency.",
                            size=None,
                        ),
                    ),
                    (
                        "grams",
                        django.contrib.postgres.fields.ArrayField(
                            base_field=models.PositiveIntegerField(), default=list, help_text="CO2 per kWh by hour.", size=None
                        ),
                    ),
                    ("created", models.DateTimeField()),
                    ("ended", models.DateTimeField(blank=True, help_text="When it was given up.", null=True)),
                ],
                options={
                    "ordering": ["slug"],
                    "constraints": [
                        models.CheckConstraint(condition=models.Q(("slug__regex", "^[a-z][a-z0-9-]*$")), name="zone_slug_sane"),
                        models.CheckConstraint(condition=models.Q(("name", ""), _negated=True), name="zone_named"),
                        models.CheckConstraint(condition=models.Q(("price__len", 0), ("price__len", 24), _connector="OR"), name="zone_price_of_every_hour"),
                        models.CheckConstraint(condition=models.Q(("grams__len", 0), ("grams__len", 24), _connector="OR"), name="zone_grams_of_every_hour"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="TierEnergy",
                fields=[
                    (
                        "tier",
                        models.OneToOneField(
                            on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name="+", serialize=False, to="tenants.tier"
                        ),
                    ),
                    ("prefers", models.CharField(choices=[("price", "Cheap energy"), ("carbon", "Clean energy")], max_length=6)),
                    ("hours", models.PositiveSmallIntegerField(help_text="The most that it waits, from when it could have run.")),
                ],
                options={
                    "ordering": ["tier"],
                    "constraints": [
                        models.CheckConstraint(condition=models.Q(("prefers__in", ["price", "carbon"])), name="tier_energy_is_one"),
                        models.CheckConstraint(condition=models.Q(("hours__gte", 1), ("hours__lte", 48)), name="tier_energy_waits_so_long"),
                    ],
                },
            ),
            migrations.CreateModel(
                name="MailedMonth",
                fields=[
                    ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                    ("month", models.DateField(help_text="Its first day.")),
                    ("at", models.DateTimeField(help_text="When its messages were written.")),
                    ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="tenants.tenant")),
                ],
                options={
                    "constraints": [models.UniqueConstraint(fields=("tenant", "month"), name="mailed_month_once")],
                },
            ),
            migrations.CreateModel(
                name="PolicyTrialTenant",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("trial", models.UUIDField(help_text="The trial.")),
                    ("fleet", models.JSONField(help_text="As in the trial.")),
                    ("days", models.PositiveSmallIntegerField()),
                    ("until", models.DateTimeField(help_text="The end of the past that was played.")),
                    ("rows", models.JSONField(help_text="Waits of the organisation and of its projects, in seconds.")),
                    ("tenant", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                ],
                options={
                    "ordering": ["-until", "-id"],
                    "constraints": [models.UniqueConstraint(fields=("tenant", "trial"), name="policy_trial_tenant_once")],
                },
            ),
            migrations.CreateModel(
                name="BookingScript",
                fields=[
                    (
                        "booking",
                        models.OneToOneField(
                            db_constraint=False,
                            on_delete=django.db.models.deletion.PROTECT,
                            primary_key=True,
                            related_name="script",
                            serialize=False,
                            to="allocation.booking",
                        ),
                    ),
                    ("text", models.TextField(max_length=16384)),
                    ("log_file", models.CharField(blank=True, help_text="The file of its newest output.", max_length=300)),
                    ("log", models.TextField(blank=True, help_text="The end of its output.", max_length=4000)),
                    ("exit_code", models.PositiveSmallIntegerField(blank=True, null=True)),
                    ("ended", models.CharField(blank=True, help_text="The engine's word for how it ended, or why it never ran.", max_length=300)),
                    ("ended_at", models.DateTimeField(blank=True, null=True)),
                    ("tenant", models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
                ],
                options={
                    "constraints": [
                        models.UniqueConstraint(fields=("tenant", "booking"), name="script_in_tenant"),
                        models.CheckConstraint(condition=models.Q(("exit_code", None), ("ended_at__isnull", False), _connector="OR"), name="script_ended"),
                        models.CheckConstraint(
                            condition=models.Q(
                                django.db.models.lookups.LessThanOrEqual(django.db.models.functions.text.Length("text"), 16384),
                                django.db.models.lookups.LessThanOrEqual(django.db.models.functions.text.Length("log"), 4000),
                            ),
                            name="script_bounded",
                        ),
                    ],
                },
            ),
            migrations.CreateModel(
                name="EngineHost",
                fields=[
                    ("id", models.BigAutoField(primary_key=True, serialize=False)),
                    ("name", models.CharField(help_text="As the scheduler names it.", max_length=64)),
                    ("inventory", models.JSONField(blank=True, help_text="Null before it was reported.", null=True)),
                    ("kind", models.CharField(blank=True, default="", help_text="Its GPUs, as `4 × NVIDIA L40S`.", max_length=200)),
                    ("since", models.DateTimeField(help_text="When it was reported first.")),
                    ("gone", models.DateTimeField(blank=True, help_text="When it was reported no more.", null=True)),
                    ("engine", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="reported", to="allocation.engineagent")),
                ],
                options={
                    "ordering": ["engine", "name"],
                    "constraints": [models.UniqueConstraint(fields=("engine", "name"), name="host_of_engine_once")],
                },
            ),
            migrations.CreateModel(
                name="EngineAgent",
                fields=[
                    (
                        "name",
                        models.CharField(
                            max_length=40,
                            primary_key=True,
                            serialize=False,
                            validators=[django.core.validators.RegexValidator("^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$")],
                        ),
                    ),
                    ("engine", models.CharField(blank=True, default="", help_text="Its scheduler; empty before it was enrolled.", max_length=10)),
                    ("agent_version", models.CharField(blank=True, default="", max_length=40)),
                    ("created", models.DateTimeField()),
                    ("last_seen", models.DateTimeField(blank=True, help_text="When it last said which hosts there are.", null=True)),
                    ("seq", models.BigIntegerField(default=0, help_text="Of its newest message; older ones are refused.")),
                    ("link_digest", models.BinaryField(help_text="As that of a node, which its hosts share.", max_length=32, null=True)),
                    ("key_version", models.PositiveIntegerField(default=1, help_text="Newest valid signing key.")),
                    ("key_confirmed", models.PositiveIntegerField(default=1, help_text="Oldest valid key: the one before, until the engine uses the newest.")),
                    (
                        "rack",
                        models.ForeignKey(help_text="Of hosts that join.", on_delete=django.db.models.deletion.PROTECT, related_name="+", to="allocation.rack"),
                    ),
                ],
                options={
                    "ordering": ["name"],
                    "constraints": [
                        models.CheckConstraint(condition=models.Q(("name__regex", "^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$")), name="engine_name_sane"),
                        models.CheckConstraint(
                            condition=models.Q(
                                ("key_confirmed", models.F("key_version")),
                                ("key_confirmed", django.db.models.expressions.CombinedExpression(models.F("key_version"), "-", models.Value(1))),
                                _connector="OR",
                            ),
                            name="engine_two_keys_at_most",
                        ),
                        models.CheckConstraint(condition=models.Q(("engine__in", ["", "slurm", "kubernetes", "quota"])), name="engine_is_a_scheduler"),
                    ],
                },
            ),
        )
    ]
