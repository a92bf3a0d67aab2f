"""The text of a job file and a cluster file, as a person would write them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from batchfiles.adoption.asked import Keys
from trainjob.cluster.writing import comment as commented
from trainjob.cluster.writing import item, read_back, scalar

_WIDTH = 100
# Shell in which a blank may be anything else than the end of a word.
_NESTED = re.compile(r"""[$<>]\(|\$\{|\$'|`|<<|(?:^|\s)#""")
_CLUSTER_ORDER = (
    *("kind", "nodes", "request", "directives", "plugin_options", "time_limit_signal", "srun", "login_environment"),
    *("container", "network", "prologue"),
)
_ROLE_ORDER = ("hosts", "gpus", "ray", "command", "command_per", "instances", "ready", "needs", "env")
_JOB_ORDER = (
    *(
        "name",
        "command",
        "roles",
        "command_per",
        "instances",
        "hosts",
        "time_limit",
        "time_min",
        "array",
        "hint",
        "directives",
    ),
    "env",
)


def job_text(keys: Keys, source: str) -> str:
    """Return the job file. `source` is the batch file's name. Raises UnwritableError."""
    job = dict(keys.job)
    if isinstance(words := job.get("command"), list):
        job["command"] = _laid_out([str(word) for word in words])
    if isinstance(roles := job.get("roles"), dict):
        job["roles"] = {
            name: {**role, "command": _laid_out([str(word) for word in role["command"]])}
            for name, role in roles.items()
        }
    return read_back([*commented(f"From {source}."), *_lines(job, _JOB_ORDER, keys.comments)], job)


def cluster_text(keys: Keys, source: str) -> str:
    """Return the cluster file, with the places that the site has to fill in. Raises UnwritableError."""
    cluster = dict(keys.cluster)
    if isinstance(lines := cluster.get("prologue"), list):
        cluster["prologue"] = [_as_block(str(line).rstrip("\n")) for line in lines]
    head = commented(
        f"From {source}: the nodes that it asks for. Make it this site's own: count, cpus and memory_gb are a node's."
    )
    end = "# runs_dir: /shared/runs    # fill in: a folder that all nodes share, at the same path"
    return read_back([*head, *_lines(cluster, _CLUSTER_ORDER, keys.comments), end], cluster)


def _lines(
    values: Mapping[str, object],
    order: tuple[str, ...],
    comments: Mapping[tuple[str, ...], str],
    *,
    in_role: bool = False,
) -> Iterator[str]:
    for key in sorted(values, key=lambda name: order.index(name) if name in order else len(order)):
        value = values[key]
        yield from commented(comments.get((key,), ""))
        if key == "prologue":
            yield from _prologue(value, comments)
        elif key == "command":
            yield from _command(value, as_written=not in_role)
        elif key == "roles" and isinstance(value, Mapping):
            yield "roles:"
            for name, role in value.items():
                yield f"  {name}:"
                yield from (f"    {line}" if line else "" for line in _lines(role, _ROLE_ORDER, {}, in_role=True))
        elif isinstance(value, Mapping):
            yield from _mapping(key, value, comments)
        else:
            yield f"{key}: {_value(value, in_line=False)}"


def _mapping(key: str, value: Mapping[str, object], comments: Mapping[tuple[str, ...], str]) -> Iterator[str]:
    is_env = key == "env"
    pairs = [f"{scalar(name)}: {_value(one, as_written=is_env)}" for name, one in value.items()]
    flow = f"{key}: {{{', '.join(pairs)}}}"
    if len(pairs) <= 5 and len(flow) <= _WIDTH and not any((key, name) in comments for name in value):
        yield flow
        return
    yield f"{key}:"
    pairs = [f"{scalar(name)}: {_value(one, as_written=is_env, in_line=False)}" for name, one in value.items()]
    for name, pair in zip(value, pairs, strict=True):
        comment = comments.get((key, name), "")
        if "\n" in comment or len(pair) + len(comment) > _WIDTH - 6:
            yield from commented(comment, "  ")
            comment = ""
        yield "  ".join((f"  {pair}", *commented(comment)))


def _prologue(lines: object, comments: Mapping[tuple[str, ...], str]) -> Iterator[str]:
    yield "prologue:"
    for number, line in enumerate(lines if isinstance(lines, list) else []):
        yield from commented(comments.get(("prologue", str(number)), ""), "  ")
        yield from item(line)


def _as_block(text: str) -> str:
    return f"{text}\n" if "\n" in text else text


def _laid_out(words: list[str]) -> list[str]:
    if words[:2] != ["bash", "-c"]:
        return words
    return [*words[:2], *(_as_block(_wrapped(text)) for text in words[2:3]), *words[3:]]


def _wrapped(text: str) -> str:
    """Return a text of shell, whose long last line goes on in others; options begin them."""
    before, newline, last = text.rpartition("\n")
    words = re.findall(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+""", last)
    if len(last) <= _WIDTH or " ".join(words) != last or _NESTED.search(last):
        return text
    return before + newline + " \\\n  ".join(_filled(words, _WIDTH - 12))


def _filled(words: list[str], width: int) -> list[str]:
    """Return words in lines; an option begins one when its value would not fit beside it."""
    lines: list[str] = []
    for at, word in enumerate(words):
        value = words[at + 1] if at + 1 < len(words) and word.startswith("-") else ""
        if lines and len(f"{lines[-1]} {word} {value}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _command(words: object, *, as_written: bool) -> Iterator[str]:
    listed = words if isinstance(words, list) else []
    if listed[:2] == ["bash", "-c"] or any("\n" in word for word in listed):
        yield "command:"
        for word in listed:
            yield from item(word)
        return
    shown = [_value(word, as_written=as_written) for word in listed]
    flow = f"command: [{', '.join(shown)}]"
    if len(flow) <= _WIDTH:
        yield flow
        return
    yield "command: ["
    yield from (f"  {line}" for line in _filled([f"{word}," for word in shown], _WIDTH - 2))
    yield "]"


def _value(value: object, *, as_written: bool = False, in_line: bool = True) -> str:
    """Return a value as YAML. `as_written`: its key takes numbers as text; `in_line`: it stands in brackets."""
    if isinstance(value, list):
        return f"[{', '.join(_value(one) for one in value)}]"
    if as_written and re.fullmatch(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?", str(value)):
        return str(value)
    text = scalar(value, in_line=in_line)
    # 1e-6 is a text to a key that takes text, and elsewhere a figure.
    return (
        f'"{text}"' if isinstance(value, str) and text == value and re.fullmatch(r"[-+.\d][-+.\d_eE]*", text) else text
    )
