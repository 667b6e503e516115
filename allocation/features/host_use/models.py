"""Tables of the host: what bookings use of it, and which projects get free cores."""

from django.conf import settings
from django.db import models
from django.db.models import PROTECT, Q

from allocation.models import Booking, Node
from tenants.models import Project, Tenant


class HostUse(models.Model):
    """What the programs of a booking have used of one of its nodes, as its agent measured their group.

    A sum is null where nothing of it was measured; `seconds` say on how much time the others are based.
    """

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, PROTECT, db_index=False)
    booking = models.ForeignKey(
        Booking, PROTECT, db_constraint=False, related_name="host_uses", db_index=False
    )
    node = models.ForeignKey(Node, PROTECT, related_name="+", db_index=False)
    at = models.DateTimeField(help_text="Of the newest measurement.")
    seconds = models.FloatField(help_text="Measured time.")
    cpu_seconds = models.FloatField(help_text="Core-seconds that were used.")
    core_seconds = models.FloatField(
        help_text="Core-seconds that it could use; 0: not limited, or not known."
    )
    cores = models.PositiveIntegerField(help_text="That it can use now.")
    spare = models.PositiveIntegerField(help_text="Cores that the node could lend to it.")
    cpu = models.PositiveIntegerField(help_text="Thousandths of a core in the newest measurement.")
    memory_mb = models.PositiveIntegerField(null=True, help_text="Now.")
    peak_memory_mb = models.PositiveIntegerField(null=True)
    read_mb = models.FloatField(null=True, help_text="From disks.")
    written_mb = models.FloatField(null=True, help_text="To disks.")
    network_seconds = models.FloatField(
        default=0, db_default=0, help_text="Measured time with a network, on which its sums are based."
    )
    received_mb = models.FloatField(null=True, help_text="From the network.")
    sent_mb = models.FloatField(null=True, help_text="To the network.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["booking", "node"], name="host_use_once"),
            models.CheckConstraint(
                condition=Q(seconds__gte=0, cpu_seconds__gte=0, core_seconds__gte=0),
                name="host_use_is_a_number",
            ),
        ]


class SpareCores(models.Model):
    """Whether running work of a project gets free cores of its nodes while it waits for input."""

    project = models.OneToOneField(Project, PROTECT, primary_key=True, db_constraint=False, related_name="+")
    tenant = models.ForeignKey(Tenant, PROTECT, db_index=False)
    is_on = models.BooleanField()
    changed_at = models.DateTimeField()
    changed_by = models.ForeignKey(settings.AUTH_USER_MODEL, PROTECT, related_name="+")


class RaisedCores(models.Model):
    """A running booking that may use free cores of its nodes: `most` of them on each."""

    booking = models.OneToOneField(
        Booking, PROTECT, primary_key=True, db_constraint=False, related_name="raised_cores"
    )
    tenant = models.ForeignKey(Tenant, PROTECT, db_index=False)
    most = models.PositiveIntegerField()
    run = models.DateTimeField(help_text="When the run began for which it was raised.")
    raised_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, help_text="When it was taken back.")
    evidence = models.JSONField(help_text="The numbers by which its work waited for input.")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(most__gte=1, most__lte=1024), name="raised_cores_bounded"),
        ]
