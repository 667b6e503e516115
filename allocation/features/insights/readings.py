"""What figures are divided by, as SQL; what nodes' readings of GPUs sum up to; and the peak rates of tensor
cores for estimates from them."""

import json
import re
from collections.abc import Iterator
from datetime import date
from typing import Any

from django.conf import settings
from django.db import connection

from allocation.models import GpuModel
from allocation.points import hours_waited
from allocation.queries.bookings.money.held_use import OF_GPUS, WHOLE
from allocation.queries.fleet.use_hours import USE, use_summed_until

# A mixed booking waits and is paused as its first class.
OF_PLACE = {
    "class": "g.gpu_class_id",
    "tenant": "t.slug",
    "project": "p.slug",
    "person": "u.username",
    "tier": "b.tier_id",
}
OF_BOOKING = OF_PLACE | {"class": "b.planned_class"}
SPEND_BY = {"class": "gpu_class", "project": "project", "person": "person", "tier": "tier"}
NOUNS = tuple(OF_PLACE)
WHO = """
JOIN allocation_booking b ON b.id = {booking}
JOIN tenants_project p ON p.id = b.project_id
JOIN tenants_user u ON u.id = b.owner_id
JOIN tenants_tenant t ON t.id = b.tenant_id
"""
WHOSE = """(%(tenant)s::uuid IS NULL OR b.tenant_id = %(tenant)s)
  AND (%(projects)s::uuid[] IS NULL OR b.project_id = ANY(%(projects)s))"""
RUNS = "a.state IN ('active', 'releasing', 'ended') AND a.period && w.span"
# Dense FP16 or BF16 with FP32 sums, in TFLOPS, from NVIDIA's data sheets of each product. The first
# name that the product's has wins. One that is missing has no estimate.
_PEAKS = (
    ("GB200", 2_500),
    ("B200", 2_250),
    ("H200 NVL", 835),
    ("H200", 989),
    ("H100 NVL", 835),
    ("H100 PCIe", 756),
    ("H100", 989),
    ("A100", 312),
    ("A30", 165),
    ("A40", 149),
    ("A10", 125),
    ("L40S", 362),
    ("L40", 181),
    ("L4", 121),
    ("V100", 125),
    ("T4", 65),
)
# The network of a booking is that of its whole run, in equal parts for its GPUs of the node.
_NETWORK = """
LEFT JOIN (
  SELECT h.booking_id, h.node_id,
    (h.received_mb + h.sent_mb) * 1024 / h.network_seconds / count(DISTINCT x.gpu_id) AS kb
  FROM allocation_hostuse h
  JOIN allocation_allocation x ON x.booking_id = h.booking_id AND x.state IN ('active', 'releasing', 'ended')
  JOIN allocation_gpu y ON y.id = x.gpu_id AND y.node_id = h.node_id
  WHERE h.network_seconds > 0 AND h.at >= %(starts)s
  GROUP BY h.id) n ON n.booking_id = g.booking_id AND n.node_id = g.node_id
"""
# Grams of CO2 for each kWh, by the calendar of the zone at that hour, elsewhere those of the site.
_GRAMS = """coalesce(z.grams[1 + extract(hour FROM r.hour AT TIME ZONE coalesce(z.time_zone, 'UTC'))::int],
  %(grams)s)"""
