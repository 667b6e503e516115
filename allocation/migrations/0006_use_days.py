"""Sums by hour of the five-minute rows, which are kept longer than these."""

import django.contrib.postgres.fields
from django.db import migrations, models
from django.db.models import PROTECT

from allocation.models.fleet.telemetry import RealField
from tenants.platform.wall import no_right, protect, updates_only

_TABLE = "allocation_gpuuseday"
_LISTS = (
    "seconds", "unused", "measured", "busy", "energy_mj", "with_energy", "with_bandwidth", "bandwidth",
    "with_tensor", "tensor", "link_kib", "tensor_with_energy", "tensor_mj", "with_sm", "sm",
)  # fmt: skip
_SQL = (
    protect(_TABLE, grants="SELECT")
    + no_right("INSERT, DELETE", _TABLE, roles="portal_ops")
    + updates_only({_TABLE: ""})
    + f"""
ALTER TABLE {_TABLE} ADD CONSTRAINT use_day_of_hours CHECK (
  cardinality(hours) BETWEEN 1 AND 24 AND 0 <= ALL (hours) AND 23 >= ALL (hours)
  AND {" AND ".join(f"cardinality({name}) = cardinality(hours)" for name in _LISTS)});
"""
)


def _list(
    field: "models.Field[object, object]",
) -> "django.contrib.postgres.fields.ArrayField[object, object]":
    return django.contrib.postgres.fields.ArrayField(base_field=field, size=None)


class Migration(migrations.Migration):
    dependencies = [("allocation", "0005_sm_active"), ("tenants", "0002_rules")]

    operations = [
        migrations.CreateModel(
            name="GpuUseDay",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("allocation_id", models.UUIDField()),
                ("day", models.DateField()),
                ("hours", _list(models.PositiveSmallIntegerField())),
                ("seconds", _list(models.PositiveSmallIntegerField())),
                ("unused", _list(models.PositiveSmallIntegerField())),
                ("measured", _list(models.PositiveSmallIntegerField())),
                ("busy", _list(RealField())),
                ("energy_mj", _list(models.BigIntegerField())),
                ("with_energy", _list(models.PositiveSmallIntegerField())),
                ("with_bandwidth", _list(models.PositiveSmallIntegerField())),
                ("bandwidth", _list(RealField())),
                ("with_tensor", _list(models.PositiveSmallIntegerField())),
                ("tensor", _list(RealField())),
                ("link_kib", _list(RealField())),
                ("tensor_with_energy", _list(RealField())),
                ("tensor_mj", _list(RealField())),
                ("with_sm", _list(models.PositiveSmallIntegerField())),
                ("sm", _list(RealField())),
                (
                    "tenant",
                    models.ForeignKey(db_index=False, on_delete=PROTECT, to="tenants.tenant"),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["tenant", "day"], name="use_day_of_tenant")],
                "constraints": [
                    models.UniqueConstraint(fields=["day", "allocation_id"], name="use_day_once")
                ],
            },
        ),
        migrations.RunSQL(_SQL, migrations.RunSQL.noop),
    ]
