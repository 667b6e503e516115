"""Engines: one agent for many hosts of another scheduler, and what it says of these hosts."""

from django.core.validators import RegexValidator
from django.db import models
from django.db.models import F, Q

ENGINE_NAME = r"^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$"
KIND_LENGTH = 200


class EngineAgent(models.Model):
    """An agent that serves many hosts with one identity: a key and an account at the agents' server.

    Each host that an operator has approved is a node with its own documents, leases and reports.
    """

    name = models.CharField(primary_key=True, max_length=40, validators=[RegexValidator(ENGINE_NAME)])
    rack = models.ForeignKey(
        "allocation.Rack", on_delete=models.PROTECT, related_name="+", help_text="Of hosts that join."
    )
    engine = models.CharField(
        max_length=10, blank=True, default="", help_text="Its scheduler; empty before it was enrolled."
    )
    agent_version = models.CharField(max_length=40, blank=True, default="")
    created = models.DateTimeField()
    last_seen = models.DateTimeField(
        null=True, blank=True, help_text="When it last said which hosts there are."
    )
    seq = models.BigIntegerField(default=0, help_text="Of its newest message; older ones are refused.")

    link_digest = models.BinaryField(
        max_length=32, null=True, editable=False, help_text="As that of a node, which its hosts share."
    )
    key_version = models.PositiveIntegerField(default=1, help_text="Newest valid signing key.")
    key_confirmed = models.PositiveIntegerField(
        default=1, help_text="Oldest valid key: the one before, until the engine uses the newest."
    )

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(condition=Q(name__regex=ENGINE_NAME), name="engine_name_sane"),
            models.CheckConstraint(
                condition=Q(key_confirmed=F("key_version")) | Q(key_confirmed=F("key_version") - 1),
                name="engine_two_keys_at_most",
            ),
            models.CheckConstraint(
                condition=Q(engine__in=["", "slurm", "kubernetes", "quota", "volcano"]),
                name="engine_is_a_scheduler",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def was_enrolled(self) -> bool:
        """Whether an agent was ever enrolled as this engine."""
        return self.key_version > 1

    @property
    def is_locked_out(self) -> bool:
        """Whether its account was removed. Only a new enrolment makes another one."""
        return self.link_digest is None and self.was_enrolled


class EngineHost(models.Model):
    """A host that an engine has reported: it waits for approval, or is a node of the engine.

    A host that leaves the cluster is forgotten, unless it is a node: then it is `gone` until it comes back.
    """

    id = models.BigAutoField(primary_key=True)
    engine = models.ForeignKey(EngineAgent, on_delete=models.CASCADE, related_name="reported")
    name = models.CharField(max_length=64, help_text="As the scheduler names it.")
    inventory = models.JSONField(null=True, blank=True, help_text="Null before it was reported.")
    kind = models.CharField(
        max_length=KIND_LENGTH, blank=True, default="", help_text="Its GPUs, as `4 × NVIDIA L40S`."
    )
    since = models.DateTimeField(help_text="When it was reported first.")
    gone = models.DateTimeField(null=True, blank=True, help_text="When it was reported no more.")

    class Meta:
        ordering = ["engine", "name"]
        constraints = [models.UniqueConstraint(fields=["engine", "name"], name="host_of_engine_once")]
