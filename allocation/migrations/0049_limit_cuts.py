"""Cuts of limits: what is kept above them, and the pauses that they ask for."""

import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import no_right, protect, tenant_key, updates_only

_CUT, _KEPT, _PAUSE = "allocation_limitcut", "allocation_keptbooking", "allocation_cutpause"
_SET = "answer, limit_units, cap_gpu_hours, cap_days, cap_carries, changed, changed_by_id, ended, outcome"
# Who sets a limit cuts it; workers pause what is above it, and end what is met.
RIGHTS = (
    protect(_CUT, grants=f"SELECT, INSERT, UPDATE ({_SET})")
    + protect(_KEPT, grants="SELECT, INSERT")
    + protect(_PAUSE, grants="SELECT")
    + tenant_key(_CUT, "project_id", "tenants_project")
    + tenant_key(_CUT, "lab_id", "tenants_lab")
    + tenant_key(_KEPT, "cut_id", _CUT)
    + tenant_key(_KEPT, "booking_id", "allocation_booking")
    + tenant_key(_PAUSE, "cut_id", _CUT)
    + tenant_key(_PAUSE, "pause_id", "allocation_pause")
    + no_right("DELETE", _CUT, _KEPT, _PAUSE)
    + no_right("INSERT", _CUT, _KEPT, roles="portal_system")
    + no_right("INSERT, UPDATE", _PAUSE, roles="portal_ops")
    + updates_only({_CUT: _SET, _KEPT: ""}, roles="portal_ops")
    + updates_only({_CUT: "ended, outcome, changed_by_id", _KEPT: "", _PAUSE: "released"}, roles="portal_system")
)


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0048_slices_ahead'),
        ('billing', '0007_unit_limits'),
        ('tenants', '0009_rights_to_credentials'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='CutPause',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('released', models.DateTimeField(blank=True, help_text='When the booking fitted the limit again.', null=True)),
            ],
        ),
        migrations.CreateModel(
            name='KeptBooking',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
            ],
        ),
        migrations.CreateModel(
            name='LimitCut',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('of_persons', models.BooleanField(default=False, help_text='The limit is that of a person there.')),
                ('limit_units', models.BigIntegerField(blank=True, help_text='Null: only the cap was cut.', null=True)),
                ('cap_gpu_hours', models.PositiveIntegerField(blank=True, null=True)),
                ('cap_days', models.PositiveSmallIntegerField(blank=True, null=True)),
                ('cap_carries', models.BooleanField(default=False)),
                ('answer', models.CharField(choices=[('keep', 'Keep'), ('drain', 'Drain'), ('pause', 'Pause')], max_length=5)),
                ('created', models.DateTimeField()),
                ('changed', models.DateTimeField(help_text='When the limit or the answer was last set.')),
                ('ended', models.DateTimeField(blank=True, null=True)),
                ('outcome', models.CharField(blank=True, choices=[('met', 'Met'), ('raised', 'Raised'), ('cancelled', 'Cancelled')], default='', max_length=9)),
            ],
            options={
                'ordering': ['created', 'id'],
            },
        ),
        migrations.AlterField(
            model_name='booking',
            name='has_override',
            field=models.BooleanField(db_default=False, default=False, help_text='A limit does not count it, or forbids it nothing.'),
        ),
        migrations.AddIndex(
            model_name='booking',
            index=models.Index(condition=models.Q(('has_override', True)), fields=['has_override'], name='booking_overridden'),
        ),
        migrations.AddField(
            model_name='cutpause',
            name='pause',
            field=models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='allocation.pause'),
        ),
        migrations.AddField(
            model_name='cutpause',
            name='tenant',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant'),
        ),
        migrations.AddField(
            model_name='keptbooking',
            name='booking',
            field=models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='allocation.booking'),
        ),
        migrations.AddField(
            model_name='keptbooking',
            name='tenant',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant'),
        ),
        migrations.AddField(
            model_name='limitcut',
            name='changed_by',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='limitcut',
            name='gpu_class',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.gpuclass'),
        ),
        migrations.AddField(
            model_name='limitcut',
            name='lab',
            field=models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.lab'),
        ),
        migrations.AddField(
            model_name='limitcut',
            name='person',
            field=models.ForeignKey(blank=True, help_text='Null: everybody there.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='limitcut',
            name='project',
            field=models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.project'),
        ),
        migrations.AddField(
            model_name='limitcut',
            name='tenant',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant'),
        ),
        migrations.AddField(
            model_name='keptbooking',
            name='cut',
            field=models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name='kept', to='allocation.limitcut'),
        ),
        migrations.AddField(
            model_name='cutpause',
            name='cut',
            field=models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name='pauses', to='allocation.limitcut'),
        ),
        migrations.AddIndex(
            model_name='limitcut',
            index=models.Index(fields=['tenant', '-created'], name='limit_cut_by_tenant'),
        ),
        migrations.AddConstraint(
            model_name='limitcut',
            constraint=models.UniqueConstraint(fields=('tenant', 'id'), name='limit_cut_id_in_tenant'),
        ),
        migrations.AddConstraint(
            model_name='limitcut',
            constraint=models.UniqueConstraint(condition=models.Q(('ended', None)), fields=('tenant', 'gpu_class', 'project', 'lab', 'of_persons', 'person'), name='limit_cut_open_once', nulls_distinct=False),
        ),
        migrations.AddConstraint(
            model_name='limitcut',
            constraint=models.CheckConstraint(condition=models.Q(('project', None), ('lab', None), _connector='OR'), name='limit_cut_of_one_owner'),
        ),
        migrations.AddConstraint(
            model_name='limitcut',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('of_persons', False), ('person', None)), models.Q(('lab', None), ('of_persons', True)), _connector='OR'), name='limit_cut_of_persons'),
        ),
        migrations.AddConstraint(
            model_name='limitcut',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('limit_units__gte', 0), ('limit_units__isnull', False)), models.Q(('cap_gpu_hours__isnull', False), ('limit_units', None)), _connector='OR'), name='limit_cut_has_a_limit'),
        ),
        migrations.AddConstraint(
            model_name='limitcut',
            constraint=models.CheckConstraint(condition=models.Q(('answer__in', ['keep', 'drain', 'pause'])), name='limit_cut_answer_known'),
        ),
        migrations.AddConstraint(
            model_name='limitcut',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('ended', None), ('outcome', '')), models.Q(('ended__gte', models.F('created')), ('ended__isnull', False), ('outcome__in', ['met', 'raised', 'cancelled'])), _connector='OR'), name='limit_cut_ended_with_an_outcome'),
        ),
        migrations.AddConstraint(
            model_name='keptbooking',
            constraint=models.UniqueConstraint(fields=('cut', 'booking'), name='kept_booking_once'),
        ),
        migrations.AddConstraint(
            model_name='cutpause',
            constraint=models.UniqueConstraint(fields=('pause',), name='cut_pause_once'),
        ),
        migrations.RunSQL(RIGHTS, migrations.RunSQL.noop),
    ]
