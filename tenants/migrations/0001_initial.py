import django.contrib.auth.models
import django.contrib.auth.validators
import django.contrib.postgres.fields
import django.db.models.deletion
import django.utils.timezone
import uuid
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
    ]

    operations = [
        migrations.CreateModel(
            name='GpuClass',
            fields=[
                ('slug', models.SlugField(max_length=40, primary_key=True, serialize=False)),
                ('label', models.CharField(max_length=80)),
                ('order', models.PositiveSmallIntegerField(default=0)),
            ],
            options={
                'ordering': ['order', 'slug'],
            },
        ),
        migrations.CreateModel(
            name='Tenant',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('slug', models.SlugField(max_length=40, unique=True)),
                ('name', models.CharField(max_length=120)),
                ('is_open', models.BooleanField(default=True)),
                ('bookings_counted', models.BigIntegerField(default=0, help_text='The highest number of a booking so far.')),
            ],
        ),
        migrations.CreateModel(
            name='ArchiveFile',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('kind', models.CharField(max_length=20)),
                ('tenant', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
                ('name', models.CharField(max_length=120, unique=True)),
                ('rows', models.PositiveIntegerField()),
                ('last_seal', models.PositiveBigIntegerField(blank=True, help_text='Number of the last seal whose rows are in the file.', null=True)),
                ('sha256', models.BinaryField(max_length=32)),
                ('written', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='AuditSeal',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('source', models.CharField(max_length=20)),
                ('tenant', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
                ('number', models.PositiveBigIntegerField(help_text='Position in the chain of the tenant.')),
                ('entries', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), help_text='Keys of the sealed rows.', size=None)),
                ('marks', models.BinaryField(help_text="First bytes of each row's SHA-256.")),
                ('previous', models.BinaryField(help_text='Digest of the seal before.', max_length=32)),
                ('digest', models.BinaryField(help_text='Over the rows and the seal before.', max_length=32)),
                ('through', models.BigIntegerField(help_text='Highest key that is sealed.')),
                ('sealed', models.DateTimeField()),
            ],
            options={
                'indexes': [models.Index(fields=['source', 'sealed'], name='audit_seal_latest')],
                'constraints': [models.UniqueConstraint(fields=('source', 'tenant', 'number'), name='audit_seal_once', nulls_distinct=False)],
            },
        ),
        migrations.CreateModel(
            name='OutboxMessage',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
                ('kind', models.CharField(max_length=60)),
                ('payload', models.JSONField()),
                ('created', models.DateTimeField()),
                ('sent', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('sent', None)), fields=['id'], name='outbox_waiting')],
            },
        ),
        migrations.CreateModel(
            name='Project',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
                ('slug', models.SlugField(max_length=40)),
                ('name', models.CharField(max_length=120)),
                ('is_open', models.BooleanField(default=True)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('tenant', 'slug'), name='project_slug_in_tenant'), models.UniqueConstraint(fields=('tenant', 'id'), name='project_id_in_tenant')],
            },
        ),
        migrations.CreateModel(
            name='Quota',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
                ('project', models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.project')),
                ('gpu_class', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.gpuclass')),
                ('guaranteed_units', models.BigIntegerField(default=0)),
                ('borrow_limit_units', models.BigIntegerField(blank=True, help_text='Most units above the guarantee; null is no limit.', null=True)),
                ('lend_limit_units', models.BigIntegerField(blank=True, help_text='Most idle units that others may borrow; null is all.', null=True)),
                ('weight', models.PositiveSmallIntegerField(db_default=1, default=1, help_text='Share of the units that are idle above guarantees.')),
                ('cap_gpu_hours', models.PositiveIntegerField(blank=True, null=True)),
                ('cap_days', models.PositiveSmallIntegerField(blank=True, help_text='Any such number of days in a row; null is a UTC month.', null=True)),
                ('cap_carries', models.BooleanField(db_default=False, default=False, help_text='Adds the unused hours of the month before.')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('tenant', 'project', 'gpu_class'), name='quota_once', nulls_distinct=False), models.CheckConstraint(condition=models.Q(('guaranteed_units__gte', 0), models.Q(('borrow_limit_units', None), ('borrow_limit_units__gte', 0), _connector='OR'), models.Q(('lend_limit_units', None), ('lend_limit_units__gte', 0), _connector='OR')), name='quota_never_negative'), models.CheckConstraint(condition=models.Q(('weight__lte', 1000)), name='quota_weight_sane'), models.CheckConstraint(condition=models.Q(models.Q(('cap_carries', False), ('cap_days', None), ('cap_gpu_hours', None)), models.Q(('cap_days', None), ('cap_gpu_hours__gt', 0)), models.Q(('cap_carries', False), ('cap_days__gte', 1), ('cap_days__lte', 31), ('cap_gpu_hours__gt', 0)), _connector='OR'), name='quota_cap_fits')],
            },
        ),
        migrations.CreateModel(
            name='Tier',
            fields=[
                ('slug', models.SlugField(max_length=40, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=80)),
                ('description', models.CharField(blank=True, max_length=200)),
                ('priority', models.IntegerField(help_text='Higher goes first.')),
                ('counts_against_guarantee', models.BooleanField(db_default=True, default=True)),
                ('max_duration_seconds', models.PositiveIntegerField(default=604800)),
                ('advance_seconds', models.PositiveIntegerField(default=2419200, help_text='How far ahead a booking may start.')),
                ('pausable', models.BooleanField(default=False)),
                ('grace_seconds', models.PositiveIntegerField(default=600, help_text='Time between the notice and the pause.')),
                ('protected_seconds', models.PositiveIntegerField(default=0, help_text='Time after a start without pauses.')),
                ('pause_method', models.CharField(choices=[('stop', 'Ended by the node'), ('signal', 'Ends itself, killed at the deadline'), ('suspend', 'Suspended on its node')], db_default='stop', default='stop', max_length=8)),
                ('max_pauses', models.PositiveSmallIntegerField(blank=True, help_text='Pauses of one booking at most; null is no limit.', null=True)),
                ('credit_cap_seconds', models.PositiveIntegerField(db_default=14400, default=14400, help_text='Most lost work that a pause credits.')),
                ('more_times', models.PositiveSmallIntegerField(db_default=0, default=0, help_text='How often an owner may ask for more time.')),
                ('more_time_seconds', models.PositiveIntegerField(db_default=0, default=0, help_text='How much more time each such request gives.')),
                ('replace_on_lost', models.BooleanField(db_default=False, default=False, help_text='Restarted elsewhere if its node is unreachable; the node ends its own run.')),
            ],
            options={
                'ordering': ['-priority', 'slug'],
                'constraints': [models.CheckConstraint(condition=models.Q(('max_duration_seconds__gte', 60), ('max_duration_seconds__lte', 7776000)), name='tier_duration_sane'), models.CheckConstraint(condition=models.Q(('counts_against_guarantee', True), ('pausable', True), _connector='OR'), name='tier_never_paused_counts'), models.CheckConstraint(condition=models.Q(('pause_method__in', ['stop', 'signal', 'suspend'])), name='tier_pause_method')],
            },
        ),
        migrations.CreateModel(
            name='User',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('is_superuser', models.BooleanField(default=False, help_text='Designates that this user has all permissions without explicitly assigning them.', verbose_name='superuser status')),
                ('username', models.CharField(error_messages={'unique': 'A user with that username already exists.'}, help_text='Required. 150 characters or fewer. Letters, digits and @/./+/-/_ only.', max_length=150, unique=True, validators=[django.contrib.auth.validators.UnicodeUsernameValidator()], verbose_name='username')),
                ('first_name', models.CharField(blank=True, max_length=150, verbose_name='first name')),
                ('last_name', models.CharField(blank=True, max_length=150, verbose_name='last name')),
                ('email', models.EmailField(blank=True, max_length=254, verbose_name='email address')),
                ('is_staff', models.BooleanField(default=False, help_text='Designates whether the user can log into this admin site.', verbose_name='staff status')),
                ('is_active', models.BooleanField(default=True, help_text='Designates whether this user should be treated as active. Unselect this instead of deleting accounts.', verbose_name='active')),
                ('date_joined', models.DateTimeField(default=django.utils.timezone.now, verbose_name='date joined')),
                ('time_zone', models.CharField(default='Europe/Berlin', max_length=64)),
                ('mails', models.CharField(choices=[('all', 'Everything about my bookings'), ('urgent', "Only what can't wait: a pause that counts down"), ('none', 'Nothing')], db_default='all', default='all', max_length=8)),
                ('groups', models.ManyToManyField(blank=True, help_text='The groups this user belongs to. A user will get all permissions granted to each of their groups.', related_name='user_set', related_query_name='user', to='auth.group', verbose_name='groups')),
                ('user_permissions', models.ManyToManyField(blank=True, help_text='Specific permissions for this user.', related_name='user_set', related_query_name='user', to='auth.permission', verbose_name='user permissions')),
            ],
            options={
                'verbose_name': 'user',
                'verbose_name_plural': 'users',
                'abstract': False,
                'constraints': [models.CheckConstraint(condition=models.Q(('mails__in', ['all', 'urgent', 'none'])), name='user_mails')],
            },
            managers=[
                ('objects', django.contrib.auth.models.UserManager()),
            ],
        ),
        migrations.CreateModel(
            name='ApiToken',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
                ('name', models.CharField(max_length=80)),
                ('digest', models.BinaryField(max_length=32, unique=True)),
                ('prefix', models.CharField(max_length=16)),
                ('created', models.DateTimeField()),
                ('expires', models.DateTimeField()),
                ('last_used', models.DateTimeField(blank=True, null=True)),
                ('revoked', models.DateTimeField(blank=True, null=True)),
                ('made_with', models.ForeignKey(blank=True, db_constraint=False, help_text='The token that created this one, which ends no later.', null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.apitoken')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('tenant', 'id'), name='apitoken_id_in_tenant')],
            },
        ),
        migrations.CreateModel(
            name='AuditEntry',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('tenant', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
                ('at', models.DateTimeField()),
                ('actor', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
                ('action', models.CharField(max_length=60)),
                ('object_kind', models.CharField(max_length=40)),
                ('object_id', models.CharField(max_length=64)),
                ('detail', models.JSONField(default=dict)),
            ],
            options={
                'indexes': [models.Index(fields=['tenant', '-at'], name='audit_latest')],
            },
        ),
        migrations.CreateModel(
            name='IdempotencyKey',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
                ('key', models.CharField(max_length=255)),
                ('method', models.CharField(max_length=8)),
                ('path', models.CharField(max_length=400)),
                ('body_sha256', models.BinaryField(max_length=32)),
                ('status', models.PositiveSmallIntegerField()),
                ('answer', models.JSONField()),
                ('is_final', models.BooleanField(help_text='False while the answer may still be replaced.')),
                ('created', models.DateTimeField()),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('tenant', 'user', 'key'), name='idempotency_once'), models.CheckConstraint(condition=models.Q(('key', ''), _negated=True), name='idempotency_key_not_empty')],
            },
        ),
        migrations.CreateModel(
            name='Invitation',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
                ('project', models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.project')),
                ('role', models.CharField(choices=[('viewer', 'Viewer'), ('researcher', 'Researcher'), ('lead', 'Project lead'), ('tenant_admin', 'Tenant admin')], max_length=16)),
                ('invitee', models.CharField(help_text='A sign-in name or an e-mail address, as typed, in small letters.', max_length=254)),
                ('state', models.CharField(choices=[('open', 'No answer yet'), ('accepted', 'Accepted'), ('declined', 'Declined'), ('revoked', 'Revoked')], default='open', max_length=8)),
                ('made_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('created', models.DateTimeField()),
                ('expires', models.DateTimeField()),
                ('decided', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('state', 'open')), fields=['invitee'], name='invitation_waiting')],
                'constraints': [models.UniqueConstraint(condition=models.Q(('state', 'open')), fields=('tenant', 'project', 'invitee'), name='invitation_open_once', nulls_distinct=False), models.CheckConstraint(condition=models.Q(models.Q(('project', None), ('role', 'tenant_admin')), models.Q(('role__in', ['viewer', 'researcher', 'lead']), ('project__isnull', False)), _connector='OR'), name='invitation_role_fits'), models.CheckConstraint(condition=models.Q(models.Q(('decided', None), ('state', 'open')), models.Q(('state__in', ['accepted', 'declined', 'revoked']), ('decided__isnull', False)), _connector='OR'), name='invitation_decided_once')],
            },
        ),
        migrations.CreateModel(
            name='KnownPerson',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to='tenants.tenant')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('tenant', 'user'), name='known_person_once')],
            },
        ),
        migrations.CreateModel(
            name='Mail',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
                ('message', models.BigIntegerField(help_text='The outbox message; no foreign key, as messages are deleted after a week.')),
                ('kind', models.CharField(max_length=60)),
                ('booking', models.UUIDField(blank=True, null=True)),
                ('invitation', models.UUIDField(blank=True, null=True)),
                ('at', models.DateTimeField()),
                ('due', models.DateTimeField(help_text='Time of the next try.')),
                ('tries', models.PositiveSmallIntegerField(default=0)),
                ('sent', models.DateTimeField(blank=True, null=True)),
                ('dropped', models.CharField(blank=True, help_text='Why it is not sent.', max_length=120)),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('dropped', ''), ('sent', None)), fields=['due', 'id'], name='mail_waiting')],
                'constraints': [models.UniqueConstraint(fields=('user', 'message'), name='mail_once'), models.CheckConstraint(condition=models.Q(('sent', None), ('dropped', ''), _connector='OR'), name='mail_one_end'), models.CheckConstraint(condition=models.Q(models.Q(('booking__isnull', False), ('invitation', None)), models.Q(('booking', None), ('invitation__isnull', False)), _connector='OR'), name='mail_about_one')],
            },
        ),
        migrations.CreateModel(
            name='Membership',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
                ('project', models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.project')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL)),
                ('role', models.CharField(choices=[('viewer', 'Viewer'), ('researcher', 'Researcher'), ('lead', 'Project lead'), ('tenant_admin', 'Tenant admin')], max_length=16)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('tenant', 'project', 'user'), name='membership_once', nulls_distinct=False), models.CheckConstraint(condition=models.Q(models.Q(('project', None), ('role', 'tenant_admin')), models.Q(('role__in', ['viewer', 'researcher', 'lead']), ('project__isnull', False)), _connector='OR'), name='membership_role_fits')],
            },
        ),
        migrations.CreateModel(
            name='Password',
            fields=[
                ('user', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='+', serialize=False, to=settings.AUTH_USER_MODEL)),
                ('encoded', models.CharField(max_length=128)),
            ],
        ),
        migrations.CreateModel(
            name='Session',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('digest', models.BinaryField(max_length=32, unique=True)),
                ('user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL)),
                ('data', models.TextField(help_text="Signed JSON, as Django's sessions encode it.")),
                ('created', models.DateTimeField()),
                ('expires', models.DateTimeField(db_index=True)),
                ('last_seen', models.DateTimeField(help_text='Written at most once a minute.')),
                ('device', models.CharField(blank=True, help_text='As in Firefox on Linux.', max_length=80)),
                ('address', models.GenericIPAddressField(blank=True, null=True)),
            ],
        ),
    ]
