"""The models of GPUs, their slices, speeds and rules of approval are reference data of bookings."""

from django.db import migrations

from tenants.platform.reference import reference_of_all, reference_of_tenants


class Migration(migrations.Migration):
    dependencies = [("allocation", "0022_overrides"), ("tenants", "0014_reference")]
    operations = [
        migrations.RunSQL(
            reference_of_all("allocation_gpumodel")
            + reference_of_all("allocation_migplacement")
            + reference_of_all("allocation_workspeed")
            + reference_of_tenants("allocation_approvalrule")
        )
    ]
