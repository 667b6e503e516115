"""Ends with a token what it set up."""

import django.db.models.deletion
from django.db import migrations, models

from tenants.migrations.rules import token_ancestors


class Migration(migrations.Migration):

    dependencies = [
        ('tenants', '0002_rules'),
    ]

    operations = [
        migrations.AddField(
            model_name='apitoken',
            name='replaces',
            field=models.ForeignKey(blank=True, db_constraint=False, help_text='The token that rotated itself into this one: its revocation ends this one, too.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenants.apitoken'),
        ),
        migrations.AddField(
            model_name='chatchannel',
            name='made_with',
            field=models.ForeignKey(blank=True, db_constraint=False, help_text='The token that set it, with which it ends; null: a browser.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenants.apitoken'),
        ),
        migrations.AddField(
            model_name='invitation',
            name='made_with',
            field=models.ForeignKey(blank=True, db_constraint=False, help_text='The token that made it, with which it ends; null: a browser.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenants.apitoken'),
        ),
        migrations.AddField(
            model_name='policyhook',
            name='made_with',
            field=models.ForeignKey(blank=True, db_constraint=False, help_text='The token that set its address, and with which it ends.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenants.apitoken'),
        ),
        migrations.AddField(
            model_name='webhook',
            name='made_with',
            field=models.ForeignKey(blank=True, db_constraint=False, help_text='The token that set its address, and with which it ends.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenants.apitoken'),
        ),
        migrations.RunSQL(token_ancestors.SQL),
    ]
