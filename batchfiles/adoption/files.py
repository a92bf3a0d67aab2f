"""The text of a job file and a cluster file, as a person would write them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

import yaml

from batchfiles.adoption.asked import Keys

_WIDTH = 100
_CLUSTER_ORDER = (
    *("kind", "nodes", "request", "directives", "plugin_options", "time_limit_signal", "srun", "login_environment"),
    *("container", "network", "prologue"),
)
_JOB_ORDER = (
    *("name", "command", "command_per", "instances", "hosts", "time_limit", "time_min", "array", "hint", "directives"),
    "env",
)


def job_text(keys: Keys, source: str) -> str:
    """Return the job file. `source` is the batch file's name."""
    return "".join(f"{line}\n" for line in [f"# From {source}.", *_lines(keys.job, _JOB_ORDER, keys.comments)])


def cluster_text(keys: Keys, source: str) -> str:
    """Return the cluster file, with the places that the site has to fill in."""
    head = [
        f"# From {source}: the nodes that it asks for. Make it this site's own: count, cpus and memory_gb are a node's."
    ]
    end = ["# runs_dir: /shared/runs    # fill in: a folder that all nodes share, at the same path"]
    return "".join(f"{line}\n" for line in [*head, *_lines(keys.cluster, _CLUSTER_ORDER, keys.comments), *end])


def _lines(
    values: Mapping[str, object], order: tuple[str, ...], comments: Mapping[tuple[str, ...], str]
) -> Iterator[str]:
    for key in sorted(values, key=lambda name: order.index(name) if name in order else len(order)):
        value = values[key]
        yield from _commented(comments.get((key,), ""))
        if key == "prologue":
            yield from _prologue(value, comments)
        elif key == "command":
            yield from _command(value)
        elif isinstance(value, Mapping):
            yield from _mapping(key, value, comments)
        else:
            yield f"{key}: {_scalar(value, as_written=False, in_line=False)}"


def _commented(comment: str, indent: str = "") -> Iterator[str]:
    for line in comment.split("\n") if comment else ():
        yield f"{indent}# {line.lstrip('# ')}"


def _mapping(key: str, value: Mapping[str, object], comments: Mapping[tuple[str, ...], str]) -> Iterator[str]:
    is_env = key == "env"
    pairs = [f"{name}: {_scalar(one, as_written=is_env)}" for name, one in value.items()]
    flow = f"{key}: {{{', '.join(pairs)}}}"
    if len(pairs) <= 5 and len(flow) <= _WIDTH and not any((key, name) in comments for name in value):
        yield flow
        return
    yield f"{key}:"
    pairs = [f"{name}: {_scalar(one, as_written=is_env, in_line=False)}" for name, one in value.items()]
    for name, pair in zip(value, pairs, strict=True):
        comment = comments.get((key, name), "")
        if "\n" in comment or len(pair) + len(comment) > _WIDTH - 6:
            yield from _commented(comment, "  ")
            comment = ""
        note = f"  # {comment.lstrip('# ')}" if comment else ""
        yield f"  {pair}{note}"


def _prologue(lines: object, comments: Mapping[tuple[str, ...], str]) -> Iterator[str]:
    yield "prologue:"
    for number, line in enumerate(lines if isinstance(lines, list) else []):
        yield from _commented(comments.get(("prologue", str(number)), ""), "  ")
        yield from _item(str(line).rstrip("\n") + "\n")


def _item(text: str) -> Iterator[str]:
    lines = text.removesuffix("\n").split("\n")
    if len(lines) == 1:
        yield f"  - {_scalar(lines[0], in_line=False)}"
        return
    yield "  - |" + ("+" if not lines[-1] else "" if text.endswith("\n") else "-")
    for line in lines:
        yield f"    {line}" if line else ""


def _wrapped(text: str) -> str:
    """Return a text of shell, whose long last line goes on in others; options begin them."""
    before, newline, last = text.rpartition("\n")
    words = re.findall(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+""", last)
    if len(last) <= _WIDTH or " ".join(words) != last:
        return text
    lines = [words[0]]
    for at, word in enumerate(words[1:], 1):
        value = words[at + 1] if at + 1 < len(words) and word.startswith("-") else ""
        if len(lines[-1]) + len(word) + len(value) + 4 > _WIDTH - 8:
            lines.append(f"  {word}")
        else:
            lines[-1] += f" {word}"
    return before + newline + " \\\n".join(lines)


def _command(words: object) -> Iterator[str]:
    listed = [str(word) for word in words] if isinstance(words, list) else []
    if len(listed) > 2 and listed[:2] == ["bash", "-c"]:
        yield "command:"
        yield from ("  - bash", "  - -c", *_item(_wrapped(listed[2].replace("; exec ", "\nexec ")) + "\n"))
        return
    if any("\n" in word for word in listed):
        yield "command:"
        for word in listed:
            yield from _item(word)
        return
    shown = [_scalar(word) for word in listed]
    flow = f"command: [{', '.join(shown)}]"
    if len(flow) <= _WIDTH:
        yield flow
        return
    yield "command: ["
    line = " "
    for at, word in enumerate(shown):
        # An option begins a line when its value would not fit beside it.
        value = shown[at + 1] if at + 1 < len(shown) and listed[at].startswith("-") else ""
        if len(line) + len(word) + len(value) + 4 > _WIDTH and line.strip():
            yield line
            line = " "
        line += f" {word},"
    yield line
    yield "]"


def _scalar(value: object, *, as_written: bool = True, in_line: bool = True) -> str:
    """Return a value as YAML. `as_written`: its key takes numbers as text; `in_line`: it stands in brackets."""
    if isinstance(value, list):
        return f"[{', '.join(_scalar(one, as_written=False) for one in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) or (as_written and re.fullmatch(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?", str(value))):
        return str(value)
    if in_line:
        plain: str = yaml.safe_dump([value], default_flow_style=True, width=10**9, allow_unicode=True).strip()[1:-1]
    else:
        plain = yaml.safe_dump(value, width=10**9, allow_unicode=True).removesuffix("\n").removesuffix("\n...")
    is_quoted = plain.startswith("'") and '"' not in plain
    return json.dumps(value, ensure_ascii=False) if is_quoted or re.fullmatch(r"[0-9:-]*:[0-9:]*", plain) else plain
