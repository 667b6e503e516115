"""Workers make no credential: no key, second factor, sign-on, directory, token or operator's access.

They had the right to add such rows, with which code of a worker could have signed in as anybody.
"""

from django.db import migrations

from tenants.platform.wall import no_right

CREDENTIALS = (
    "tenants_apitoken",
    "tenants_directorygroup",
    "tenants_directoryperson",
    "tenants_directorytoken",
    "tenants_operatoraccess",
    "tenants_passkey",
    "tenants_passkeychallenge",
    "tenants_secondfactor",
    "tenants_serviceaccount",
    "tenants_signonattempt",
    "tenants_signongroup",
    "tenants_signonidentity",
    "tenants_signonprovider",
)
SQL = no_right("INSERT", *CREDENTIALS, roles="portal_system")


class Migration(migrations.Migration):
    dependencies = [("tenants", "0016_class_kinds")]
    operations = [migrations.RunSQL(SQL, migrations.RunSQL.noop)]
