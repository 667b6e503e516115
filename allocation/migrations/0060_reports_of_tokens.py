"""Ends with a token the reports by mail that it made, and lets nothing that ended begin anew."""

import django.db.models.deletion
from django.db import migrations, models

from allocation.migrations.rules import ends_once
from tenants.platform.wall import tenant_key


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0059_workload_column'),
        ('tenants', '0012_saved_views'),
    ]

    operations = [
        migrations.AddField(
            model_name='reportsubscription',
            name='made_with',
            field=models.ForeignKey(blank=True, db_constraint=False, help_text='The token that made it, with which it ends; null: a browser.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenants.apitoken'),
        ),
        migrations.RunSQL(
            tenant_key('allocation_reportsubscription', 'made_with_id', 'tenants_apitoken') + ends_once.SQL,
            migrations.RunSQL.noop,
        ),
    ]
