"""How hard devices worked, over the API."""

from datetime import timedelta

from django.utils import timezone

from allocation.models import Allocation, Booking, Gpu, GpuSample
from tests.api.builders import Api, Site, said
from tests.builders_allocation import an_allocation
from tests.roles import as_system

MINUTE = timedelta(minutes=1)


def a_busy_booking(site: Site, busy: int) -> tuple[str, Allocation]:
    """Its number, and its allocation, with a reading five minutes ago."""
    made = said(
        site.researcher.post(
            "bookings", {"project": "folding", "tier": "standard", "request": "1 h100 for 1h"}
        )
    )
    now = timezone.now()
    with as_system():
        booking = Booking.objects.get(number=int(made["number"].removeprefix("BK-")))
        gpu = Gpu.objects.order_by("number").first()
        assert gpu is not None
        row = an_allocation(booking, gpu, state="active")
        GpuSample.objects.create(
            gpu=gpu,
            tenant_id=booking.tenant_id,
            allocation_id=row.id,
            at=now - 5 * MINUTE,
            utilisation=busy,
        )
    return made["number"], row


def test_members_read_the_use_of_a_booking_and_null_is_not_measured(site: Site) -> None:
    number, row = a_busy_booking(site, 83)
    answer = said(site.researcher.get(f"bookings/{number}/use"))
    assert (answer["step_seconds"], answer["devices"]) == (60, 1)
    assert {point["busy"] for point in answer["points"]} == {83.0, None}
    assert len(answer["points"]) in (60, 61)
    assert site.outsider.get(f"bookings/bk_{row.booking_id.hex}/use").status_code == 404
    assert Api(None).get(f"bookings/{number}/use").status_code == 401


def test_a_gpu_as_a_whole_is_for_operators(site: Site) -> None:
    _, row = a_busy_booking(site, 83)
    answer = said(site.operator.get(f"fleet/gpus/{row.gpu_id}/use"))
    assert 83.0 in {point["busy"] for point in answer["points"]}
    assert site.admin.get(f"fleet/gpus/{row.gpu_id}/use").status_code == 403
    nothing = "00000000-0000-4000-8000-000000000000"
    assert site.operator.get(f"fleet/gpus/{nothing}/use").status_code == 404


def test_a_span_is_in_order_and_at_most_ninety_days(site: Site) -> None:
    path = f"bookings/{a_busy_booking(site, 1)[0]}/use"
    for span, code in (
        ({"from": "2026-11-02T00:00:00Z", "until": "2026-11-01T00:00:00Z"}, "end_before_start"),
        ({"from": "2026-01-01T00:00:00Z", "until": "2026-11-01T00:00:00Z"}, "span_too_long"),
    ):
        answer = site.researcher.get(path, **span)
        assert (answer.status_code, said(answer)["code"]) == (422, code)
    assert site.researcher.get(path, **{"from": "0001-01-01T00:00:00Z"}).status_code == 422
    assert site.researcher.get(path, until="0001-01-01T00:00:00Z").status_code == 422
