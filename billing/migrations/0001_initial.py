import django.db.models.deletion
import django.db.models.expressions
import uuid
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ("tenants", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name='Account',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
                ('kind', models.CharField(max_length=8)),
                ('currency', models.CharField(default='EUR', max_length=3)),
                ('limited', models.BooleanField(default=False, help_text="Debits and pending can't exceed the credits.")),
                ('credits', models.DecimalField(decimal_places=6, default=0, max_digits=20)),
                ('debits', models.DecimalField(decimal_places=6, default=0, max_digits=20)),
                ('pending', models.DecimalField(decimal_places=6, default=0, help_text='Sum of the open holds.', max_digits=20)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('tenant', 'id'), name='account_id_in_tenant'), models.CheckConstraint(condition=models.Q(('kind__in', ['source', 'budget', 'spend'])), name='account_kind'), models.CheckConstraint(condition=models.Q(('credits__gte', 0), ('debits__gte', 0), ('pending__gte', 0)), name='account_never_negative'), models.CheckConstraint(condition=models.Q(('limited', False), ('credits__gte', django.db.models.expressions.CombinedExpression(models.F('debits'), '+', models.F('pending'))), _connector='OR'), name='account_never_overspent'), models.UniqueConstraint(condition=models.Q(('kind__in', ['source', 'spend'])), fields=('tenant', 'kind', 'currency'), name='account_one_of_a_kind')],
            },
        ),
        migrations.CreateModel(
            name='Budget',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
                ('project', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, to='tenants.project')),
                ('account', models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, to='billing.account')),
                ('starts', models.DateField()),
                ('ends', models.DateField()),
                ('warn_percent', models.PositiveSmallIntegerField(default=80, help_text='Share of spent and held money that warns.')),
            ],
            options={
                'ordering': ['-starts'],
                'constraints': [models.CheckConstraint(condition=models.Q(('ends__gt', models.F('starts'))), name='budget_period'), models.CheckConstraint(condition=models.Q(('warn_percent__gte', 1), ('warn_percent__lte', 100)), name='budget_warning')],
            },
        ),
        migrations.CreateModel(
            name='PriceBook',
            fields=[
                ('version', models.PositiveIntegerField(primary_key=True, serialize=False)),
                ('valid_from', models.DateTimeField(unique=True)),
                ('currency', models.CharField(default='EUR', max_length=3)),
                ('note', models.CharField(blank=True, max_length=200)),
            ],
            options={
                'ordering': ['-valid_from'],
            },
        ),
        migrations.CreateModel(
            name='Price',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('book', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='prices', to='billing.pricebook')),
                ('gpu_class', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.gpuclass')),
                ('tier', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tier')),
                ('per_gpu_hour', models.DecimalField(decimal_places=4, max_digits=12)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('book', 'gpu_class', 'tier'), name='price_once'), models.CheckConstraint(condition=models.Q(('per_gpu_hour__gte', 0), ('per_gpu_hour__lt', 1000000)), name='price_sane')],
            },
        ),
        migrations.CreateModel(
            name='Transfer',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
                ('kind', models.CharField(max_length=8)),
                ('debit', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='billing.account')),
                ('credit', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='billing.account')),
                ('amount', models.DecimalField(decimal_places=6, max_digits=20)),
                ('hold', models.OneToOneField(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='end', to='billing.transfer')),
                ('reference', models.UUIDField(blank=True, help_text="The booking's id.", null=True)),
                ('at', models.DateTimeField()),
                ('note', models.CharField(blank=True, max_length=200)),
            ],
            options={
                'indexes': [models.Index(fields=['tenant', 'reference'], name='transfer_reference')],
                'constraints': [models.UniqueConstraint(fields=('tenant', 'id'), name='transfer_id_in_tenant'), models.CheckConstraint(condition=models.Q(('kind__in', ['fund', 'hold', 'settle', 'release', 'reverse', 'charge'])), name='transfer_kind'), models.CheckConstraint(condition=models.Q(('amount__gt', 0), ('amount__lt', 1000000000000)), name='transfer_amount_sane'), models.CheckConstraint(condition=models.Q(('debit', models.F('credit')), _negated=True), name='transfer_two_accounts'), models.CheckConstraint(condition=models.Q(models.Q(('hold__isnull', False), ('kind__in', ['settle', 'release'])), models.Q(('hold', None), models.Q(('kind__in', ['settle', 'release']), _negated=True)), _connector='OR'), name='transfer_hold_fits_kind')],
            },
        ),
    ]
