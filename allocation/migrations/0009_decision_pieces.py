"""The pieces of large plans: each is recorded in the transaction of its changes."""

import django.db.models.deletion
from django.db import migrations, models

from tenants.platform.wall import append_only, system_table

PIECES = (
    system_table("allocation_decisionpiece")
    + append_only("allocation_decisionpiece")
    + "REVOKE UPDATE, DELETE ON allocation_decisionpiece FROM portal_system, portal_ops;"
)


class Migration(migrations.Migration):

    dependencies = [
        ("allocation", "0008_policy_lists"),
    ]

    operations = [
        migrations.AddField(
            model_name='decision',
            name='pieces',
            field=models.PositiveSmallIntegerField(db_default=1, default=1, help_text='Transactions that its changes are written in.'),
        ),
        migrations.CreateModel(
            name='DecisionPiece',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('number', models.PositiveSmallIntegerField(help_text="From 1 to the decision's `pieces`.")),
                ('withheld', models.JSONField(default=list, help_text="As the decision's.")),
                ('decision', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='written', to='allocation.decision')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('decision', 'number'), name='decision_piece_once')],
            },
        ),
        migrations.RunSQL(PIECES),
    ]
