"""trainjob list and status: the states of runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from trainjob.cli.command import AsJson, RunNames, RunOrLast, cluster_option, command, commands, fail_unless, finite
from trainjob.contract import clock
from trainjob.watch import show

if TYPE_CHECKING:
    from trainjob.contract.errors import UserError
    from trainjob.observe.earlier import EarlierRuns
    from trainjob.observe.outlook import Outlook
    from trainjob.observe.status import Snapshot

# Seconds that answers about runs may take before what is known without them is shown.
_PATIENCE_S = 1.0
app = commands()


@command(app, "trainjob list", "trainjob list --state FAILED")
def list_command(
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Only this many of the newest runs.")
    ] = None,
    state: Annotated[str | None, typer.Option(help="Only runs in this state.")] = None,
    cluster: Annotated[str | None, cluster_option("Only runs on this cluster.")] = None,
    name: Annotated[str | None, typer.Option(help="Only jobs of this name, which may contain * and ?.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Only runs submitted since: 12h, 2d, 2026-11-20.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the runs, newest last."""
    from datetime import UTC, datetime

    from trainjob.contract.states import ALL
    from trainjob.observe import notify
    from trainjob.observe.listing import Choice, listed_at_once, time_of
    from trainjob.planning.words import quantity

    if state is not None and state.upper() not in ALL:
        raise typer.BadParameter(f"--state {state}: states are {', '.join(ALL)}")
    earliest = None if since is None else time_of(since, datetime.fromtimestamp(clock.time(), UTC))
    notify.start_if_needed()
    choice = Choice(state.upper() if state else None, cluster, name, earliest, limit)
    shown: dict[str, tuple[str, ...]] = {}
    foreign: list[UserError] = []
    for chosen, is_answered in listed_at_once(choice, _PATIENCE_S, foreign):
        if is_answered:
            for note in dict.fromkeys(one.note for one in chosen if one.is_stale):
                show.warning(f"{note}")
            for error in foreign:
                show.warning(f"not listed: {error.text}")
        elif as_json:
            continue
        if as_json:
            show.as_json([one.as_json() for one in chosen])
        elif not chosen and is_answered:
            typer.echo("no runs: `trainjob submit --cluster local --instances 2 --follow` starts one")
        else:
            rows: dict[str, tuple[str, ...]] = {
                one.id: (
                    *(one.id, one.state, one.cluster or "-", str(one.attempt), str(one.update or "-")),
                    show.age(one.submitted_at) or "-",
                    f"damaged: {one.damage[0]}" if one.damage else "",
                )
                for one in chosen
            }
            # After what is known, what the answers change.
            changed = [row for run, row in rows.items() if shown.get(run) != row]
            if changed:
                show.table(("RUN", "STATE", "CLUSTER", "ATTEMPT", "UPDATE", "AGE", ""), changed)
            shown = rows
        if not is_answered:
            unsure = sum(one.is_stale for one in chosen)
            show.progress(f"… this is what is known here; asking where {quantity(unsure, 'run')} may have gone on")


@command(app, "trainjob status last", "trainjob status k3xq --json")
def status(run: RunOrLast = "last", as_json: AsJson = False) -> None:
    """Show the state of a run."""
    from trainjob.observe import index, notify
    from trainjob.observe.status import status as found

    notify.start_if_needed()
    now = found(index.find(run))
    earlier = _earlier_runs(now)
    if as_json:
        from trainjob.records.typed import to_json

        show.as_json({**now.as_json(), "earlier_runs": None if earlier is None else to_json(earlier)})
        return
    # A note may begin with the state, in words.
    note = (now.note or "").removeprefix(f"{now.state.lower()}: ")
    typer.echo(f"{now.id} · {show.state(now.state)}{f' ({note})' if note else ''}")
    show.rows([*_rows(now), *([] if earlier is None else [("earlier runs", str(earlier))])])
    if now.elements:
        typer.echo()
        # The first line says once for all of them why they can't be asked about.
        body = (
            (one.id, one.state, str(one.attempt), str(one.update or "-"), "" if one.is_stale else one.note or "")
            for one in now.elements
        )
        show.table(("ELEMENT", "STATE", "ATTEMPT", "UPDATE", ""), body)
    print_failure(now)


