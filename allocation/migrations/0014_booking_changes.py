"""Changes of bookings, and the revision, place in line and price lines of a booking."""

import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import protect, tenant_key

RULES = protect("allocation_bookingchange", grants="SELECT, INSERT, UPDATE") + tenant_key(
    "allocation_bookingchange", "booking_id", "allocation_booking"
)
# The solver reads the change of a booking together with it.
FEED = "".join(
    f"""
CREATE TRIGGER change_by_{event} AFTER {event} ON allocation_bookingchange
  REFERENCING NEW TABLE AS changed
  FOR EACH STATEMENT EXECUTE FUNCTION allocation_change_parts();
"""
    for event in ("insert", "update")
)


class Migration(migrations.Migration):

    dependencies = [
        ("allocation", "0013_approvals"),
        ("tenants", "0007_second_factors"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='booking',
            name='price_lines',
            field=models.JSONField(default=list, help_text='[{seconds, per_hour}] in order, if parts of its time have different prices.'),
        ),
        migrations.AddField(
            model_name='booking',
            name='ranked_at',
            field=models.DateTimeField(blank=True, help_text='Its place in line, if a change has given it another.', null=True),
        ),
        migrations.AddField(
            model_name='booking',
            name='revision',
            field=models.PositiveIntegerField(db_default=1, default=1, help_text='Of the request: rises with each change of it.'),
        ),
        migrations.CreateModel(
            name='BookingChange',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('group', models.UUIDField(blank=True, help_text='Changes that are made all or none.', null=True)),
                ('strength', models.CharField(help_text='Word, weaker or stronger.', max_length=8)),
                ('state', models.CharField(choices=[('asked', 'Asked'), ('awaiting_approval', 'Awaiting approval'), ('changed', 'Changed'), ('kept', 'Kept'), ('replaced', 'Replaced'), ('withdrawn', 'Withdrawn')], max_length=20)),
                ('base_revision', models.PositiveIntegerField(help_text='Of the booking when it was asked.')),
                ('target', models.JSONField(help_text='The fields of the booking that it asks for.')),
                ('before', models.JSONField(help_text='The same fields as they were.')),
                ('differences', models.JSONField(default=dict, help_text='Before and after, by field.')),
                ('until', models.DateTimeField(blank=True, help_text='The later end that is asked for, of a running booking.', null=True)),
                ('calendar_due', models.BooleanField(default=False, help_text='The calendar has still to give up what the change gave up.')),
                ('start_by', models.DateTimeField(blank=True, help_text='Latest start.', null=True)),
                ('least_strength', models.CharField(blank=True, choices=[('firm', 'Firm'), ('guaranteed', 'Guaranteed'), ('expected', 'Expected')], help_text='The least that the start may be worth; empty: not less than before.', max_length=10)),
                ('delta_held', models.DecimalField(decimal_places=6, default=0, help_text='Held for the added cost until it is decided.', max_digits=20)),
                ('asked_at', models.DateTimeField(help_text='Its place in the queue, too.')),
                ('decided_at', models.DateTimeField(blank=True, null=True)),
                ('reasons', models.JSONField(default=list, help_text='Why the booking keeps what it has.')),
                ('alternatives', models.JSONField(default=list, help_text='Windows that would work.')),
                ('asked_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('booking', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name='changes', to='allocation.booking')),
                ('decision', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='allocation.decision')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'ordering': ['-asked_at', 'id'],
                'indexes': [models.Index(fields=['tenant', 'booking', '-asked_at'], name='change_of_booking'), models.Index(condition=models.Q(('state__in', ['asked', 'awaiting_approval']), ('calendar_due', True), _connector='OR'), fields=['state'], name='change_to_do')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('state__in', ['asked', 'awaiting_approval'])), fields=('booking',), name='change_open_once'), models.CheckConstraint(condition=models.Q(models.Q(('decided_at', None), ('state__in', ['asked', 'awaiting_approval'])), models.Q(('decided_at__isnull', False), ('state__in', ['changed', 'kept', 'replaced', 'withdrawn'])), _connector='OR'), name='change_decided_or_open'), models.CheckConstraint(condition=models.Q(('strength__in', ['word', 'weaker', 'stronger']), ('delta_held__gte', 0)), name='change_sane')],
            },
        ),
        migrations.RunSQL(RULES + FEED),
    ]
