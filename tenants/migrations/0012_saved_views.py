"""Saved views of lists: those of an organisation behind its wall, those of operators for them only."""

import django.db.models.deletion
import django.db.models.functions.text
import uuid
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import no_right, protect, updates_only

VIEWS = "tenants_savedview"
CHANGES = {VIEWS: "name, query, is_shared"}
# Workers have nothing to do with them.
RIGHTS = (
    protect(VIEWS, grants="SELECT, INSERT, DELETE")
    + f"GRANT UPDATE ({CHANGES[VIEWS]}) ON {VIEWS} TO portal_web;\n"
    + updates_only(CHANGES, "portal_ops")
    + no_right("INSERT, UPDATE, DELETE", VIEWS, roles="portal_system")
)


class Migration(migrations.Migration):

    dependencies = [
        ('tenants', '0011_dated_guarantees'),
    ]

    operations = [
        migrations.CreateModel(
            name='SavedView',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('list', models.CharField(help_text='The name of the list.', max_length=20)),
                ('name', models.CharField(max_length=60)),
                ('query', models.CharField(help_text='Its filters, as in an address.', max_length=1000)),
                ('is_shared', models.BooleanField(default=False, help_text='Whether everybody in the organisation, or each operator, has it.')),
                ('created', models.DateTimeField()),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('tenant', models.ForeignKey(blank=True, help_text='Null: of an operator.', null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'ordering': ['list', django.db.models.functions.text.Lower('name'), 'id'],
                'constraints': [models.UniqueConstraint(models.F('tenant'), models.F('owner'), models.F('list'), django.db.models.functions.text.Lower('name'), name='saved_view_once', nulls_distinct=False), models.CheckConstraint(condition=models.Q(('list__in', ['bookings', 'fleet', 'log'])), name='saved_view_of_a_list'), models.CheckConstraint(condition=models.Q(('name', ''), _negated=True), name='saved_view_named'), models.CheckConstraint(condition=models.Q(('query__regex', '^[a-z_]+=[A-Za-z0-9%+_.~-]+(&[a-z_]+=[A-Za-z0-9%+_.~-]+)*$')), name='saved_view_is_a_query')],
            },
        ),
        migrations.RunSQL(RIGHTS, migrations.RunSQL.noop),
    ]
