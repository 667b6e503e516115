"""Appeals against pauses."""

import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import no_right, protect, tenant_key, updates_only

_TABLE = "allocation_pauseappeal"
_ANSWER = "state, answer, answered, answered_by_id"
# People contest, and admins and operators answer; workers only read.
RIGHTS = (
    protect(_TABLE, grants=f"SELECT, INSERT, UPDATE ({_ANSWER})")
    + tenant_key(_TABLE, "booking_id", "allocation_booking")
    + tenant_key(_TABLE, "pause_id", "allocation_pause")
    + no_right("INSERT, DELETE", _TABLE)
    + no_right("UPDATE", _TABLE, roles="portal_system")
    + updates_only({_TABLE: _ANSWER}, roles="portal_ops")
)

# An appeal is answered once, by whom it is for.
ANSWERS = """
CREATE FUNCTION allocation_check_appeal() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    IF NEW.state <> 'open' THEN
      RAISE EXCEPTION 'an appeal begins as open'
        USING ERRCODE = '23514', CONSTRAINT = 'pause_appeal_begins_open';
    END IF;
  ELSIF OLD.state <> 'open' THEN
    RAISE EXCEPTION 'an appeal is answered once'
      USING ERRCODE = '23514', CONSTRAINT = 'pause_appeal_answered_once';
  ELSIF OLD.decider <> (CASE current_user WHEN 'portal_ops' THEN 'operator' ELSE 'admin' END) THEN
    RAISE EXCEPTION 'others answer this appeal'
      USING ERRCODE = '42501', CONSTRAINT = 'pause_appeal_decider';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER check_appeal BEFORE INSERT OR UPDATE ON allocation_pauseappeal
  FOR EACH ROW EXECUTE FUNCTION allocation_check_appeal();
REVOKE EXECUTE ON FUNCTION allocation_check_appeal() FROM PUBLIC;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0041_hand_overs'),
        ('tenants', '0009_rights_to_credentials'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='PauseAppeal',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('reason', models.CharField(max_length=500)),
                ('decider', models.CharField(choices=[('admin', "The organisation's admins"), ('operator', 'The operators')], max_length=8)),
                ('raised', models.DateTimeField()),
                ('state', models.CharField(choices=[('open', 'Open'), ('accepted', 'Accepted'), ('declined', 'Declined')], default='open', max_length=8)),
                ('answer', models.CharField(blank=True, max_length=500)),
                ('answered', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'ordering': ['-raised', 'id'],
            },
        ),
        migrations.AddConstraint(
            model_name='pause',
            constraint=models.UniqueConstraint(fields=('tenant', 'id'), name='pause_id_in_tenant'),
        ),
        migrations.AddField(
            model_name='pauseappeal',
            name='answered_by',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='pauseappeal',
            name='booking',
            field=models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='allocation.booking'),
        ),
        migrations.AddField(
            model_name='pauseappeal',
            name='pause',
            field=models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name='appeal', to='allocation.pause'),
        ),
        migrations.AddField(
            model_name='pauseappeal',
            name='raised_by',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='pauseappeal',
            name='tenant',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant'),
        ),
        migrations.AddIndex(
            model_name='pauseappeal',
            index=models.Index(fields=['tenant', '-raised'], name='pause_appeal_of_tenant'),
        ),
        migrations.AddIndex(
            model_name='pauseappeal',
            index=models.Index(condition=models.Q(('state', 'open')), fields=['raised'], name='pause_appeal_open'),
        ),
        migrations.AddConstraint(
            model_name='pauseappeal',
            constraint=models.UniqueConstraint(fields=('tenant', 'id'), name='pause_appeal_id_in_tenant'),
        ),
        migrations.AddConstraint(
            model_name='pauseappeal',
            constraint=models.CheckConstraint(condition=models.Q(('reason', ''), _negated=True), name='pause_appeal_has_a_reason'),
        ),
        migrations.AddConstraint(
            model_name='pauseappeal',
            constraint=models.CheckConstraint(condition=models.Q(('decider__in', ['admin', 'operator'])), name='pause_appeal_decider_known'),
        ),
        migrations.AddConstraint(
            model_name='pauseappeal',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('answer', ''), ('answered', None), ('answered_by', None), ('state', 'open')), models.Q(('answered__gte', models.F('raised')), ('answered__isnull', False), ('answered_by__isnull', False), ('state__in', ['accepted', 'declined']), models.Q(('answer', ''), _negated=True), models.Q(('answered_by', models.F('raised_by')), _negated=True)), _connector='OR'), name='pause_appeal_answered_by_another'),
        ),
        migrations.RunSQL(RIGHTS + ANSWERS, migrations.RunSQL.noop),
    ]
