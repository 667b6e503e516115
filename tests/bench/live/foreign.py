"""Whether the time of an answer differs for a foreign object and for one that does not exist.

`python -m tests.bench.live.foreign --demo var/demo.json --times 2000` asks a running demo for
bookings of the other tenant and for random ids, in random order, over REST and on pages. It prints
both medians, and z of the Mann-Whitney test: beyond 3 in several runs it is not by chance.
"""

import argparse
import json
import math
import random
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx

NOT_FOUND = 404


def z_of(first: list[float], second: list[float]) -> float:
    """The standard score of the Mann-Whitney test; above zero if the first are larger."""
    ranked = sorted([(each, 0) for each in first] + [(each, 1) for each in second])
    total = sum(rank for rank, (_, group) in enumerate(ranked, start=1) if group == 0)
    n, m = len(first), len(second)
    u = total - n * (n + 1) / 2
    return (u - n * m / 2) / math.sqrt(n * m * (n + m + 1) / 12)


def compared(
    ask: Callable[[str], int], foreign: list[str], times: int, draw: random.Random
) -> dict[str, Any]:
    """Times both kinds, in pairs whose order is drawn."""
    took: dict[str, list[float]] = {"foreign": [], "missing": []}
    for at in range(times + 50):
        pair = [("foreign", draw.choice(foreign))]
        pair.append(("missing", f"bk_{UUID(int=draw.getrandbits(128), version=5).hex}"))
        draw.shuffle(pair)
        for kind, name in pair:
            began = time.perf_counter()
            status = ask(name)
            seconds = time.perf_counter() - began
            if status != NOT_FOUND:
                raise SystemExit(f"{kind} {name} got {status}")
            # The first ones warm up.
            if at >= 50:
                took[kind].append(seconds * 1000)
    medians = {kind: statistics.median(each) for kind, each in took.items()}
    return {
        "times": times,
        **{f"{kind}_ms": round(each, 3) for kind, each in medians.items()},
        "difference_ms": round(medians["foreign"] - medians["missing"], 3),
        "z": round(z_of(took["foreign"], took["missing"]), 2),
    }


def bookings_of(url: str, token: str) -> list[str]:
    """The ids of the bookings that the other tenant's person sees; one is made if there is none."""
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}) as rest:
        found = [each["id"] for each in rest.get("/api/v1/bookings").json()["items"]]
        if not found:
            project = rest.get("/api/v1/projects").json()["items"][0]["slug"]
            asked = {"project": project, "request": "1 h100 1h"}
            found = [rest.post("/api/v1/bookings", json=asked).json()["id"]]
    return found


def signed_in(url: str, username: str, password: str) -> httpx.Client:
    """A browser of the person."""
    browser = httpx.Client(base_url=url, timeout=60)
    page = browser.get("/sign-in").text
    mark = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    form = {"username": username, "password": password, "csrfmiddlewaretoken": mark and mark[1]}
    browser.post("/sign-in", data=form, headers={"Referer": f"{url}/sign-in"})
    return browser


def main() -> None:
    """Prints one line for each way of asking."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demo", type=Path, default=Path("var/demo.json"))
    parser.add_argument("--tenant", default="helix")
    parser.add_argument("--times", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    demo = json.loads(options.demo.read_text(encoding="utf-8"))
    url, draw = demo["url"], random.Random(options.seed)  # noqa: S311
    foreign = bookings_of(url, demo["tokens"]["other_tenant_researcher"])
    person = demo["passwords"]["researcher"]
    token = {"Authorization": f"Bearer {demo['tokens']['researcher']}"}
    browser = signed_in(url, person["username"], person["password"])
    with httpx.Client(base_url=url, headers=token, timeout=60) as rest:
        ways: dict[str, Callable[[str], int]] = {
            "REST": lambda name: rest.get(f"/api/v1/bookings/{name}").status_code,
            "page": lambda name: browser.get(f"/t/{options.tenant}/bookings/{name}").status_code,
        }
        for way, ask in ways.items():
            print(way, json.dumps(compared(ask, foreign, options.times, draw)), flush=True)  # noqa: T201
    browser.close()


if __name__ == "__main__":
    main()
