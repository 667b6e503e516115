"""Arrays, the index of an element, and the result that a program reports."""

import django.db.models.deletion
import django.db.models.expressions
import uuid
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import protect, tenant_key

WALL = "".join(
    [
        protect("allocation_bookingarray", grants="SELECT, INSERT, UPDATE"),
        tenant_key("allocation_bookingarray", "project_id", "tenants_project"),
        tenant_key("allocation_booking", "array_id", "allocation_bookingarray"),
    ]
)


class Migration(migrations.Migration):

    dependencies = [
        ("allocation", "0019_waiting_list"),
        ("billing", "0007_peak_prices"),
        ("tenants", "0012_disabled_people"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='BookingArray',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('number', models.BigIntegerField(help_text='That of its elements: 2041 is shown as BK-2041.')),
                ('labels', models.JSONField(blank=True, db_default=models.Value({}, output_field=models.JSONField()), default=dict, help_text='Those of its elements.')),
                ('external_ref', models.CharField(blank=True, db_default='', default='', help_text='URL or key of a ticket.', max_length=500)),
                ('zone', models.CharField(default='UTC', help_text='Time zone of the request.', max_length=64)),
                ('terms', models.JSONField(help_text='What each element asks for and costs.')),
                ('submitted', models.DateTimeField()),
                ('count', models.PositiveIntegerField(help_text='Elements; the first has index 1.')),
                ('parallel', models.PositiveIntegerField(help_text='Elements that are open at a time, at most.')),
                ('holds_all', models.BooleanField(default=True, help_text='The money of all elements is held; otherwise of the open ones.')),
                ('stop_after_failures', models.PositiveIntegerField(blank=True, null=True)),
                ('state', models.CharField(choices=[('awaiting_approval', 'Awaiting approval'), ('open', 'Open'), ('ended', 'Ended')], default='open', max_length=20)),
                ('outcome', models.CharField(blank=True, choices=[('completed', 'Completed'), ('cancelled', 'Cancelled'), ('failures', 'Stopped after failures'), ('refused', 'Stopped after a refusal'), ('rejected', 'Not approved'), ('deadline', 'Deadline passed'), ('owner_left', 'Its owner has left the project')], help_text='Why no further element is booked; empty: more follow.', max_length=20)),
                ('next_index', models.PositiveIntegerField(default=1, help_text='The next element to book.')),
                ('cancelled', models.JSONField(default=list, help_text='[first, last] of elements that were cancelled before their turn.')),
                ('reasons', models.JSONField(default=list, help_text='Why the next element is not booked yet.')),
                ('begun', models.PositiveIntegerField(default=0, help_text='Elements that have left the queue.')),
                ('approved_hash', models.CharField(blank=True, default='', max_length=64)),
                ('started_at', models.DateTimeField(blank=True, help_text='Its first start.', null=True)),
                ('ended_at', models.DateTimeField(blank=True, help_text='Its last end.', null=True)),
                ('failures_announced', models.PositiveIntegerField(default=0, help_text='Failures that its owner knows of.')),
                ('failures_announced_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'ordering': ['-submitted', 'id'],
            },
        ),
        migrations.RemoveConstraint(
            model_name='booking',
            name='booking_number_in_tenant',
        ),
        migrations.AddField(
            model_name='booking',
            name='array_index',
            field=models.PositiveIntegerField(blank=True, help_text='Its index in the array, from 1.', null=True),
        ),
        migrations.AddField(
            model_name='booking',
            name='result',
            field=models.CharField(blank=True, choices=[('success', 'Success'), ('failure', 'Failure')], db_default='', default='', help_text='What its program has reported.', max_length=8),
        ),
        migrations.AddField(
            model_name='bookingarray',
            name='campaign',
            field=models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to='billing.campaign'),
        ),
        migrations.AddField(
            model_name='bookingarray',
            name='owner',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='bookingarray',
            name='project',
            field=models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, to='tenants.project'),
        ),
        migrations.AddField(
            model_name='bookingarray',
            name='tenant',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant'),
        ),
        migrations.AddField(
            model_name='booking',
            name='array',
            field=models.ForeignKey(blank=True, db_constraint=False, help_text='The array that this booking is one element of.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='elements', to='allocation.bookingarray'),
        ),
        migrations.AddConstraint(
            model_name='booking',
            constraint=models.UniqueConstraint(fields=('tenant', 'number', 'array_index'), name='booking_number_in_tenant_once', nulls_distinct=False),
        ),
        migrations.AddConstraint(
            model_name='booking',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('array', None), ('array_index', None)), models.Q(('array__isnull', False), ('array_index__gte', 1), ('array_index__isnull', False)), _connector='OR'), name='booking_index_of_an_array'),
        ),
        migrations.AddIndex(
            model_name='bookingarray',
            index=models.Index(condition=models.Q(('state', 'ended'), _negated=True), fields=['state'], name='array_open'),
        ),
        migrations.AddConstraint(
            model_name='bookingarray',
            constraint=models.UniqueConstraint(fields=('tenant', 'id'), name='array_id_in_tenant'),
        ),
        migrations.AddConstraint(
            model_name='bookingarray',
            constraint=models.UniqueConstraint(fields=('tenant', 'number'), name='array_number_in_tenant'),
        ),
        migrations.AddConstraint(
            model_name='bookingarray',
            constraint=models.CheckConstraint(condition=models.Q(('count__gte', 1), ('count__lte', 10000), ('next_index__gte', 1), ('next_index__lte', django.db.models.expressions.CombinedExpression(models.F('count'), '+', models.Value(1))), ('parallel__gte', 1), ('parallel__lte', models.F('count'))), name='array_indexes_sane'),
        ),
        migrations.AddConstraint(
            model_name='bookingarray',
            constraint=models.CheckConstraint(condition=models.Q(('stop_after_failures', None), ('stop_after_failures__gte', 1), _connector='OR'), name='array_failures_sane'),
        ),
        migrations.AddConstraint(
            model_name='bookingarray',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', 'ended'), _negated=True), models.Q(('ended_at__isnull', False), models.Q(('outcome', ''), _negated=True)), _connector='OR'), name='array_ended_has_outcome'),
        ),
        migrations.RunSQL(WALL),
    ]
