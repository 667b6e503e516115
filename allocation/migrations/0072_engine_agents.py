"""Engines: one agent for many hosts, and what it reports of them."""

import django.core.validators
import django.db.models.deletion
import django.db.models.expressions
from django.db import migrations, models

from tenants.platform.wall import callable_by, no_right, open_table, system_table, updates_only

ENGINE, HOST = "allocation_engineagent", "allocation_enginehost"
RIGHTS = (
    open_table(ENGINE)
    + no_right("DELETE", ENGINE)
    # Commands make tokens; workers lock an engine out that exceeds its share.
    + updates_only({ENGINE: "link_digest, key_version, key_confirmed, rack_id"}, roles="portal_system")
    + system_table(HOST)
    + no_right("INSERT, UPDATE, DELETE", HOST, roles="portal_system")
    + updates_only({HOST: "inventory, kind, gone"}, roles="portal_ops")
    # An engine writes inventories, so their size is bounded here, too.
    + """
ALTER TABLE allocation_enginehost ADD CONSTRAINT host_of_engine_is_bounded
  CHECK (octet_length(inventory::text) <= 524288);
"""
    # A host that has an engine has its account and no other.
    + """
CREATE FUNCTION allocation_hosts_share_account() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (
    SELECT FROM allocation_node n JOIN allocation_engineagent e ON e.name = n.engine_agent_id
    WHERE n.link_digest IS DISTINCT FROM e.link_digest
      AND (TG_TABLE_NAME = 'allocation_node' AND n.name = NEW.name
           OR TG_TABLE_NAME <> 'allocation_node' AND e.name = NEW.name))
  THEN
    RAISE EXCEPTION 'a host has another account than its engine' USING ERRCODE = 'check_violation';
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER node_has_account_of_engine AFTER UPDATE ON allocation_node
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  WHEN ((OLD.engine_agent_id, OLD.link_digest) IS DISTINCT FROM (NEW.engine_agent_id, NEW.link_digest))
  EXECUTE FUNCTION allocation_hosts_share_account();
CREATE CONSTRAINT TRIGGER engine_has_account_of_hosts AFTER UPDATE ON allocation_engineagent
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  WHEN (OLD.link_digest IS DISTINCT FROM NEW.link_digest)
  EXECUTE FUNCTION allocation_hosts_share_account();
"""
    + callable_by("allocation_hosts_share_account()", roles="")
)


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0069_scripts'),
        ('tenants', '0016_class_kinds'),
    ]

    operations = [
        migrations.CreateModel(
            name='EngineHost',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('name', models.CharField(help_text='As the scheduler names it.', max_length=64)),
                ('inventory', models.JSONField(blank=True, help_text='Null before it was reported.', null=True)),
                ('kind', models.CharField(blank=True, default='', help_text='Its GPUs, as `4 × NVIDIA L40S`.', max_length=200)),
                ('since', models.DateTimeField(help_text='When it was reported first.')),
                ('gone', models.DateTimeField(blank=True, help_text='When it was reported no more.', null=True)),
            ],
            options={
                'ordering': ['engine', 'name'],
            },
        ),
        migrations.AlterField(
            model_name='enrolmenttoken',
            name='node',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, to='allocation.node'),
        ),
        migrations.CreateModel(
            name='EngineAgent',
            fields=[
                ('name', models.CharField(max_length=40, primary_key=True, serialize=False, validators=[django.core.validators.RegexValidator('^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$')])),
                ('engine', models.CharField(blank=True, default='', help_text='Its scheduler; empty before it was enrolled.', max_length=10)),
                ('agent_version', models.CharField(blank=True, default='', max_length=40)),
                ('created', models.DateTimeField()),
                ('last_seen', models.DateTimeField(blank=True, help_text='When it last said which hosts there are.', null=True)),
                ('seq', models.BigIntegerField(default=0, help_text='Of its newest message; older ones are refused.')),
                ('link_digest', models.BinaryField(help_text='As that of a node, which its hosts share.', max_length=32, null=True)),
                ('key_version', models.PositiveIntegerField(default=1, help_text='Newest valid signing key.')),
                ('key_confirmed', models.PositiveIntegerField(default=1, help_text='Oldest valid key: the one before, until the engine uses the newest.')),
                ('rack', models.ForeignKey(help_text='Of hosts that join.', on_delete=django.db.models.deletion.PROTECT, related_name='+', to='allocation.rack')),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.AddField(
            model_name='enrolmenttoken',
            name='engine_agent',
            field=models.ForeignKey(blank=True, help_text='What it enrols in place of a node.', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='allocation.engineagent'),
        ),
        migrations.AddField(
            model_name='node',
            name='engine_agent',
            field=models.ForeignKey(blank=True, help_text='Whose identity serves it, with the digest of its account; null: an agent of its own.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='nodes', to='allocation.engineagent'),
        ),
        migrations.AddConstraint(
            model_name='enrolmenttoken',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('engine_agent__isnull', True), ('node__isnull', False)), models.Q(('engine_agent__isnull', False), ('node__isnull', True)), _connector='OR'), name='token_enrols_one'),
        ),
        migrations.AddField(
            model_name='enginehost',
            name='engine',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='reported', to='allocation.engineagent'),
        ),
        migrations.AddConstraint(
            model_name='engineagent',
            constraint=models.CheckConstraint(condition=models.Q(('name__regex', '^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$')), name='engine_name_sane'),
        ),
        migrations.AddConstraint(
            model_name='engineagent',
            constraint=models.CheckConstraint(condition=models.Q(('key_confirmed', models.F('key_version')), ('key_confirmed', django.db.models.expressions.CombinedExpression(models.F('key_version'), '-', models.Value(1))), _connector='OR'), name='engine_two_keys_at_most'),
        ),
        migrations.AddConstraint(
            model_name='engineagent',
            constraint=models.CheckConstraint(condition=models.Q(('engine__in', ['', 'slurm', 'kubernetes', 'quota'])), name='engine_is_a_scheduler'),
        ),
        migrations.AddConstraint(
            model_name='enginehost',
            constraint=models.UniqueConstraint(fields=('engine', 'name'), name='host_of_engine_once'),
        ),
        migrations.RunSQL(RIGHTS, migrations.RunSQL.noop),
    ]
