"""Nodes that do not answer, drivers that hang, and what is done about processes of nobody."""

import django.db.models.expressions
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0013_beside'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='gpuevent',
            name='gpu_error_once',
        ),
        migrations.RemoveConstraint(
            model_name='gpuevent',
            name='gpu_trouble_once',
        ),
        migrations.AddField(
            model_name='node',
            name='unbooked_end_after',
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='node',
            name='unbooked_warn_after',
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='node',
            name='long_unreachable',
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name='node',
            name='unreachable_since',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AlterField(
            model_name='gpuevent',
            name='kind',
            field=models.CharField(choices=[('xid', 'Error'), ('ecc', 'Memory error'), ('lost', 'Not found'), ('drift', 'Made by hand'), ('foreign', 'Unbooked use'), ('intruder', 'Use by others'), ('hang', 'Driver hangs'), ('silent', 'Not heard'), ('slow', 'Slow start'), ('warned', 'Users warned'), ('asked', 'Asked to end'), ('killed', 'Ended'), ('operator', 'Operator')], max_length=10),
        ),
        migrations.AddConstraint(
            model_name='gpuevent',
            constraint=models.UniqueConstraint(condition=models.Q(('kind__in', ['xid', 'ecc', 'warned', 'asked', 'killed'])), fields=('gpu', 'kind', 'code', 'instance', 'at'), name='gpu_error_once'),
        ),
        migrations.AddConstraint(
            model_name='gpuevent',
            constraint=models.UniqueConstraint(condition=models.Q(('kind__in', ['drift', 'foreign', 'intruder', 'hang']), ('until', None)), fields=('gpu', 'kind', 'slot'), name='gpu_trouble_once', nulls_distinct=False),
        ),
        migrations.AddConstraint(
            model_name='gpuevent',
            constraint=models.UniqueConstraint(condition=models.Q(('kind__in', ['silent', 'slow']), ('until', None)), fields=('node', 'kind'), name='node_trouble_once'),
        ),
        migrations.AddConstraint(
            model_name='node',
            constraint=models.CheckConstraint(condition=models.Q(('long_unreachable', False), ('unreachable_since__isnull', False), _connector='OR'), name='node_long_unreachable_is_unreachable'),
        ),
        migrations.AddConstraint(
            model_name='node',
            constraint=models.CheckConstraint(condition=models.Q(('unbooked_end_after', None), models.Q(('unbooked_end_after__gte', django.db.models.expressions.CombinedExpression(models.F('unbooked_warn_after'), '+', models.Value(60))), ('unbooked_warn_after__isnull', False)), _connector='OR'), name='node_warns_before_it_ends'),
        ),
    ]
