"""The shipped catalogue: complete, free of contradictions, and true of the simulated drivers."""

from decimal import Decimal

from allocation.rules.site.known_models import known_catalogue
from devtools.simulated.models import models_load
from solver.fleet.mig_geometry import geometry_of
from solver.model.inputs import Model, Placement
from tenants.services import TierTerms
from tenants.services.platform import LIMITS

CATALOGUE = known_catalogue()
REQUIRED = (
    *("A100-SXM4-80GB", "A100-SXM4-40GB", "A100 80GB PCIe", "A100-PCIE-40GB", "A30"),
    *("H100 80GB HBM3", "H100 PCIe", "H100 NVL", "H200", "H200 NVL", "B200", "GH200 480GB"),
    *("L4", "L40", "L40S", "RTX 6000 Ada Generation"),
    "RTX PRO 6000 Blackwell Server Edition",
)


def test_the_models_of_data_centres_are_there_each_under_one_name_and_id() -> None:
    assert all(CATALOGUE.by_name(f"NVIDIA {name}") for name in REQUIRED)
    names = [name for model in CATALOGUE.models.values() for name in model.names]
    ids = [pci for model in CATALOGUE.models.values() for pci in model.pci]
    assert len(names) == len(set(names))
    assert len(ids) == len(set(ids))
    assert all(len(pci) == 4 and int(pci, 16) for pci in ids)
    assert CATALOGUE.by_name("NVIDIA Nothing") is None


def test_an_id_is_that_of_a_model_only_with_about_its_memory_and_of_its_maker() -> None:
    l40s = CATALOGUE.models["l40s"]
    # With error correction off the same board has a sixteenth more.
    for memory_mb, found in ((46_068, l40s), (49_140, l40s), (24_576, None), (98_304, None)):
        assert CATALOGUE.by_device("10de:26b9", memory_mb) is found
    for nobody in ("1002:26b9", "10de:ffff", "26b9", ""):
        assert CATALOGUE.by_device(nobody, 46_068) is None


def test_every_geometry_can_be_built_and_its_names_say_its_compute_slices() -> None:
    for model in CATALOGUE.models.values():
        if model.names[0].startswith("AMD"):
            continue
        slots = max((start + p.size for p in model.profiles for start in p.starts), default=0)
        for profile in model.profiles:
            assert profile.name.startswith(f"{profile.compute}g."), (model.slug, profile)
            assert len(profile.starts) * profile.size <= slots
            assert profile.limit <= len(profile.starts)
        full = [profile for profile in model.profiles if profile.size == slots]
        assert len(full) == bool(model.profiles)


def test_the_expected_geometry_is_that_of_the_simulated_drivers() -> None:
    for simulated in models_load().values():
        known = CATALOGUE.by_name(simulated.name)
        assert known is not None
        assert known.memory_mb == simulated.memory_mb
        on_board = known if simulated.pci else None
        assert CATALOGUE.by_device(f"10de:{simulated.pci}", simulated.memory_mb) is on_board
        assert known.mode_switch == {"none": "online"}.get(simulated.mode_switch, simulated.mode_switch)
        assert known.nvlinks == simulated.nvlinks
        assert {(p.name, p.compute, p.size, p.starts, p.limit) for p in known.profiles} == {
            (p.name, p.compute, p.size, p.starts, p.max) for p in simulated.profiles
        }


def test_the_partitions_of_amd_are_slices_of_one_kind_that_are_the_gpu_together() -> None:
    (simulated,) = (each for each in models_load("models_amd.json").values() if each.profiles)
    kinds = {"dpx": 2, "qpx": 4, "cpx": 8}
    for kind, count in kinds.items():
        known = CATALOGUE.by_name(f"{simulated.name} ({kind.upper()})")
        assert known is not None
        (profile,) = known.profiles
        assert known.memory_mb == simulated.memory_mb
        assert (profile.name, profile.compute, profile.size, profile.starts, profile.limit) == next(
            (each.name, each.compute, each.size, each.starts, each.max)
            for each in simulated.profiles
            if each.name.startswith(kind)
        )
        places = tuple(
            Placement(profile.name, start, profile.size, profile.compute, count, profile.limit)
            for start in profile.starts
        )
        geometry = geometry_of(Model(known.slug, 8, 8, "online", places))
        assert geometry.capacity(profile.name)[0] == count
        assert geometry.units(profile.name) * count == geometry.units(None)
    whole = CATALOGUE.by_name(simulated.name)
    assert whole is not None
    assert not whole.profiles
    assert {CATALOGUE.models[f"mi300x-{kind}"].gpu_class for kind in kinds} == {whole.gpu_class}


def test_tiers_fit_the_services_limits_and_prices_follow_them() -> None:
    for tier in CATALOGUE.tiers.values():
        terms = TierTerms(**tier.terms)
        for field, (low, high, _) in LIMITS.items():
            value = getattr(terms, field)
            assert value is None or low <= value <= high
    a100 = CATALOGUE.models["a100-80gb"]
    assert CATALOGUE.price(a100, "spot") == Decimal("0.74")
    assert CATALOGUE.price(a100, "a-tier-of-our-own") == a100.price
    same_class = [m.gpu_class for m in CATALOGUE.models.values() if m.gpu_class == "rtx-pro-6000"]
    assert len(same_class) == 2
