"""Undo of changes: which change is taken back, and what is given back besides the terms."""

import django.db.models.deletion
from django.db import migrations, models

from tenants.platform.wall import tenant_key


class Migration(migrations.Migration):

    dependencies = [
        ("allocation", "0026_array_campaigns"),
    ]

    operations = [
        migrations.AddField(
            model_name='bookingchange',
            name='restores',
            field=models.JSONField(db_default=models.Value({}, output_field=models.JSONField()), default=dict, help_text='What an undo gives back besides `before`, as it was when the change was made.'),
        ),
        migrations.AddField(
            model_name='bookingchange',
            name='undoes',
            field=models.ForeignKey(blank=True, db_constraint=False, help_text='The change that it takes back.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='allocation.bookingchange'),
        ),
        migrations.AddConstraint(
            model_name='bookingchange',
            constraint=models.UniqueConstraint(condition=models.Q(('state__in', ['asked', 'changed'])), fields=('undoes',), name='change_undone_once'),
        ),
        migrations.RunSQL(
            tenant_key("allocation_bookingchange", "undoes_id", "allocation_bookingchange"),
            migrations.RunSQL.noop,
        ),
    ]
