"""What the agent says: its messages, made from what came of its turns."""

import logging
from collections.abc import Collection, Iterable, Mapping

from allocation import wire
from allocation.agent.act.apply import Outcome
from allocation.agent.owner.notices import saved_at
from allocation.agent.plan.reconcile import Record, place_of
from allocation.agent.ports.gpu import GpuError, GpuPort, Place, Reading, Truth

log = logging.getLogger(__name__)

Owners = Mapping[tuple[str, Place | None], str]
"""The allocation on a GPU (by UUID) and place; a None place is the whole GPU."""


def owners_of(held: Mapping[str, Record]) -> Owners:
    """Without shares: what a GPU as a whole does is not one booking's."""
    return {
        (record.gpu, place_of(record.allocation)): name
        for name, record in held.items()
        if not record.emptied and record.allocation.share is None
    }


def reported_gpus(outcomes: Iterable[Outcome], owners: Owners) -> tuple[wire.ReportedGpu, ...]:
    """Those that answer."""
    return tuple(
        _reported_gpu(outcome, outcome.truth, owners)
        for outcome in outcomes
        if outcome.truth is not None
    )


def problems(outcomes: Iterable[Outcome]) -> list[str]:
    """What is wrong with the GPUs that do not answer."""
    return [f"{o.gpu}: {o.error}" for o in outcomes if o.truth is None]


def _reported_gpu(outcome: Outcome, truth: Truth, owners: Owners) -> wire.ReportedGpu:
    instances = [
        wire.Instance(
            profile=found.profile,
            profile_id=found.place.profile_id,
            slot=found.place.slot,
            size=found.place.size,
            uuid=found.uuid,
            allocation=owners.get((outcome.gpu, found.place)),
        )
        for found in sorted(truth.instances, key=lambda i: i.place)
    ]
    return wire.ReportedGpu(
        uuid=outcome.gpu,
        mode=truth.mode,
        instances=tuple(instances),
        error=outcome.error,
        pending=truth.pending,
        stuck=outcome.stuck,
    )


def reported_allocations(
    outcomes: Iterable[Outcome],
    since: Mapping[str, int],
    held: Mapping[str, Record],
    suspended: Collection[str],
) -> tuple[wire.ReportedAllocation, ...]:
    """`since` gives the Unix seconds at which each allocation came into its state. What there is no
    record of in `held` any more was told, and the portal has heard it."""
    found = [
        wire.ReportedAllocation(
            id=name,
            state=state.state,
            devices=() if state.device is None else (state.device,),
            error=state.error or held[name].note,
            since=since[name],
            noticed=held[name].noticed,
            saved=saved_at(held[name]),
            suspended=state.state == "empty" and name in suspended,
        )
        for outcome in outcomes
        for name, state in outcome.states.items()
        if name in held
    ]
    return tuple(sorted(found, key=lambda allocation: allocation.id))


def samples_take(port: GpuPort, gpus: Iterable[str], owners: Owners) -> tuple[wire.Sample, ...]:
    """A GPU that does not answer has no sample. Of more than one message may hold, those of
    bookings go first."""
    samples: list[wire.Sample] = []
    for gpu in gpus:
        try:
            samples += [_sample(reading, owners) for reading in port.readings(gpu)]
        except GpuError as error:
            log.warning("no telemetry of %s: %s", gpu, error)
    if len(samples) > wire.SAMPLES_MAX:
        log.warning("%d readings are not told", len(samples) - wire.SAMPLES_MAX)
        samples.sort(key=lambda sample: sample.allocation is None)
    return tuple(samples[: wire.SAMPLES_MAX])


def _sample(reading: Reading, owners: Owners) -> wire.Sample:
    place = reading.place
    return wire.Sample(
        gpu=reading.gpu,
        slot=None if place is None else place.slot,
        size=None if place is None else place.size,
        allocation=owners.get((reading.gpu, place)),
        utilisation=reading.utilisation,
        memory_used_mb=reading.memory_used_mb,
        memory_total_mb=reading.memory_total_mb,
        power_mw=reading.power_mw,
        temperature_c=reading.temperature_c,
        processes=reading.processes,
        bandwidth=reading.bandwidth,
        tensor=reading.tensor,
        sm_mhz=reading.sm_mhz,
        throttle=reading.throttle,
        pcie_rx_kb=reading.pcie_rx_kb,
        pcie_tx_kb=reading.pcie_tx_kb,
        nvlink_rx_kb=reading.nvlink_rx_kb,
        nvlink_tx_kb=reading.nvlink_tx_kb,
        energy_mj=reading.energy_mj,
    )
