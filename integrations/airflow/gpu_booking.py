"""Airflow 3: book GPUs, wait until they are ready, and release them.

Copy this file into the folder of your DAGs, install the client from a checkout of the portal
(`pip install '.[cli]'`, see docs/cli.md; it is in no package index), and create a connection
`gpu_portal` whose host is the portal's address and whose password is a token.

    booked = GpuBook(task_id="book", project="folding", request="1 h100 2h")
    ready = GpuReady(task_id="ready", booking=booked.output)
    train = BashOperator(task_id="train", bash_command="ssh … gpu run {{ ti.xcom_pull('book') }} -- …")
    booked >> ready >> train >> GpuRelease(task_id="release", booking=booked.output)
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from airflow.sdk import BaseHook, BaseOperator, BaseSensorOperator, TriggerRule
from airflow.sdk.exceptions import AirflowFailException

from gpu_client.api import Client
from gpu_client.config import Config
from gpu_client.problems import SERVER, Problem

OVER = frozenset({"ended", "refused", "rejected", "expired", "cancelled", "failed"})
RUNS = frozenset({"active", "pausing", "paused", "ending"})
POKE_SECONDS = 30.0


@contextmanager
def portal(connection: str) -> Iterator[Client]:
    """Opens the portal of an Airflow connection.

    Raises AirflowFailException, which stops retries, if the portal refuses; other errors are raised
    as they are, and Airflow tries again.
    """
    found = BaseHook.get_connection(connection)
    host = found.host or ""
    if "://" not in host:
        port = f":{found.port}" if found.port else ""
        host = f"{found.schema or 'https'}://{host}{port}"
    with Client(Config(host, found.password or "")) as client:
        try:
            yield client
        except Problem as problem:
            if problem.exit_status == SERVER:
                raise
            raise AirflowFailException(str(problem)) from problem


class GpuBook(BaseOperator):
    """Books GPUs; returns the booking's number, such as `BK-2041`.

    A retry of the task finds the booking of the first try, so nothing is booked twice. A cleared
    task books again if its earlier booking is over.
    """

    template_fields: Sequence[str] = (
        "project",
        "request",
        "tier",
        "name",
        "external_ref",
        "labels",
    )

    def __init__(
        self,
        *,
        project: str,
        request: str,
        tier: str = "",
        name: str = "",
        external_ref: str = "",
        labels: Mapping[str, str] | None = None,
        connection: str = "gpu_portal",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.project, self.request, self.tier = project, request, tier
        self.name, self.external_ref, self.labels = name, external_ref, dict(labels or {})
        self.connection = connection

    def execute(self, context: Any) -> str:
        """Books, and returns the number."""
        fields = {name: getattr(self, name) for name in self.template_fields}
        wanted = {name: value for name, value in fields.items() if value}
        task = context["ti"]
        names = (task.dag_id, task.run_id, task.task_id, str(task.map_index))
        with portal(self.connection) as client:
            booking = client.book(wanted, key=_key(*names))
            if booking["state"] in OVER:
                booking = client.book(wanted, key=_key(*names, str(task.try_number)))
        self.log.info("%s is %s.", booking["number"], booking["state"])
        return str(booking["number"])


class GpuReady(BaseSensorOperator):
    """Waits until a booking has its GPUs. Fails if it ends before. Holds no worker while it waits."""

    template_fields: Sequence[str] = ("booking",)

    def __init__(
        self,
        *,
        booking: str,
        connection: str = "gpu_portal",
        mode: str = "reschedule",
        **kwargs: Any,
    ) -> None:
        super().__init__(mode=mode, **{"poke_interval": POKE_SECONDS, **kwargs})
        self.booking, self.connection = booking, connection

    def poke(self, context: Any) -> bool:
        """Returns whether the booking is active."""
        with portal(self.connection) as client:
            booking = client.booking(self.booking)
            if booking["state"] in OVER:
                raise AirflowFailException(f"{self.booking} is {booking['state']}.")
        return booking["state"] == "active"


class GpuRelease(BaseOperator):
    """Ends a booking, or cancels it if it has not started; also after failed tasks."""

    template_fields: Sequence[str] = ("booking",)

    def __init__(
        self,
        *,
        booking: str,
        connection: str = "gpu_portal",
        trigger_rule: str = TriggerRule.ALL_DONE,
        **kwargs: Any,
    ) -> None:
        super().__init__(trigger_rule=trigger_rule, **kwargs)
        self.booking, self.connection = booking, connection

    def execute(self, context: Any) -> None:
        """Ends the booking, unless it is over."""
        with portal(self.connection) as client:
            state = client.booking(self.booking)["state"]
            if state in RUNS:
                client.release(self.booking)
            elif state not in OVER:
                client.cancel(self.booking)


def _key(*names: str) -> str:
    return str(uuid5(NAMESPACE_URL, "/".join(("airflow", *names))))
