"""What notebooks add to the core: orders for nodes, what nodes say, sentences and words."""

from collections.abc import Iterator
from datetime import datetime

from django.db.models import Count

from allocation.features.notebooks import tasks as tasks  # noqa: PLC0414 (registers the task)
from allocation.features.notebooks.models import Notebook
from allocation.features.notebooks.services import message_keep, orders_of
from allocation.points import METRICS, NODE_MESSAGES, NODE_ORDERS
from allocation.words.refusals import sentences_add
from tenants.rules.audit_words import ACTIONS, NAMED_BY
from wire.exposition import Metric, Value


def notebook_metrics(now: datetime) -> Iterator[Metric]:
    """Open notebooks by their state."""
    rows = Notebook.objects.filter(ended_at=None).order_by()
    counted = rows.values_list("state").annotate(Count("id")).order_by("state")
    yield Metric(
        "gpu_portal_notebooks",
        "gauge",
        "Open notebooks by state.",
        tuple(Value(count, {"state": state}) for state, count in counted),
    )


NODE_ORDERS.append(orders_of)
NODE_MESSAGES.append(message_keep)
METRICS.append(notebook_metrics)
sentences_add(
    {
        "notebooks_off": "This site offers no notebooks. Use ssh and `gpu-agent run`.",
        "notebook_owner": "A notebook is for the owner of the booking alone.",
        "notebook_not_running": "%(label)s is not running now. A notebook can be started while it runs.",
        (
            "notebook_not_offered"
        ): "The nodes of this booking offer no notebooks. Use ssh and `gpu-agent run`, or ask the operators.",
        "notebook_program": "%(node)s does not offer that. It offers: %(programs)s.",
        "notebook_not_ready": "%(label)s has no notebook that is ready. Start one on its page.",
    }
)
ACTIONS["notebook.started"] = "started a notebook on {object}"
ACTIONS["notebook.ended"] = "ended the notebook on {object}"
NAMED_BY["notebook"] = ("booking",)
