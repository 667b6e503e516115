"""Decisions for people: what they changed, and replays of them."""

import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models

# A web process has no right to decisions and replays. By the functions below it reads them, without
# any tenant or person, and asks for a replay.
WALL = """
GRANT SELECT, INSERT, UPDATE, DELETE ON allocation_decisionreplay TO portal_system, portal_ops;
CREATE FUNCTION portal_decision(number bigint)
RETURNS TABLE (id bigint, at timestamptz, policy integer, software varchar, solve_ms integer,
               snapshot_sha256 varchar, plan_sha256 varchar, archived_in varchar)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT d.id, d.at, d.policy_id, d.software, d.solve_ms, d.snapshot_sha256, d.plan_sha256,
         d.archived_in
  FROM allocation_decision d WHERE d.id = number
$$;
CREATE FUNCTION portal_replays(number bigint)
RETURNS TABLE (id uuid, decision bigint, asked_at timestamptz, started_at timestamptz,
               finished_at timestamptz, outcome varchar, note varchar, comparison varchar,
               snapshot_sha256 varchar, plan_sha256 varchar, software varchar, took_ms integer,
               is_nightly boolean)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT r.id, r.decision_id, r.asked_at, r.started_at, r.finished_at, r.outcome, r.note,
         r.comparison, r.snapshot_sha256, r.plan_sha256, r.software, r.took_ms,
         r.asked_by_id IS NULL
  FROM allocation_decisionreplay r WHERE r.decision_id = number
  ORDER BY r.asked_at DESC, r.id LIMIT 1
$$;
CREATE FUNCTION portal_replays_open() RETURNS bigint
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT count(*) FROM allocation_decisionreplay WHERE finished_at IS NULL
$$;
CREATE FUNCTION portal_replay_ask(number bigint, person bigint, asked timestamptz) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  INSERT INTO allocation_decisionreplay (id, decision_id, asked_at, asked_by_id, attempts, outcome,
    note, comparison, snapshot_sha256, plan_sha256, software, took_ms)
  VALUES (gen_random_uuid(), number, asked, person, 0, '', '', '', '', '', '', 0)
  ON CONFLICT (decision_id) WHERE finished_at IS NULL DO NOTHING
$$;
REVOKE EXECUTE ON FUNCTION portal_decision(bigint), portal_replays(bigint), portal_replays_open(),
  portal_replay_ask(bigint, bigint, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION portal_decision(bigint), portal_replays(bigint), portal_replays_open(),
  portal_replay_ask(bigint, bigint, timestamptz) TO portal_web, portal_system, portal_ops;
CREATE INDEX event_of_decision ON allocation_bookingevent
  (tenant_id, ((detail ->> 'decision')::bigint))
  WHERE ((detail ->> 'decision')::bigint) IS NOT NULL;
"""


class Migration(migrations.Migration):

    dependencies = [
        ("allocation", "0045_report_subscriptions"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='DecisionReplay',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('asked_at', models.DateTimeField()),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('attempts', models.PositiveSmallIntegerField(default=0)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('outcome', models.CharField(blank=True, choices=[('same', 'Same result'), ('different', 'Another result'), ('damaged', 'The stored bytes are damaged'), ('archived', 'Its documents are in the archive'), ('failed', 'It did not end')], max_length=10)),
                ('note', models.CharField(blank=True, help_text='What is wrong, if anything.', max_length=200)),
                ('comparison', models.CharField(blank=True, help_text='`bytes`, or `meaning` for a plan of format 1.', max_length=8)),
                ('snapshot_sha256', models.CharField(blank=True, max_length=64)),
                ('plan_sha256', models.CharField(blank=True, max_length=64)),
                ('software', models.CharField(blank=True, help_text='That replayed it.', max_length=160)),
                ('took_ms', models.PositiveIntegerField(default=0)),
                ('asked_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('decision', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='replays', to='allocation.decision')),
            ],
            options={
                'ordering': ['-asked_at', 'id'],
                'indexes': [models.Index(condition=models.Q(('finished_at', None)), fields=['asked_at'], name='replay_open'), models.Index(fields=['decision', '-asked_at'], name='replay_of_decision'), models.Index(condition=models.Q(('asked_by', None)), fields=['-asked_at'], name='replay_nightly')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('finished_at', None)), fields=('decision',), name='replay_one_open'), models.CheckConstraint(condition=models.Q(models.Q(('finished_at', None), ('outcome', '')), models.Q(('finished_at__isnull', False), models.Q(('outcome', ''), _negated=True)), _connector='OR'), name='replay_ends_with_an_outcome')],
            },
        ),
        migrations.RunSQL(WALL),
    ]
