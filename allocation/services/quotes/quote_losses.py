"""What an option is less than the ask: fewer GPUs, less memory, a tier that may be paused."""

from collections.abc import Iterator, Mapping

from allocation.rules.ask import AskDocument
from allocation.rules.ask.line.shape import profile_gigabytes
from allocation.solver import Option, Shape
from tenants.models import Tier

WHOLE_SHARE = 1_000


def losses(
    option: Option, asked: AskDocument, tiers: tuple[Tier, Tier], sizes: Mapping[str, int]
) -> Iterator[str]:
    """In words. `tiers` are the option's and the one that was asked for; `sizes` GB by class."""
    if option.count < asked.count:
        noun = "slice" if option.profile else "GPU"
        plural = "s" * (option.count != 1)
        yield f"{option.count} {noun}{plural} instead of {asked.count}"
    shape = option.profile if option.share is None else option.share
    least = min(_gigabytes(asked.shape, name, sizes) for name in asked.classes)
    memory = _gigabytes(shape, option.gpu_class, sizes)
    if memory < least:
        yield f"{memory:g} GB instead of {least:g} GB"
    offered, wanted = tiers
    if offered.pausable and not wanted.pausable:
        yield "may be paused"


def _gigabytes(shape: Shape, gpu_class: str, sizes: Mapping[str, int]) -> float:
    """The GPU memory of one device of the ask."""
    whole = sizes.get(gpu_class, 0)
    if isinstance(shape, str):
        return profile_gigabytes(shape) or whole
    return whole if shape is None else whole * shape / WHOLE_SHARE
