"""Renders a chart by Helm's own engine and checks each object: `python chart.py CHART` reads values as
JSON and prints the objects. Runs in the environment of `make test-engines`, without the portal."""

import json
import sys

import kubernetes_validate
import yaml
from helm_python.chart import Chart, lint

VERSION = "1.32"


def main() -> None:
    """Exit status 1 and a sentence: the values are refused, or an object is invalid."""
    path, values = sys.argv[1], json.load(sys.stdin)
    said = [each for each in lint(path, values)["messages"] if each.get("severity") not in {"INFO", 1}]
    if said:
        sys.exit(f"lint: {said}")
    with Chart.load(path) as chart:
        chart.validate_schema(values)
        rendered = chart.render(values, name="portal", namespace="gpus")
    objects = [
        each
        for name, text in sorted(rendered.items())
        if not name.endswith(("NOTES.txt", ".tpl"))
        for each in yaml.safe_load_all(text)
        if each is not None
    ]
    for each in objects:
        kubernetes_validate.validate(each, VERSION, strict=True)
    sys.stdout.write(json.dumps(objects))


if __name__ == "__main__":
    main()
