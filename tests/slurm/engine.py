"""`gpu-agent --engine slurm` as a process of its own, restartable."""

from pathlib import Path

from tests.agent.engine_process import EngineProcess
from tests.agent.processes import Portal
from tests.slurm.cluster import OWNER, Cluster

MODELS = "h100=NVIDIA H100 80GB HBM3:81559"


def options_of(cluster: Cluster, state: Path, nodes: str) -> dict[str, str]:
    """What an engine of these nodes has in its environment; every member has the account `OWNER`."""
    hooks = state.parent / "hooks"
    hooks.mkdir(mode=0o755, exist_ok=True)
    login = hooks / "login"
    login.write_text(f"#!/bin/sh\necho {OWNER}\n")
    login.chmod(0o755)
    return {
        **cluster.environment,
        "GPU_AGENT_ENGINE": "slurm",
        "GPU_AGENT_NODES": nodes,
        "GPU_AGENT_GPU_MODELS": MODELS,
        "GPU_AGENT_HOOKS": str(hooks),
        "GPU_AGENT_SLURM_LOGS": str(cluster.logs),
    }


class Engine(EngineProcess):
    """The engine of some nodes. Every member of the portal has the account `OWNER`."""

    def __init__(
        self, portal: Portal, cluster: Cluster, state: Path, nodes: str = "n1", **options: str
    ) -> None:
        super().__init__(portal, state, {**options_of(cluster, state, nodes), **options})
