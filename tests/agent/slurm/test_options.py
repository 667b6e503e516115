"""The options of an engine, and what it must not be asked."""

from pathlib import Path

import pytest

from agent import __main__ as agent
from agent.engine.serving import Heartbeats
from agent.options import options_parse
from agent.slurm.commands import gres_text


def test_models_and_nodes_are_read() -> None:
    words = [
        "--engine",
        "slurm",
        "--nodes",
        "n[1-2]",
        "--gpu-models",
        "h100=NVIDIA H100 80GB HBM3:81559,*=X:1",
    ]
    options = options_parse(words, {})
    assert options.nodes == ["n1", "n2"]
    assert options.gpu_models == {"h100": ("NVIDIA H100 80GB HBM3", 81559), "*": ("X", 1)}
    assert gres_text(("h100", "a100", "h100")) == "gpu:h100:2,gpu:a100:1"
    assert gres_text(("", "")) == "gpu:2"


@pytest.mark.parametrize("text", ["h100", "h100=X", "h100=X:0", "=X:1", "h100=:1"])
def test_a_model_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(SystemExit):
        options_parse(["--gpu-models", text], {})


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--engine", "kubernetes"], "is for --engine slurm"),
        (["--engine", "slurm", "--nodes", "n1"], "leave out --nodes"),
    ],
)
def test_a_pool_is_of_slurm_and_of_the_whole_reservation(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options_parse([*words, "--granularity", "pool"], {})
    assert says in capsys.readouterr().err
    assert options_parse(["--engine", "slurm", "--granularity", "pool"], {}).granularity == "pool"


@pytest.mark.parametrize("option", [["--cgroup", "own"], ["--cdi", "/run/cdi"], ["--mps-units"]])
def test_what_needs_the_node_itself_is_refused(
    option: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert agent.main(["--engine", "slurm", "--state", str(tmp_path), *option], {}) == 1
    assert f"there is no {option[0]} with --engine slurm" in caplog.text


def test_the_engine_is_alive_while_all_nodes_turn() -> None:
    beaten: list[int] = []
    at = [0.0]
    beats = Heartbeats(lambda: beaten.append(1), lambda: at[0])
    first, second = beats.of("n1"), beats.of("n2")
    first()
    second()
    at[0] = 50.0
    first()
    assert len(beaten) == 2
    second()
    assert len(beaten) == 3
    # A node that has left is not waited for.
    at[0] = 99.0
    beats.drop("n2")
    first()
    second()
    assert len(beaten) == 5


def test_enrol_is_for_engines(capsys: pytest.CaptureFixture[str]) -> None:
    assert options_parse(["--engine", "slurm", "enroll"], {}).command == "enroll"
    with pytest.raises(SystemExit):
        options_parse(["enrol"], {})
    assert "enrol is for --engine" in capsys.readouterr().err
