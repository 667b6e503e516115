"""The client's paths and fields are those of the OpenAPI document."""

import inspect
import re
from typing import Any

import pytest
import yaml

from allocation.rules.states import State
from gpu_client import availability, clusters, commands, scripts, session, watching, words, workloads
from gpu_client import watching as client_states
from gpu_client.api import OPERATIONS
from tests.servers.servers import ROOT

# The fields that the commands read, by schema.
READ = {
    "BookingOut": (
        "id number name state project owner tier request window price allocations waiting ready_at"
        " ended_at extension_until script ask"
    ),
    "WindowOut": "starts ends planned_starts planned_ends",
    "PriceOfBooking": "held currency",
    "AllocationOut": "node gpu_index",
    "WaitingOut": "reasons",
    "QuoteOut": "options blocking quote advice",
    "AdviceOut": "sentence request labels",
    "WorkloadListedOut": "workload projects",
    "UseOfProjectOut": "project runs last",
    "WorkloadProfileOut": "profile advice",
    "ClassProfileOut": (
        "project slice gpus gpu_class runs busy idle peak_memory_mb cost_per_run cost_per_unit currency"
        " bottleneck"
    ),
    "WorkloadAdviceOut": "sentence request labels",
    "BottleneckOut": "kind",
    "OptionOut": "starts count profile gpu_class tier price currency pause_risk request",
    "WhyOut": ("number state expected_start estimated_start checks ahead holders changes alternatives"),
    "AheadOut": "bookings",
    "HolderOut": "booking gpus until",
    "CheckOut": "name passed reasons",
    "AvailabilityOut": "free",
    "FreeOut": "starts ends whole_gpus",
    "HeatOut": "wait_hours price currency pause_risk",
    "KpiOut": "name gpu_hours measured_gpu_hours utilisation kwh energy_gpu_hours began wait_p50_seconds"
    " pauses spend units",
    "KpiUnitOut": "unit cost",
    "ScriptOut": "text exit_code ended ended_at log_file log",
    "ProgressOut": "expected_end metric unit",
    "MetricOut": "name plateau",
    "QuotaOut": "project gpu_class guaranteed_units limit_units",
    "BudgetOut": "name project level starts ends amount currency spent held left",
    "KeptOut": "jobs types accounts",
    "MeOut": "name tenant roles time_zone",
    "RoleOut": "project role",
    "PublishedEventOut": "id type timestamp data",
    "EventDetails": "booking message",
    "EventBooking": "id state",
    "DeviceSignInOut": ("device_code user_code verification_uri verification_uri_complete interval"),
    "DeviceTokenOut": "token",
    "WaitEntryOut": "booking mode windows until cost",
    "WaitOfferOut": "id booking state gpu_class starts until cost",
    "Problem": "status detail code rule alternatives decision_id",
}
SENT = {
    "NewBookingInRequest": {
        *("project", "tier", "request", "quote", "name", "labels", "external_ref", "workload"),
        *("array", "parallel", "zone", "script"),
    },
    "ResultInRequest": {"result"},
    "ProgressInRequest": {"step", "of", "unit", "metrics"},
    "ExtendInRequest": {"by"},
}
QUERIES = {
    "list_bookings": {"project", "state", "label", "external_ref", "cursor"},
    "get_availability": {"gpu_class", "from", "until"},
    "list_budgets": {"project"},
    "list_kpis": {"from", "to", "by", "step", "project"},
}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = yaml.load(
        (ROOT / "docs" / "openapi.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader
    )
    return found


def test_every_operation_has_its_method_path_and_parameters(document: dict[str, Any]) -> None:
    there = {
        operation["operationId"]: (method.upper(), path.removeprefix("/api/v1"), operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert {name: there[name][:2] for name in OPERATIONS} == OPERATIONS
    for name, wanted in QUERIES.items():
        assert wanted <= {each["name"] for each in there[name][2]["parameters"]}
    waits = {each["name"] for each in there["create_booking"][2]["parameters"]}
    assert {"Prefer", "Idempotency-Key"} <= waits


def test_every_field_is_in_its_schema(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for name, fields in READ.items():
        assert set(fields.split()) - schemas[name]["properties"].keys() == set(), name
    for name, sent in SENT.items():
        assert sent - schemas[name]["properties"].keys() == set(), name
    states = {state.value for state in State}
    assert states == client_states.ALL


def test_no_command_reads_a_field_that_is_not_checked() -> None:
    source = "".join(
        map(
            inspect.getsource,
            (availability, clusters, commands, scripts, session, watching, words, workloads),
        )
    )
    read = set(re.findall(r"""\[["']([a-z_]+)["']\]""", source))
    checked = {field for fields in READ.values() for field in fields.split()}
    checked |= {field for fields in SENT.values() for field in fields}
    # `at` numbers the options of a quote; `since` belongs to a free form, a window of the waiting list.
    assert read - checked == {"at", "since"}
