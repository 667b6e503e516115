"""Approvals are decided in Jira in the name of a mapped person."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("allocation", "0041_override_of_gpus"),
        ("tenants", "0020_labs"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='jiraproject',
            name='approve_status',
            field=models.CharField(blank=True, db_default='', default='', help_text='Approves the booking.', max_length=60),
        ),
        migrations.AddField(
            model_name='jiraproject',
            name='approver',
            field=models.ForeignKey(blank=True, help_text='In whose name the statuses below decide; null: none does.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='jiraproject',
            name='decline_status',
            field=models.CharField(blank=True, db_default='', default='', help_text='Declines the booking.', max_length=60),
        ),
        migrations.AddConstraint(
            model_name='jiraproject',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('approve_status', ''), ('approver', None), ('decline_status', '')), models.Q(('approver__isnull', False), models.Q(('approver', models.F('owner')), _negated=True)), _connector='OR'), name='jira_approver_is_another'),
        ),
    ]
