"""The operation that creates all tables of an app."""

from collections import Counter

import pytest
from django.db import models
from django.db.migrations import CreateModel
from django.db.migrations.state import ModelState, ProjectState, StateApps

from tenants.platform.tables import CreateTables


def test_models_with_relations_are_rendered_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: Counter[str] = Counter()
    render = ModelState.render

    def counted(model: ModelState, apps: StateApps) -> object:
        rendered[model.name] += 1
        return render(model, apps)

    monkeypatch.setattr(ModelState, "render", counted)
    state = ProjectState()
    # As during `migrate`, which has rendered the apps before.
    assert list(state.apps.get_models()) == []

    CreateTables(
        CreateModel("Owner", [("id", models.BigAutoField(primary_key=True))]),
        *(
            CreateModel(
                name,
                [
                    ("id", models.BigAutoField(primary_key=True)),
                    ("owner", models.ForeignKey("tenants.Owner", models.PROTECT)),
                ],
            )
            for name in ("House", "Garden")
        ),
    ).state_forwards("tenants", state)

    assert {model.__name__ for model in state.apps.get_models()} == {"Owner", "House", "Garden"}
    assert rendered == {"Owner": 1, "House": 1, "Garden": 1}
