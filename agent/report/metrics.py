"""Metrics of the node and its agent for Prometheus. Off by default.

The agent's loop publishes an immutable snapshot that the server's thread reads; neither waits for
the other.
"""

import dataclasses
import http.server
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import wire
from agent import VERSION
from agent.act.apply import Outcome
from agent.state.store import Store
from wire.exposition import CONTENT_TYPE, Metric, Value, exposition

_SIGNALS = (
    ("utilisation", "utilisation_percent", "Busy time."),
    ("memory_used_mb", "memory_used_mib", "Memory in use."),
    ("memory_total_mb", "memory_total_mib", "Memory there is."),
    ("power_mw", "power_milliwatts", "Power."),
    ("temperature_c", "temperature_celsius", "Temperature."),
    ("processes", "processes", "Processes on it."),
    ("bandwidth", "memory_bandwidth_percent", "Memory bandwidth in use."),
    ("sm", "sm_active_percent", "Time that an SM had work, on average over all SMs."),
    ("tensor", "tensor_percent", "Time that tensor cores were busy."),
    ("sm_mhz", "sm_clock_mhz", "Clock."),
    ("throttle", "throttle_reasons", "NVML's bits of why the clock is not higher."),
    ("pcie_rx_kb", "pcie_rx_kib_per_second", "To the GPU over PCIe."),
    ("pcie_tx_kb", "pcie_tx_kib_per_second", "From the GPU over PCIe."),
    ("nvlink_rx_kb", "nvlink_rx_kib_per_second", "To the GPU over NVLink."),
    ("nvlink_tx_kb", "nvlink_tx_kib_per_second", "From the GPU over NVLink."),
    ("energy_mj", "energy_millijoules", "Since the driver was loaded."),
)


@dataclasses.dataclass(frozen=True, slots=True)
class MetricsState:
    """The last readings and the agent's own state at `at` (Unix seconds)."""

    at: int
    samples: tuple[wire.Sample, ...]
    epoch: int
    generation: int
    states: tuple[str, ...]
    unreachable: int


class MetricsBoard:
    """Holds the newest state."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._shown: MetricsState | None = None

    def show(
        self,
        at: float,
        samples: tuple[wire.Sample, ...],
        store: Store,
        outcomes: Iterable[Outcome],
    ) -> None:
        """Called by the agent's loop after each measurement."""
        outcomes = tuple(outcomes)
        self._shown = MetricsState(
            at=int(at),
            samples=samples,
            epoch=store.epoch,
            generation=store.generation,
            states=tuple(state.state for o in outcomes for state in o.states.values()),
            unreachable=sum(outcome.truth is None for outcome in outcomes),
        )

    def text(self) -> str:
        """In Prometheus's format."""
        info = Value(1, {"version": VERSION, "node": self._node})
        metrics = [Metric("gpu_agent_info", "gauge", "The agent that runs here.", (info,))]
        if self._shown is not None:
            metrics += [*_own(self._shown), *_measured(self._shown.samples)]
        return exposition(metrics)


def _own(shown: MetricsState) -> Iterator[Metric]:
    for name, help_, number in (
        ("measured_timestamp_seconds", "When it last measured.", shown.at),
        ("epoch", "Epoch of the document it acts on.", shown.epoch),
        ("generation", "Generation of the document it acts on.", shown.generation),
        ("gpus_silent", "GPUs that do not answer.", shown.unreachable),
    ):
        yield Metric(f"gpu_agent_{name}", "gauge", help_, (Value(number),))
    counts = Counter(shown.states)
    values = tuple(Value(count, {"state": state}) for state, count in sorted(counts.items()))
    yield Metric("gpu_agent_allocations", "gauge", "Allocations here, by state.", values)


def _measured(samples: tuple[wire.Sample, ...]) -> Iterator[Metric]:
    for field, name, help_ in _SIGNALS:
        values = tuple(Value(getattr(each, field), _labels(each)) for each in samples)
        yield Metric(f"gpu_agent_gpu_{name}", "gauge", help_, values)


def _labels(sample: wire.Sample) -> dict[str, str]:
    return {"gpu": sample.gpu, "slot": "" if sample.slot is None else str(sample.slot)}


def address_parse(text: str) -> tuple[str, int]:
    """`127.0.0.1:9835`, `[::1]:9835`. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 <= int(port) < 1 << 16:
        raise ValueError(f"{text!r}: write the address as 127.0.0.1:9835")
    return host.strip("[]"), int(port)


def metrics_serve(board: MetricsBoard, address: tuple[str, int]) -> tuple[int, Callable[[], None]]:
    """Starts the server; returns its port and a function that stops it. Raises OSError."""

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = 5

        def do_GET(self) -> None:
            found = self.path.partition("?")[0] == "/metrics"
            body = board.text().encode() if found else b"See /metrics\n"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: ANN401
            """Logs nothing."""

    server = http.server.HTTPServer(address, Handler)
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return server.server_port, stop
