"""Faults of the directives: what sbatch reads, ignores, or refuses, and what this cluster does not have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

from batchfiles.bash.values import number
from batchfiles.rules.codes import Finding, Severity, found
from batchfiles.rules.refused import TAKES
from batchfiles.rules.started import tasks_without_starter
from batchfiles.slurm.launches import number_of
from batchfiles.slurm.script import BatchScript
from trainjob.cluster import slurm_text

_HOURS = ("12:00", "24:00", "36:00", "48:00", "72:00", "96:00")


def units(script: BatchScript) -> Iterator[Finding]:
    """Find figures whose unit is smaller than it looks, and logs whose names tell the opposite."""
    header = script.header
    if header.value("time") in _HOURS:
        yield Finding("time-in-minutes", header.line("time"), f"--time={header.value('time')} is minutes and seconds")
    limit_s, before_s = script.limit_s, number((header.value("signal") or "").partition("@")[2]) or 0
    if limit_s is not None and 0 < limit_s <= max(59, before_s):
        yield Finding("time-too-short", header.line("time"), f"--time={header.value('time')} is {limit_s} seconds")
    for name in ("mem", "mem-per-cpu", "mem-per-gpu"):
        megabytes = number(header.value(name))
        if megabytes is None or re.search(r"#.*(?:\bMB\b|(?i:megabyte))", script.lines[header.line(name) - 1][1:]):
            continue  # its author knows the unit
        if 0 < megabytes <= 1000:
            text, facts = f"--{name}={megabytes} is {megabytes} MB", {"directive": name, "megabytes": str(megabytes)}
            yield Finding("mem-in-megabytes", header.line(name), text, facts=facts)
    output, error = header.value("output") or "", header.value("error") or ""
    if output.endswith(".err") and re.search(r"\.(?:log|out)$", error):
        yield Finding("logs-swapped", header.line("output"), f"--output={output}, --error={error}")


def ignored(script: BatchScript) -> Iterator[Finding]:
    """Find lines that look like directives."""
    for one in script.header.ignored:
        if one.on_purpose:
            yield Finding("directive-commented", one.line, f'"{one.text.strip()[:60]}"')
        else:
            yield Finding("directive-ignored", one.line, f'"{one.text.strip()[:60]}" {one.why}')


_TEXTS = ("comment", "mail-user", "wrap", "dependency")


def not_expanded(script: BatchScript) -> Iterator[Finding]:
    """Find directives whose author relies on the shell."""
    for one in script.header.directives:
        value, facts = one.value or "", {"directive": one.name}
        if one.name in _TEXTS or one.name in TAKES:  # else it is refused
            continue
        if one.name == "job-name":
            if re.search(r"\$\w|\$\{|%[jaAxu]\b", value):
                text = f"--job-name={value} is taken as it is"
                yield Finding("tilde-in-output", one.line, text, Severity.WARNING, facts=facts)
        elif value.startswith("~") or re.search(r"\$(?:\{?\w|\()|`", value):
            yield Finding("tilde-in-output", one.line, f"--{one.name}={value}", facts=facts)


def left_to_the_site(script: BatchScript) -> Iterator[Finding]:
    """Find what the job does not ask for, and gets in a site's default size."""
    header, request = script.header, script.request
    meant = {name for one in header.ignored for name in one.meant}  # which directive-ignored tells
    stated = {one.name for one in header.directives} | meant
    if not script.is_batch_file:
        return
    if "time" not in stated:
        yield Finding("no-time", header.line(), "no --time")
    if not request.exclusive and not {"mem", "mem-per-cpu", "mem-per-gpu"} & stated:
        yield Finding("no-mem", header.line(), "no --mem, and not --exclusive")
    # Tasks that nothing starts are CPUs: some for each process where they outnumber the GPUs.
    ranks = [number_of(launch.layer("mpirun"), "n", "np") for launch in script.living]
    left = (tasks_without_starter(script) or 0) > (request.gpus_per_node or 1)
    has_spare = left or any(one and one < (request.tasks or 1) for one in ranks)
    has_cpus = request.exclusive or (has_spare and not request.several_nodes)
    if not has_cpus and not {"cpus-per-task", "cpus-per-gpu", "mincpus"} & stated:
        yield Finding("no-cpus", header.line(), "no --cpus-per-task, and not --exclusive")


def logs(script: BatchScript) -> Iterator[Finding]:
    """Find logs that can't be written, or are written over."""
    header, reported = script.header, False
    for name in ("output", "error"):
        path = header.value(name)
        if not path or path.startswith("/dev/") or path.lower() == "none":  # sbatch takes it for /dev/null
            continue
        folder = re.sub(r"^(?:\.\.?/)+(?=[^/]*$)|^(?:\./)+", "", path).rpartition("/")[0]
        if folder and not path.startswith(("/", "~", "$")) and not reported:
            reported = True
            yield Finding("log-folder-must-exist", header.line(name), f"{folder}/ must exist before sbatch")
        appends = (header.value("open-mode") or "").startswith("a")
        if not appends and not re.search(r"%\d*[jJAs]", path) and "$" not in path and name == "output":
            yield Finding("output-overwritten", header.line(name), f"{path} has no %j")
    if header.value("output") is None and (path := header.value("error")) and not re.search(r"%\d*[jJA]", path):
        yield Finding("output-overwritten", header.line("error"), f"{path} has no %j")


