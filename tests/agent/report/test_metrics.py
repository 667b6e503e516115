"""Metrics for Prometheus: the format, no unknown value as zero, and only when enabled."""

import math
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.options import options_parse
from agent.report.metrics import MetricsBoard, address_parse, metrics_serve
from devtools.simulated.programs import SimulatedUsers
from tests.agent.builders import a_document, a_rig, a_slice, a_whole
from wire.exposition import Metric, Value, exposition

_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"(?:,|$)')
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


def parsed(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """As Prometheus reads it, strictly."""
    assert not text or text.endswith("\n")
    found = {}
    typed: set[str] = set()
    for line in text.split("\n")[:-1]:
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in typed, "a name in two blocks"
            assert (kind == "counter") == name.endswith("_total")
            typed.add(name)
            if kind == "histogram":
                typed |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"}
        elif not line.startswith("# HELP "):
            match = _LINE.fullmatch(line)
            assert match, line
            name, inside, number = match.groups()
            assert name in typed
            assert "".join(m.group(0) for m in _LABEL.finditer(inside or "")) == (inside or "")
            labels = tuple(
                (m.group(1), re.sub(r"\\.", lambda e: _ESCAPES[e.group(0)], m.group(2)))
                for m in _LABEL.finditer(inside or "")
            )
            assert (name, labels) not in found
            found[name, labels] = float(number)
    return found


@pytest.mark.turn
@given(
    st.dictionaries(
        st.sampled_from(["a", "le", "node_1"]), st.text('"\\\n{}=, #é\tx', max_size=8), max_size=3
    ),
    st.floats() | st.integers(-(10**15), 10**15),
)
def test_any_label_and_number_comes_out_as_it_went_in(labels: dict[str, str], number: float) -> None:
    reported = parsed(exposition([Metric("m", "gauge", "a\nb \\ c", (Value(number, labels),))]))
    if not math.isfinite(number):
        assert reported == {}
    else:
        assert reported == {("m", tuple(sorted(labels.items()))): number}


def test_what_is_unknown_is_left_out_and_never_zero() -> None:
    assert exposition([Metric("m", "gauge", "x", (Value(None), Value(math.nan)))]) == ""
    assert parsed(exposition([Metric("m", "gauge", "x", (Value(0),))])) == {("m", ()): 0}


def test_the_agent_tells_its_gpus_and_its_own_state(tmp_path: Path) -> None:
    with a_rig(tmp_path, owners=lambda hardware: (SimulatedUsers(hardware),)) as rig:
        board = MetricsBoard("node-1")
        object.__setattr__(rig.node, "board", board)
        before = parsed(board.text())
        first, second = (gpu.uuid for gpu in rig.hardware.gpus)
        rig.desire(a_document({first: [a_slice()], second: [a_whole()]}))
        rig.later(30)
        rig.later(30)
        reported = parsed(board.text())

    assert [name for name, _ in before] == ["gpu_agent_info"]
    assert reported["gpu_agent_allocations", (("state", "ready"),)] == 2
    assert reported["gpu_agent_gpus_silent", ()] == 0
    assert ("gpu_agent_gpu_utilisation_percent", (("gpu", second), ("slot", ""))) in reported
    assert reported["gpu_agent_gpu_memory_used_mib", (("gpu", second), ("slot", ""))] > 0
    assert ("gpu_agent_gpu_power_milliwatts", (("gpu", first), ("slot", "0"))) not in reported
    # A sliced GPU reports no utilisation as a whole.
    assert ("gpu_agent_gpu_utilisation_percent", (("gpu", first), ("slot", ""))) not in reported
    assert not any("BK-" in str(key) or "biology" in str(key) for key in reported)


def test_it_is_served_on_its_address_until_the_agent_stops() -> None:
    port, stop = metrics_serve(MetricsBoard("node-1"), ("127.0.0.1", 0))
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert 'node="node-1"' in answer.read().decode()
        with pytest.raises(urllib.error.HTTPError) as missing:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/else")
        missing.value.close()
        assert missing.value.code == 404
    finally:
        stop()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics")


def test_it_is_off_unless_an_address_is_given() -> None:
    assert options_parse([], {}).metrics is None
    assert options_parse(["--metrics", "127.0.0.1:9835"], {}).metrics == ("127.0.0.1", 9835)
    assert options_parse([], {"GPU_AGENT_METRICS": "[::1]:9835"}).metrics == ("::1", 9835)


@pytest.mark.parametrize("wrong", ["9835", ":9835", "localhost:", "localhost:99999", "a:b"])
def test_an_address_that_is_none_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="write the address"):
        address_parse(wrong)