# Readings are summed up by allocation and day first: what they are weighed with is that of the allocation,
# and there are hundreds of readings for each.
READINGS = f"""
SELECT a.id, a.booking_id, g.node_id, g.gpu_class_id, g.model_id, {WHOLE} AS whole,
  (r.hour AT TIME ZONE 'UTC')::date AS day, sum(r.seconds) AS seconds,
  sum(r.unused) AS unused, sum(r.unused) FILTER (WHERE w.at IS NOT NULL) AS dark,
  sum(r.measured) AS measured, sum(r.busy) AS busy,
  sum(r.energy_mj) AS energy_mj, sum(r.with_energy) AS with_energy,
  sum(r.with_bandwidth) AS with_bandwidth, sum(r.bandwidth) AS bandwidth,
  sum(r.with_tensor) AS with_tensor, sum(r.tensor) AS tensor,
  sum(r.link_kib) AS links, sum(r.tensor_with_energy) AS tensor_with_energy, sum(r.tensor_mj) AS tensor_mj,
  sum(r.with_sm) AS with_sm, sum(r.sm) AS sm,
  sum(r.energy_mj) FILTER (WHERE {_GRAMS} IS NOT NULL) AS with_grams,
  sum(r.energy_mj * {_GRAMS}) AS grams
FROM ({USE}) r
JOIN allocation_allocation a ON a.id = r.allocation_id
JOIN allocation_gpu g ON g.id = a.gpu_id
JOIN allocation_node o ON o.id = g.node_id
JOIN allocation_rack k ON k.id = o.rack_id
LEFT JOIN allocation_zone z ON z.slug = k.zone_id
JOIN allocation_booking b ON b.id = a.booking_id
LEFT JOIN unnest(%(waited_classes)s::text[], %(waited_hours)s::timestamptz[]) AS w (gpu_class, at)
  ON w.gpu_class = g.gpu_class_id AND w.at = r.hour
WHERE {OF_GPUS} AND {WHOSE}
GROUP BY a.id, g.id, day
"""  # noqa: S608
# Of readings with the time of tensor cores, on products with a known peak: what they computed at most.
_PEAK = "(%(peaks)s::jsonb ->> g.model_id)::numeric"
_USE = f"""
SELECT {{name}}, g.day, sum(g.seconds * g.whole),
  coalesce(sum(g.unused * g.whole), 0),
  coalesce(sum(g.dark * g.whole), 0),
  coalesce(sum(g.measured * g.whole), 0),
  coalesce(sum(g.busy * g.whole), 0),
  coalesce(sum(g.energy_mj), 0),
  coalesce(sum(g.with_energy * g.whole), 0),
  coalesce(sum(g.with_bandwidth * g.whole), 0),
  coalesce(sum(g.bandwidth * g.whole), 0),
  coalesce(sum(g.with_tensor * g.whole), 0),
  coalesce(sum(g.tensor * g.whole), 0),
  coalesce(sum(g.links + g.with_tensor * coalesce(n.kb, 0)::numeric) FILTER (WHERE {_PEAK} IS NOT NULL), 0),
  coalesce(sum(g.tensor / 100 * {_PEAK} * g.whole), 0),
  coalesce(sum(g.tensor_with_energy / 100 * {_PEAK} * g.whole), 0),
  coalesce(sum(g.tensor_mj) FILTER (WHERE {_PEAK} IS NOT NULL), 0),
  coalesce(sum(g.with_sm * g.whole), 0),
  coalesce(sum(g.sm * g.whole), 0),
  coalesce(sum(g.with_grams), 0),
  coalesce(sum(g.grams), 0)
FROM ({READINGS}) g
{_NETWORK}
{WHO.format(booking="g.booking_id")}
GROUP BY 1, 2
"""  # noqa: S608


def rows_read(statement: str, facts: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Returns the rows of a statement."""
    with connection.cursor() as cursor:
        cursor.execute(statement, facts)
        return list(cursor.fetchall())


def peak_tflops(product: str) -> int | None:
    """Returns the peak of a product such as `NVIDIA H100 80GB HBM3`; None: not known."""
    return next((peak for name, peak in _PEAKS if re.search(rf"\b{name}\b", product, re.IGNORECASE)), None)


def readings_of(facts: dict[str, Any], name: str) -> Iterator[tuple[str, date, list[Any]]]:
    """Yields the sums of readings by a noun and day, in the order of the statement."""
    waited = sorted(hours_waited(facts["starts"], facts["ends"]))
    facts = facts | {
        "summed_until": use_summed_until(),
        "peaks": _peaks(),
        "grams": settings.CARBON_GRAMS_PER_KWH or None,
        "waited_classes": [gpu_class for gpu_class, _ in waited],
        "waited_hours": [hour for _, hour in waited],
    }
    for noun, day, *sums in rows_read(_USE.format(name=name), facts):
        yield noun, day, sums


def _peaks() -> str:
    """The peaks of models that have one, as JSON."""
    rows = GpuModel.objects.values_list("slug", "product_name")
    return json.dumps({slug: peak for slug, name in rows if (peak := peak_tflops(name)) is not None})
