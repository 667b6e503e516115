"""Notebooks of bookings, the browsers that are let into them, and what nodes offer."""

import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import no_right, open_table, protect, tenant_key, updates_only

_OFFER, _NOTEBOOK, _ENTRY = (
    "allocation_nodenotebooks", "allocation_notebook", "allocation_notebookentry",
)
# People start and end notebooks and are let in; workers order them, and keep what nodes say.
RIGHTS = (
    open_table(_OFFER)
    + protect(_NOTEBOOK, grants="SELECT, INSERT, UPDATE (state, reason, ended_at)")
    + protect(_ENTRY, grants="SELECT, INSERT, DELETE, UPDATE (cookie)")
    + tenant_key(_NOTEBOOK, "booking_id", "allocation_booking")
    + tenant_key(_ENTRY, "notebook_id", _NOTEBOOK, cascade=True)
    + no_right("DELETE", _NOTEBOOK, _OFFER)
    + no_right("INSERT, UPDATE", _NOTEBOOK, _ENTRY, _OFFER, roles="portal_ops")
    + no_right("DELETE", _ENTRY, roles="portal_ops")
    + no_right("INSERT", _NOTEBOOK, _ENTRY, roles="portal_system")
    + updates_only(
        {
            _NOTEBOOK: "state, reason, key, is_ordered, ready_at, ended_at",
            _ENTRY: "",
            _OFFER: "programs, seq",
        },
        roles="portal_system",
    )
)


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0035_headroom'),
        ('tenants', '0008_directory_ids'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='NodeNotebooks',
            fields=[
                ('node', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='+', serialize=False, to='allocation.node')),
                ('programs', models.JSONField(help_text="Names of the site's list on the node.")),
                ('seq', models.PositiveBigIntegerField(help_text='The number of its last message.')),
            ],
        ),
        migrations.CreateModel(
            name='Notebook',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('program', models.CharField(max_length=40)),
                ('label', models.CharField(help_text="Its host's name below NOTEBOOK_URL's.", max_length=24, unique=True)),
                ('state', models.CharField(choices=[('asked', 'Asked'), ('starting', 'Starting'), ('ready', 'Ready'), ('ended', 'Ended'), ('failed', 'Failed')], default='asked', max_length=8)),
                ('reason', models.CharField(blank=True, help_text='Why it ended or failed.', max_length=300)),
                ('key', models.CharField(blank=True, help_text='SHA-256 of the secret of its tunnels; empty: none is known.', max_length=64)),
                ('is_ordered', models.BooleanField(default=False, help_text="It stands in its node's document.")),
                ('run', models.DateTimeField(help_text='When the run of the booking began, with which it ends.')),
                ('asked_at', models.DateTimeField()),
                ('ready_at', models.DateTimeField(blank=True, null=True)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('booking', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name='notebooks', to='allocation.booking')),
                ('node', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='allocation.node')),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'ordering': ['-asked_at', 'id'],
            },
        ),
        migrations.CreateModel(
            name='NotebookEntry',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('session', models.BinaryField(help_text="Digest of the portal's session.", max_length=32)),
                ('ticket', models.BinaryField(max_length=32, unique=True)),
                ('ticket_until', models.DateTimeField()),
                ('cookie', models.BinaryField(blank=True, max_length=32, null=True, unique=True)),
                ('notebook', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name='entries', to='allocation.notebook')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
        ),
        migrations.AddIndex(
            model_name='notebook',
            index=models.Index(condition=models.Q(('is_ordered', True)), fields=['node'], name='notebook_ordered'),
        ),
        migrations.AddIndex(
            model_name='notebook',
            index=models.Index(fields=['booking', '-asked_at'], name='notebook_of_booking'),
        ),
        migrations.AddConstraint(
            model_name='notebook',
            constraint=models.UniqueConstraint(fields=('tenant', 'id'), name='notebook_id_in_tenant'),
        ),
        migrations.AddConstraint(
            model_name='notebook',
            constraint=models.UniqueConstraint(condition=models.Q(('ended_at', None)), fields=('booking',), name='notebook_open_once'),
        ),
        migrations.AddConstraint(
            model_name='notebook',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('ended_at', None), ('state__in', ['asked', 'starting', 'ready'])), models.Q(('ended_at__isnull', False), ('state__in', ['ended', 'failed'])), _connector='OR'), name='notebook_ended'),
        ),
        migrations.AddConstraint(
            model_name='notebookentry',
            constraint=models.UniqueConstraint(fields=('tenant', 'id'), name='notebook_entry_in_tenant'),
        ),
        migrations.RunSQL(RIGHTS, migrations.RunSQL.noop),
    ]