@command(app, "trainjob wait last", "trainjob wait k3xq 7hea --timeout-s 3600")
def wait(
    runs: RunNames,
    timeout_s: Annotated[
        float | None,
        typer.Option(min=0, callback=finite, help="Give up after so many seconds; the runs continue."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Wait until runs have ended; the exit code is 0 if all of them are COMPLETED."""
    from trainjob.contract import states
    from trainjob.observe import index
    from trainjob.observe.status import poll

    deadline = math.inf if timeout_s is None else clock.monotonic() + timeout_s

    def has_ended(now: Snapshot) -> bool:
        return now.state not in states.ACTIVE or clock.monotonic() >= deadline

    def pause(between_s: float) -> None:
        clock.sleep(min(between_s, max(0.0, deadline - clock.monotonic())))

    ended = [poll(paths, has_ended, pause) for paths in [index.find(run) for run in runs]]
    if as_json:
        show.as_json([one.as_json() for one in ended])
    else:
        for one in ended:
            typer.echo(f"{one.id} · {show.state(one.state)}{f' ({one.note})' if one.note else ''}")
    fail_unless(all(one.state == states.COMPLETED for one in ended))


def _earlier_runs(now: Snapshot) -> EarlierRuns | None:
    """Return how long the job of a run that has not ended took before."""
    from trainjob.contract import states
    from trainjob.contract.errors import UserError
    from trainjob.observe.earlier import earlier_runs
    from trainjob.records import job

    if now.elements or now.state not in states.ACTIVE:
        return None
    with suppress(UserError):  # a damaged record is among the rows
        return earlier_runs(job.read(now.paths.job), but=now.id)
    return None


def _rows(now: Snapshot) -> Iterator[tuple[str, str]]:
    yield "cluster", now.cluster or "by hand"
    ago = show.age(now.submitted_at)
    yield "submitted", f"{ago} ago, {now.submitted_at}" if ago else now.submitted_at or "by hand"
    if now.scheduler:
        yield "scheduler", " · ".join(f"{key.replace('_', ' ')} {value}" for key, value in now.scheduler.items())
    yield "attempt", str(now.attempt)
    if now.progress is not None:
        yield "progress", now.progress
    if now.heartbeat is not None:
        yield "last progress", f"{show.seconds(max(0.0, clock.time() - now.heartbeat))} ago"
    for line in now.printed:
        yield "as printed", line
    for name, server in now.roles.items():
        starts = f", start {server.starts}" if server.starts > 1 else ""
        code = f" with exit code {server.exit_code}" if server.exit_code is not None else ""
        older = f", in attempt {server.attempt}" if server.attempt != now.attempt else ""
        yield f"role {name}", f"{server.state}{code} at {server.address}{starts}{older}"
    if now.outlook is not None:
        yield from outlook_rows(now.outlook)
    for excluded in now.excluded_nodes:
        yield "excluded node", f"{excluded['node']}, since attempt {excluded['attempt']}: {excluded['why']}"
    for retry in now.retries:
        what = "memory" if retry["what"] == "mem" else "time"
        yield "asks for more", f"{retry['option']}, since attempt {retry['attempt']} ran out of {what}"
    if now.at_risk:
        yield "trouble", now.at_risk
    for line in now.checkpoint_lines:
        yield "checkpoints", line
    for line in now.damage:
        yield "damaged", line
    if now.exit_code is not None:
        yield "exit code", str(now.exit_code)
    yield "run directory", now.folder


def outlook_rows(outlook: Outlook) -> Iterator[tuple[str, str]]:
    """Yield the pace of a run, when it should end, and whether its time limit comes first."""
    pace = f"{1000 * outlook.update_s:.3g} ms" if outlook.update_s < 1 else show.seconds(outlook.update_s)
    yield "pace", f"{pace} an update"
    if outlook.left_s is not None:
        yield "expected end", f"in {show.seconds(outlook.left_s)}" if outlook.left_s >= 1 else "any moment"
    if outlook.more_attempts and outlook.limit_left_s is not None:
        more = "another attempt" if outlook.more_attempts == 1 else f"{outlook.more_attempts} more attempts"
        limit = show.seconds(outlook.limit_left_s)
        yield "WARNING", f"its time limit comes first, in {limit}: it needs about {more}"


def print_failure(now: Snapshot, *, is_output_shown: bool = False) -> None:
    """Print why the run ended, and the last lines of the rank that failed first, else of the job script.

    With `is_output_shown` those lines stand above already, so only the one that says most is repeated.
    """
    failed = now.failure
    if now.cause is not None:
        typer.echo(f"\n{show.painted('why', 'bold')}: {now.cause}")
    if failed is not None:
        lines = "Its last lines:" if failed.last_line else "It printed nothing."
        if failed.last_line and is_output_shown:
            is_told = failed.last_line in str(now.cause)
            lines = "" if is_told else f"Its last line: {failed.last_line}"
        typer.echo(f"\n{failed.how}. {lines}".rstrip())
        if is_output_shown:
            return
    elif now.script_tail:
        typer.echo("\nno failing rank is known. The last lines of the job script:")
    for line in failed.tail if failed else now.script_tail:
        typer.echo(f"  | {line}")
