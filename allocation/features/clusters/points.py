"""What observed clusters add to the core: demand, their use on the timeline, metrics, sentences and words
of the log."""

from collections.abc import Iterator
from datetime import datetime

from allocation.features.clusters.figures import demand_of_jobs, demand_since, use_in_columns
from allocation.features.clusters.models import ObservedCluster
from allocation.points import DEMAND_SOURCES, METRICS, DemandSource
from allocation.points.outside import OUTSIDE_USES
from allocation.words.refusals import sentences_add
from tenants.rules.audit_words import ACTIONS
from wire.exposition import Metric, Value


def cluster_metrics(now: datetime) -> Iterator[Metric]:
    """How long ago each cluster's records were read."""
    ages = tuple(
        Value((now - row.read_at).total_seconds(), {"cluster": row.slug})
        for row in ObservedCluster.objects.order_by("slug")
    )
    yield Metric(
        "gpu_portal_cluster_read_age_seconds", "gauge", "Seconds since a cluster's records were read.", ages
    )


DEMAND_SOURCES.append(DemandSource(demand_of_jobs, demand_since))
METRICS.append(cluster_metrics)
OUTSIDE_USES.append(use_in_columns)
sentences_add(
    {
        "job_times": "The times of job %(number)s are not in order: submitted, started, ended.",
        "job_ahead": "Job %(number)s is in the future. Check the time zone.",
        "job_count": "Send 1 to %(most)s jobs at once.",
        "cluster_period": "Choose days from one to another, at most 366.",
    }
)
ACTIONS["cluster.observed"] = "read the records of {object} for the first time"
ACTIONS["cluster.account_assigned"] = "assigned an account of {object}"
ACTIONS["cluster.type_assigned"] = "assigned a GPU type of {object}"
