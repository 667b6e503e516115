"""Synthesised readings of each kind of bottleneck, as five-minute rows.

Sources: input: Mohan et al., Analyzing and Mitigating Data Stalls in DNN Training, VLDB 2021 (10 to
70 % of an epoch with three cores per GPU); memory: Recasens et al., Mind the Memory Gap, 2025 (decoding
saturates DRAM bandwidth while compute is idle); communication: Wang et al., Domino, 2024 (up to 43 %
of a step of tensor parallel training on NVLink); compute: Narayanan et al., Efficient Large-Scale Language
Model Training, SC 2021 (52 % of an A100's peak); throttled: NVML's clock event reasons over a third of the
time; idle: Jeon et al., ATC 2019 (booked GPUs without work).
"""

from collections.abc import Mapping
from typing import Any

IDLE: Mapping[str, Any] = {
    "busy_min": 0,
    "busy_avg": 0.0,
    "busy_max": 0,
    "bandwidth_avg": 0.0,
    "tensor_avg": 0.0,
    "pcie_kb": 0,
    "nvlink_kb": 0,
    "throttled": 0,
}


def working(
    busy: float,
    swing: float,
    bandwidth: float,
    tensor: float,
    *,
    pcie_kb: int = 300_000,
    nvlink_kb: int = 0,
    throttled: int = 0,
) -> Mapping[str, Any]:
    """A row of work."""
    return {
        "busy_min": max(0, round(busy - swing / 2)),
        "busy_avg": busy,
        "busy_max": min(100, round(busy + swing / 2)),
        "bandwidth_avg": bandwidth,
        "tensor_avg": tensor,
        "pcie_kb": pcie_kb,
        "nvlink_kb": nvlink_kb,
        "throttled": throttled,
    }


KINDS: Mapping[str, Mapping[str, Any]] = {
    "idle": IDLE,
    "input": working(42, 70, 15, 11, pcie_kb=4_800_000),
    "memory": working(96, 6, 82, 6),
    "communication": working(97, 5, 24, 21, nvlink_kb=230_000_000),
    "compute": working(98, 4, 41, 52, nvlink_kb=40_000_000),
    "throttled": working(98, 4, 41, 38, throttled=110),
}
# Stalls that are shorter than a reading do not swing.
SHORT_STALLS = working(38, 8, 14, 9, pcie_kb=700_000)
OVER_PCIE = working(98, 4, 20, 15, pcie_kb=18 << 20)
