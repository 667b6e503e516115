"""Work without a GPU in a line: `16 cores 64 GB 4h`.

Cores belong to the GPUs of a request. Where a line names neither GPUs nor a class of them, its cores are
what it asks for, all of one node, and its memory is that of all cores together.
"""

from allocation.errors import AskError
from allocation.rules.ask.words.document import MAX_COUNT, MOST_SAID, count_of, host_resource_of
from allocation.rules.ask.words.names import gigabytes_of
from allocation.rules.ask.words.parsed import ClassEntry, Part, Repair
from allocation.rules.ask.words.reading import Reading
from tenants.platform.coded import coded

GPU_WORD = "gpu_word"
"""The value of a line that says `gpu`, whatever else it says."""
EACH = "memory_each"
"""The value of a line that says the memory of each."""
USUAL = "cpu"
_OF_GPUS = ("count", "any", "cheapest", "profile", "slice", "share", "workload", GPU_WORD)


def host_read(reading: Reading) -> bool:
    """Reads cores as what the line asks for, if they are; returns whether."""
    hosts = {entry.slug: entry for entry in reading.catalogue.hosts}
    named = reading.values.get("classes")
    if not isinstance(named, tuple):
        if not hosts or "cores" not in reading.values or any(each in reading.values for each in _OF_GPUS):
            return False
        named = (USUAL if USUAL in hosts else next(iter(hosts)),)
    if not any(slug in hosts for slug in named):
        return False
    if not all(slug in hosts for slug in named):
        span = reading.spans["classes"]
        choices = reading.replacements(span, *named)
        reading.add_problem("cores_or_gpus", coded("ask_cores_or_gpus"), span, choices)
        return False
    count = _count(reading)
    reading.values |= {"classes": named, "host": True}
    _memory(reading, hosts[named[0]], count)
    if count > 1 and "together" not in reading.values:
        reading.values |= {"together": "node", "required": True}
    return True


def _count(reading: Reading) -> int:
    """The number of cores, which stands as cores or as the count of a class of cores."""
    cores = reading.values.pop("cores", None)
    if not isinstance(cores, int):
        count = reading.values.get("count", 1)
        return count if isinstance(count, int) else 1
    span = reading.spans["cores"]
    if "count" in reading.values:
        reading.add_duplicate("number of cores", span, reading.spans.get("count"))
    try:
        count = count_of(cores)
    except AskError as error:
        most = error.alternatives[0]["count"]
        nearest = f"{most} core{'s' if most > 1 else ''}"
        reading.add_problem(error.code, error.text, span, reading.replacements(span, nearest))
        if not MAX_COUNT < cores <= MOST_SAID:
            return 1
        count = cores  # The rules of the organisation refuse it with their own numbers.
    reading.values["count"], reading.spans["count"] = count, span
    _say(reading, "cores", "count", f"{count} host core{'s' if count > 1 else ''}, without a GPU")
    return count


def _memory(reading: Reading, entry: ClassEntry, count: int) -> None:
    name = "memory" if "memory" in reading.values else "gigabytes"
    said = reading.values.get(name)
    amount = said if isinstance(said, int) else said[0] if isinstance(said, tuple) else None
    if amount is None:
        return
    if name == "gigabytes" and _is_ambiguous(reading, amount):
        return
    reading.values.pop("gigabytes", None)
    each = amount if EACH in reading.values else -(-amount // count)
    meaning = f"{each * count} GiB of host memory, {each} with each core"
    try:
        reading.values["memory"] = host_resource_of(each, "memory")
    except AskError as error:
        reading.add_problem(error.code, error.text, reading.spans[name])
    reading.spans["memory"] = reading.spans[name]
    _say(reading, name, "memory", meaning)


def _is_ambiguous(reading: Reading, gigabytes: int) -> bool:
    """Whether the memory is also that of a GPU: then the line has to say which one is meant."""
    if not any(gigabytes_of(each) == gigabytes for each in reading.catalogue.classes):
        return False
    span = reading.spans["gigabytes"]
    choices = [
        Repair(f"{gigabytes} GB host memory", reading.replaced(span, f"{gigabytes}gb ram")),
        Repair(f"a GPU with {gigabytes} GB", reading.replaced(span, f"any gpu {gigabytes}gb")),
    ]
    reading.add_problem("which_memory", coded("ask_which_memory", gigabytes=gigabytes), span, choices)
    return True


def _say(reading: Reading, name: str, field: str, meaning: str) -> None:
    """Gives the words of a field another meaning."""
    reading.parts = [
        Part(each.start, each.end, field, meaning) if each.field == name else each for each in reading.parts
    ]
