"""Scripts that come with bookings."""

import django.db.models.deletion
import django.db.models.functions.text
import django.db.models.lookups
from django.db import migrations, models

from tenants.platform.wall import no_right, protect, tenant_key, updates_only

_SCRIPT = "allocation_bookingscript"
# People send one with a booking; workers keep how it ended, and operators see only that.
RIGHTS = (
    protect(_SCRIPT, grants="SELECT, INSERT")
    + tenant_key(_SCRIPT, "booking_id", "allocation_booking")
    + no_right("DELETE", _SCRIPT)
    + no_right("SELECT, INSERT, UPDATE", _SCRIPT, roles="portal_ops")
    + f"GRANT SELECT (booking_id, tenant_id, exit_code, ended, ended_at, log_file) ON {_SCRIPT} TO portal_ops;\n"
    + no_right("INSERT", _SCRIPT, roles="portal_system")
    + updates_only({_SCRIPT: "log_file, log, exit_code, ended, ended_at"}, roles="portal_system")
)


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0068_kubernetes_without_kueue'),
        ('tenants', '0016_class_kinds'),
    ]

    operations = [
        migrations.CreateModel(
            name='BookingScript',
            fields=[
                ('booking', models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='script', serialize=False, to='allocation.booking')),
                ('text', models.TextField(max_length=16384)),
                ('log_file', models.CharField(blank=True, help_text='The file of its newest output.', max_length=300)),
                ('log', models.TextField(blank=True, help_text='The end of its output.', max_length=4000)),
                ('exit_code', models.PositiveSmallIntegerField(blank=True, null=True)),
                ('ended', models.CharField(blank=True, help_text="The engine's word for how it ended, or why it never ran.", max_length=300)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('tenant', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('tenant', 'booking'), name='script_in_tenant'), models.CheckConstraint(condition=models.Q(('exit_code', None), ('ended_at__isnull', False), _connector='OR'), name='script_ended'), models.CheckConstraint(condition=models.Q(django.db.models.lookups.LessThanOrEqual(django.db.models.functions.text.Length('text'), 16384), django.db.models.lookups.LessThanOrEqual(django.db.models.functions.text.Length('log'), 4000)), name='script_bounded')],
            },
        ),
        migrations.RunSQL(RIGHTS, migrations.RunSQL.noop),
    ]
