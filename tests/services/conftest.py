"""Fixtures of the services' tests."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.servers.servers import Servers

if TYPE_CHECKING:
    from tests.builders_allocation import Lab
    from tests.services.plant import Plant


@pytest.fixture
def lab(db: None) -> "Lab":
    """A lab and one GPU, in the test's own transaction."""
    from tests.builders_allocation import a_lab  # noqa: PLC0415 (settings are not there on import)

    return a_lab("helix")


@pytest.fixture
def plant(request: pytest.FixtureRequest, real_db: Servers, tmp_path: Path) -> Iterator["Plant"]:
    """A node of two GPUs, or as many as the parameter says, and its agent."""
    from tests.builders_allocation import a_model, a_policy, a_price_book  # noqa: PLC0415
    from tests.services.plant import a_plant  # noqa: PLC0415

    a_model(enrolled=False)
    a_policy()
    a_price_book()
    with a_plant(tmp_path, gpus=getattr(request, "param", 2)) as found:
        yield found


@pytest.fixture
def mixed_plant(real_db: Servers, tmp_path: Path) -> Iterator["Plant"]:
    """A node of two H100 and three L40S and its agent. There are no prices yet."""
    from allocation.models import GpuModel  # noqa: PLC0415
    from tests.builders import a_gpu_class, a_tier  # noqa: PLC0415
    from tests.builders_allocation import a_model, a_policy  # noqa: PLC0415
    from tests.roles import as_system  # noqa: PLC0415
    from tests.services.plant import a_plant  # noqa: PLC0415

    a_model(enrolled=False)
    l40s = a_gpu_class("l40s")
    with as_system():
        GpuModel.objects.create(slug="l40s", product_name="NVIDIA L40S", gpu_class=l40s, memory_mb=46_068)
    a_policy()
    a_tier()
    with a_plant(tmp_path, simulate="h100:2,l40s:3") as found:
        yield found