def requeue(script: BatchScript) -> Iterator[Finding]:
    """Find what a requeue lacks."""
    header = script.header
    asks = header.value("requeue") is not None
    if asks and not (header.value("open-mode") or "").startswith("a"):
        yield Finding("requeue-truncates-log", header.line("requeue"), "--requeue without --open-mode=append")
    if asks and header.value("signal") is None:
        yield Finding("requeue-without-signal", header.line("requeue"), "--requeue without --signal")


def nodes_by_name(script: BatchScript) -> Iterator[Finding]:
    """Find nodes that the job names."""
    header = script.header
    if header.value("exclude"):
        yield Finding("exclude-pinned", header.line("exclude"), f"--exclude={header.value('exclude')}")
    listed = header.value("nodelist")
    if not listed:
        return
    line = header.line("nodelist")
    yield Finding("nodelist-pinned", line, f"--nodelist={listed}")
    with suppress(slurm_text.HostlistError):
        # A name may stand in it twice, as in n[1-3,3].
        ranges = re.fullmatch(r"([\w.-]*)\[([\d,-]+)\]", listed)
        parts = [f"{ranges[1]}[{one}]" for one in ranges[2].split(",")] if ranges else [listed.rstrip(",")]
        named, nodes = len({name for part in parts for name in slurm_text.expand(part)}), script.request.nodes
        if nodes is not None and named > nodes:
            yield Finding("nodelist-longer-than-nodes", line, f"{named} nodes are named, and --nodes is {nodes}")


_TO_FILL_IN = re.compile(
    r"(?:your|my|the)?[_-]?(?:account|partition|qos|project|queue|email)(?:[_-]?(?:name|id|here))?|\{\s*[\w ]*\}?|<.*",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(
    (
        r"(?:<[\w .-]+>|.*\b(?:change_?(?:this|me)|fill_?me|todo|fixme|xyz-cluster)\b.*|"
        r"your[_-]\S+|\S*[_/-]your[_-]?\S*|/path/to/\S*|\S*x{4,}\S*|\[\w+\])"
    ),
    re.IGNORECASE,
)


def placeholders(script: BatchScript) -> Iterator[Finding]:
    """Find values that still have to be filled in."""
    for directive in script.header.directives:
        value = directive.value or ""
        is_name = directive.name in ("account", "partition", "qos", "mail-user") and _TO_FILL_IN.fullmatch(value)
        if is_name or _PLACEHOLDER.fullmatch(value):
            yield Finding("placeholders", directive.line, f"--{directive.name}={directive.value}")
    for line, text in script.placeholders:
        yield Finding("placeholders", line, text[:60])
    for one in script.assignments:
        if one.value.fixed and _PLACEHOLDER.fullmatch(one.value.text) and one.array is None and "$" not in one.text:
            yield found("placeholders", one, one.text[:60])


def old_or_loose(script: BatchScript) -> Iterator[Finding]:
    """Find what is started in an old way, or takes over the submitting shell."""
    if script.header.value("export") == "ALL":
        yield Finding("export-all", script.header.line("export"), "--export=ALL")
    for launch in script.launches:
        if any(layer.name == "old-launcher" for layer in launch.layers):
            yield found("old-launcher", launch, "python -m torch.distributed.launch")


def kept_from_steps(script: BatchScript) -> Iterator[Finding]:
    """Find exports that don't reach the ranks, as srun inherits the --export of sbatch."""
    names = (script.header.value("export") or "ALL").split(",")
    passes_on = "ALL" in names or any(one.name == "SLURM_EXPORT_ENV" for one in script.assignments)
    if passes_on or re.search(r"\bunset\b.*\bSLURM_EXPORT_ENV\b", script.code):
        return
    for launch in script.living:
        exported = (one for one in script.assignments if one.exported and one.line < launch.line and not one.within)
        lost = next((one.name for one in exported if one.name not in names), None)
        if launch.srun is not None and "export" not in launch.srun.options and lost is not None:
            text = f"--export={','.join(names)} is srun's, too: its ranks don't get {lost}"
            yield found("exports-kept-back", launch.step, text)
            return


def beyond_cluster(script: BatchScript) -> Iterator[Finding]:
    """Find figures of the request that exceed the cluster's."""
    header, request, site = script.header, script.request, script.site
    figures = (
        (("nodes",), request.nodes, site.max_nodes, "nodes a job"),
        (("gpus-per-node", "gres", "gpus"), request.gpus_per_node, site.accelerators or None, "GPUs a node"),
        (("cpus-per-task",), (request.cpus_per_task or 0) * (request.tasks_per_node or 1), site.cpus, "CPUs a node"),
    )
    for names, asked, most, what in figures:
        if asked is not None and most is not None and asked > most:
            yield Finding("beyond-cluster", header.line(*names), f"{asked} {what}, and the cluster has {most}")
    for name in site.required:
        if header.directives and header.value(name) is None:
            yield Finding("beyond-cluster", header.line(), f"this cluster requires --{name}")
    asked_s = script.limit_s
    if site.max_time_s is not None and asked_s is not None and asked_s > site.max_time_s:
        yield Finding(
            "beyond-cluster",
            header.line("time"),
            f"--time={header.value('time')}, and the cluster allows {site.max_time_s // 60} minutes",
        )
