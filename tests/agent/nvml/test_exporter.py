"""Profiling values from DCGM's exporter: a real server on this machine, with good and with bad answers."""

import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from time import monotonic
from urllib.parse import urlsplit

import pytest

from agent.nvml.exporter import (
    AFTER_FAILURE_S,
    FRESH_S,
    KEPT_S,
    LIMIT_S,
    MOST_BYTES,
    Exporter,
    exporter_address,
    values_of,
)
from agent.nvml.measure import Measures
from agent.options import options_parse
from tests.agent.nvml.test_gpu import Simulated, simulate

ONE, TWO = "GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52", "GPU-11111111-2222-3333-4444-555555555555"
TEXT = f"""# HELP DCGM_FI_PROF_SM_ACTIVE The ratio of cycles an SM has at least 1 warp assigned.
# TYPE DCGM_FI_PROF_SM_ACTIVE gauge
DCGM_FI_PROF_SM_ACTIVE{{gpu="0",UUID="{ONE}",device="nvidia0",modelName="NVIDIA A100-SXM4-80GB"}} 0.724
DCGM_FI_PROF_SM_ACTIVE{{gpu="1",UUID="{TWO}",device="nvidia1",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"}} 0.5
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{gpu="0",UUID="{ONE}",device="nvidia0"}} 0.315
DCGM_FI_PROF_DRAM_ACTIVE{{gpu="0",UUID="{ONE}",device="nvidia0"}} 1
DCGM_FI_PROF_DRAM_ACTIVE{{gpu="1",UUID="{TWO}",device="nvidia1"}} 9223372036854775794
DCGM_FI_DEV_SM_CLOCK{{gpu="0",UUID="{ONE}"}} 1410
"""


class Answers(BaseHTTPRequestHandler):
    """Answers with what the server has to say, and counts."""

    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Saying)
        server.asked += 1
        self.send_response(server.status)
        self.end_headers()
        self.wfile.write(server.body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


class Saying(ThreadingHTTPServer):
    status, body, asked = 200, TEXT.encode(), 0


@pytest.fixture
def server() -> Iterator[Saying]:
    with Saying(("127.0.0.1", 0), Answers) as found:
        thread = Thread(target=found.serve_forever, args=(0.01,))
        thread.start()
        yield found
        found.shutdown()
        thread.join()


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def an_exporter(server: Saying, clock: Clock) -> Exporter:
    return Exporter(f"http://127.0.0.1:{server.server_address[1]}/metrics", clock)


def test_shares_of_whole_gpus_are_percent_and_slices_and_blanks_are_left_out() -> None:
    assert values_of(TEXT) == {ONE: {"sm": 72, "tensor": 32, "bandwidth": 100}}


@pytest.mark.parametrize(
    "value", ["NaN", "-0.1", "1.5", "+Inf", "x", "", "0.5.5", "0x1"], ids=lambda each: each or "empty"
)
def test_what_is_no_share_is_not_measured(value: str) -> None:
    assert values_of(f'DCGM_FI_PROF_SM_ACTIVE{{UUID="{ONE}"}} {value}\n') == {}


def read(exporter: Exporter, gpu: str = ONE) -> dict[str, int | None]:
    """What it says after the reading that a first question begins."""
    exporter.whole(gpu)
    if exporter._reader is not None:
        exporter._reader.join()
    return exporter.whole(gpu)


def test_one_answer_is_for_all_gpus_and_kept_for_a_moment(server: Saying) -> None:
    clock = Clock()
    exporter = an_exporter(server, clock)
    for gpu in (ONE, TWO, ONE):
        assert bool(read(exporter, gpu)) == (gpu == ONE)
    assert server.asked == 1
    clock.now += KEPT_S
    server.body = TEXT.replace("0.724", "0.1").encode()
    assert read(exporter)["sm"] == 10
    assert server.asked == 2


def test_nobody_waits_for_an_exporter_that_hangs_and_what_is_old_is_not_measured(server: Saying) -> None:
    clock = Clock()
    exporter = an_exporter(server, clock)
    assert read(exporter)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        exporter._parts = urlsplit(f"http://127.0.0.1:{silent.getsockname()[1]}/metrics")
        clock.now += KEPT_S
        began = monotonic()
        assert exporter.whole(ONE), "that of before"
        clock.now += FRESH_S
        assert exporter.whole(ONE) == {}
        assert monotonic() - began < LIMIT_S / 2
        assert exporter._reader is not None
        exporter._reader.join()
    assert exporter.whole(ONE) == {}


@pytest.mark.parametrize(
    ("status", "body"),
    [(500, b""), (200, b"\xff\xfe"), (200, b"x" * (MOST_BYTES + 1))],
    ids=["error", "no text", "too long"],
)
def test_a_bad_answer_is_not_measured_and_nothing_is_asked_for_a_while(
    server: Saying, status: int, body: bytes
) -> None:
    clock = Clock()
    exporter = an_exporter(server, clock)
    assert read(exporter)
    clock.now += KEPT_S
    server.status, server.body = status, body
    assert read(exporter) == {}
    server.status, server.body = 200, TEXT.encode()
    clock.now += AFTER_FAILURE_S - 1
    assert read(exporter) == {}
    clock.now += 1
    assert read(exporter)


def test_where_nothing_listens_nothing_is_measured() -> None:
    with Saying(("127.0.0.1", 0), Answers) as closed:
        address = f"http://127.0.0.1:{closed.server_address[1]}/metrics"
    assert read(Exporter(address)) == {}


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:9400",
        "https://127.0.0.1:9400/",
        "http://10.0.0.1:9400/metrics",
        "http://localhost/metrics",
        "",
    ],
)
def test_only_an_address_of_this_node_is_an_exporter(address: str) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        exporter_address(address)


def test_it_is_an_option_that_is_off() -> None:
    assert options_parse([], {}).dcgm_exporter is None
    address = "http://127.0.0.1:9400/metrics"
    assert options_parse([], {"GPU_AGENT_DCGM_EXPORTER": address}).dcgm_exporter == address
    with pytest.raises(SystemExit):
        options_parse(["--dcgm-exporter", "http://example.org:9400/"], {})


class Fixed(Exporter):
    """Says the same of each GPU."""

    def whole(self, gpu: str) -> dict[str, int | None]:
        return {"sm": 61, "tensor": 62, "bandwidth": 63}


@pytest.fixture(params=["a100", "h100"])
def simulated(request: pytest.FixtureRequest) -> Iterator[tuple[str, Simulated]]:
    with simulate(f"{request.param}:1") as found:
        yield request.param, found


def test_it_counts_on_cards_without_gpm_alone(simulated: tuple[str, Simulated]) -> None:
    card, found = simulated
    exporter = Fixed("http://127.0.0.1:1/metrics")
    found.port._measures = Measures(exporter)
    for _ in range(2):
        (reading,) = found.port.readings(found.gpu)
    measured = (reading.sm, reading.tensor, reading.bandwidth)
    assert (measured == (61, 62, 63)) == (card == "a100")
