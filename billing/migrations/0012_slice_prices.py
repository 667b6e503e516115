"""Prices of slice profiles of their own."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("billing", "0011_price_drafts"),
        ("tenants", "0019_policy_hooks"),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='price',
            name='price_once',
        ),
        migrations.AddField(
            model_name='price',
            name='profile',
            field=models.CharField(blank=True, db_default='', default='', help_text='Of the slices that this is the price of one of; empty: a whole GPU.', max_length=40),
        ),
        migrations.AddConstraint(
            model_name='price',
            constraint=models.UniqueConstraint(fields=('book', 'gpu_class', 'tier', 'profile'), name='price_once'),
        ),
    ]
