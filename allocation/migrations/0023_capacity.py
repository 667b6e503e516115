"""Pools, plans of capacity, machines of providers, and what a provider cost in a month."""

import django.db.models.deletion
import uuid
from decimal import Decimal
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import no_right, protect, system_table, tenant_key, updates_only

_PLAN, _MACHINE, _SPEND = "allocation_capacityplan", "allocation_capacitymachine", "allocation_capacityspend"
# People make, approve and cancel plans; workers rent machines and pay them; operators give orphans back.
RIGHTS = (
    protect(_PLAN, grants="SELECT, INSERT, UPDATE (state, note, decided_by_id, ended)")
    + protect(_MACHINE, grants="SELECT")
    + system_table(_SPEND)
    + tenant_key(_PLAN, "project_id", "tenants_project")
    + tenant_key(_PLAN, "booking_id", "allocation_booking")
    + tenant_key(_PLAN, "made_with_id", "tenants_apitoken")
    + tenant_key(_MACHINE, "plan_id", _PLAN)
    + no_right("DELETE", _PLAN, _MACHINE, _SPEND)
    + no_right("INSERT", _MACHINE, _SPEND, roles="portal_ops")
    + no_right("UPDATE", _SPEND, roles="portal_ops")
    + updates_only({_PLAN: ""}, roles="portal_ops")
    + updates_only({_PLAN: "state, note, decided_by_id, ended, committed, charged"}, roles="portal_system")
    + updates_only({_MACHINE: "asked"}, roles="portal_ops")
    + updates_only(
        {
            _MACHINE: "provider_id, state, note, asked, due, came, ready, paid_until, released, cost",
            _SPEND: "committed, most",
        },
        roles="portal_system",
    )
    + """
CREATE TRIGGER change_of_pool AFTER UPDATE ON allocation_node
  FOR EACH ROW WHEN (OLD.pool IS DISTINCT FROM NEW.pool)
  EXECUTE FUNCTION allocation_change_hardware('node');
"""
)


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0022_policy_scenarios'),
        ('tenants', '0008_directory_ids'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='booking',
            name='pool',
            field=models.CharField(blank=True, db_default='', default='', help_text='The pool whose nodes it is planned on; empty: nodes of none.', max_length=40),
        ),
        migrations.AddField(
            model_name='node',
            name='pool',
            field=models.CharField(blank=True, db_default='', default='', help_text='Only bookings of the same pool are planned on it; empty: all others.', max_length=40),
        ),
        migrations.CreateModel(
            name='CapacityPlan',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('gpus', models.PositiveSmallIntegerField(help_text='GPUs at once.')),
                ('starts', models.DateTimeField()),
                ('until', models.DateTimeField(help_text='No machine is kept longer for new work.')),
                ('most_cost', models.DecimalField(decimal_places=6, max_digits=20)),
                ('currency', models.CharField(max_length=3)),
                ('source', models.CharField(choices=[('person', 'A person'), ('sprint', 'A sprint'), ('backlog', 'The backlog')], max_length=8)),
                ('reference', models.CharField(blank=True, help_text='Address of the sprint.', max_length=500)),
                ('state', models.CharField(choices=[('proposed', 'Proposed'), ('active', 'Active'), ('ended', 'Ended'), ('cancelled', 'Cancelled'), ('refused', 'Refused')], max_length=9)),
                ('note', models.CharField(blank=True, help_text='Why it is in its state.', max_length=300)),
                ('committed', models.DecimalField(db_default=Decimal('0'), decimal_places=6, default=Decimal('0'), max_digits=20)),
                ('charged', models.DecimalField(db_default=Decimal('0'), decimal_places=6, default=Decimal('0'), help_text='What its machines cost beyond what bookings on them paid.', max_digits=20)),
                ('created', models.DateTimeField()),
                ('ended', models.DateTimeField(blank=True, null=True)),
                ('booking', models.ForeignKey(blank=True, db_constraint=False, help_text='The only booking that it is for; null: all of the project on the class.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='allocation.booking')),
                ('created_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('decided_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('gpu_class', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.gpuclass')),
                ('made_with', models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenants.apitoken')),
                ('project', models.ForeignKey(db_constraint=False, help_text='Who pays and uses it.', on_delete=django.db.models.deletion.PROTECT, to='tenants.project')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'ordering': ['-created', 'id'],
            },
        ),
        migrations.CreateModel(
            name='CapacityMachine',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('provider', models.CharField(max_length=40)),
                ('offer', models.CharField(blank=True, max_length=40)),
                ('name', models.CharField(help_text='Of the machine at its provider.', max_length=60)),
                ('node', models.CharField(blank=True, help_text='Name of its node in the fleet.', max_length=60)),
                ('slot', models.PositiveSmallIntegerField(blank=True, null=True)),
                ('most', models.PositiveSmallIntegerField(blank=True, help_text='Machines that its provider may have at once.', null=True)),
                ('gpus', models.PositiveSmallIntegerField(default=0)),
                ('zone', models.CharField(blank=True, max_length=40)),
                ('interruptible', models.BooleanField(default=False)),
                ('price', models.DecimalField(decimal_places=6, default=Decimal('0'), help_text='Of the machine in an hour.', max_digits=20)),
                ('currency', models.CharField(blank=True, max_length=3)),
                ('least_seconds', models.PositiveIntegerField(default=0, help_text='The first paid period.')),
                ('period_seconds', models.PositiveIntegerField(default=0, help_text='Every later one.')),
                ('provider_id', models.CharField(blank=True, help_text='Empty until it is known.', max_length=120)),
                ('state', models.CharField(choices=[('requested', 'Requested'), ('booting', 'Booting'), ('ready', 'Ready'), ('draining', 'Draining'), ('releasing', 'Releasing'), ('released', 'Released'), ('lost', 'Lost'), ('orphan', 'Orphan')], max_length=9)),
                ('note', models.CharField(blank=True, help_text='What is wrong, or why it left.', max_length=300)),
                ('requested', models.DateTimeField()),
                ('asked', models.DateTimeField(blank=True, help_text='When the provider was last asked for it.', null=True)),
                ('due', models.DateTimeField(blank=True, help_text='It is late after this time.', null=True)),
                ('came', models.DateTimeField(blank=True, help_text='When the provider first listed it.', null=True)),
                ('ready', models.DateTimeField(blank=True, help_text='When bookings could use it.', null=True)),
                ('paid_until', models.DateTimeField(blank=True, help_text='End of its paid period.', null=True)),
                ('released', models.DateTimeField(blank=True, help_text='When the provider listed it no more.', null=True)),
                ('cost', models.DecimalField(db_default=Decimal('0'), decimal_places=6, default=Decimal('0'), help_text='Until the end of its paid period.', max_digits=20)),
                ('gpu_class', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.gpuclass')),
                ('tenant', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
                ('plan', models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='machines', to='allocation.capacityplan')),
            ],
            options={
                'ordering': ['-requested', 'id'],
            },
        ),
        migrations.CreateModel(
            name='CapacitySpend',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('provider', models.CharField(max_length=40)),
                ('month', models.DateField()),
                ('committed', models.DecimalField(db_default=Decimal('0'), decimal_places=6, default=Decimal('0'), max_digits=20)),
                ('most', models.DecimalField(decimal_places=6, max_digits=20)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('provider', 'month'), name='capacity_spend_once'), models.CheckConstraint(condition=models.Q(('committed__gte', 0), ('committed__lte', models.F('most'))), name='capacity_spend_within_most')],
            },
        ),
        migrations.AddConstraint(
            model_name='capacityplan',
            constraint=models.UniqueConstraint(fields=('tenant', 'id'), name='capacity_plan_in_tenant'),
        ),
        migrations.AddConstraint(
            model_name='capacityplan',
            constraint=models.UniqueConstraint(fields=('booking',), name='capacity_plan_of_booking_once'),
        ),
        migrations.AddConstraint(
            model_name='capacityplan',
            constraint=models.UniqueConstraint(condition=models.Q(('state__in', ('proposed', 'active')), models.Q(('reference', ''), _negated=True)), fields=('project', 'reference'), name='capacity_plan_of_sprint_once'),
        ),
        migrations.AddConstraint(
            model_name='capacityplan',
            constraint=models.CheckConstraint(condition=models.Q(('gpus__gte', 1)), name='capacity_plan_has_gpus'),
        ),
        migrations.AddConstraint(
            model_name='capacityplan',
            constraint=models.CheckConstraint(condition=models.Q(('until__gt', models.F('starts'))), name='capacity_plan_ends_later'),
        ),
        migrations.AddConstraint(
            model_name='capacityplan',
            constraint=models.CheckConstraint(condition=models.Q(('committed__gte', 0), ('committed__lte', models.F('most_cost'))), name='capacity_plan_within_money'),
        ),
        migrations.AddConstraint(
            model_name='capacityplan',
            constraint=models.CheckConstraint(condition=models.Q(('charged__gte', 0), ('charged__lte', models.F('committed'))), name='capacity_plan_charges_cost'),
        ),
        migrations.AddConstraint(
            model_name='capacityplan',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('ended', None), ('state__in', ('proposed', 'active'))), models.Q(('ended__isnull', False), ('state__in', ('ended', 'cancelled', 'refused'))), _connector='OR'), name='capacity_plan_ends_once'),
        ),
        migrations.AddConstraint(
            model_name='capacitymachine',
            constraint=models.UniqueConstraint(condition=models.Q(('state', 'orphan'), _negated=True), fields=('provider', 'name'), name='capacity_machine_named_once'),
        ),
        migrations.AddConstraint(
            model_name='capacitymachine',
            constraint=models.UniqueConstraint(condition=models.Q(('provider_id', ''), _negated=True), fields=('provider', 'provider_id'), name='capacity_machine_known_once'),
        ),
        migrations.AddConstraint(
            model_name='capacitymachine',
            constraint=models.UniqueConstraint(condition=models.Q(('state__in', ('requested', 'booting', 'ready', 'draining', 'releasing'))), fields=('provider', 'slot'), name='capacity_machine_in_slot'),
        ),
        migrations.AddConstraint(
            model_name='capacitymachine',
            constraint=models.CheckConstraint(condition=models.Q(('plan', None), models.Q(('slot__gte', 1), ('slot__isnull', False), ('slot__lte', models.F('most'))), _connector='OR'), name='capacity_machine_within_cap'),
        ),
        migrations.AddConstraint(
            model_name='capacitymachine',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('plan', None), ('state', 'orphan'), ('tenant', None)), models.Q(models.Q(('state', 'orphan'), _negated=True), ('plan__isnull', False), ('tenant__isnull', False)), models.Q(('plan', None), ('state', 'released'), ('tenant', None)), _connector='OR'), name='capacity_machine_has_plan'),
        ),
        migrations.AddConstraint(
            model_name='capacitymachine',
            constraint=models.CheckConstraint(condition=models.Q(('cost__gte', 0)), name='capacity_machine_cost_positive'),
        ),
        migrations.RunSQL(RIGHTS, migrations.RunSQL.noop),
    ]
