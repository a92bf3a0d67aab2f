"""Optimizer and schedule: names and options that exist, on an engine that has them."""

from __future__ import annotations

from trainjob.cluster.job import Job
from trainjob.contract.errors import UserError
from trainjob.contract.optimizers import SEVERAL, optimizer_options, schedule_options
from trainjob.contract.tasks import TaskFacts
from trainjob.plan.engines import ENGINES
from trainjob.plan.rules import refuse

OPTIMIZER_EXISTS = "an optimizer is a built-in one or module:attribute, with options that it has"
SCHEDULE_EXISTS = "a schedule takes the options that it has"
IMPLEMENTED = "only torch's own optimizers have several implementations"
FUSED_STARTS = "torch's fused sgd takes parameters that all get their first gradient in one update"
FUSED = "a fused optimizer steps on whole parameters"
OPTIMIZER_FITS = "an optimizer is one that the engine has"


def check(job: Job, task: TaskFacts, engine: str) -> None:
    """Raise Broken for an optimizer, a schedule or an option that does not exist, or not on this engine."""
    optimizer, schedule = job.optimizer or task.optimizer, job.schedule or task.schedule
    try:
        optimizer_options(optimizer, job.optimizer_options, job.momentum)
    except UserError as error:
        refuse(OPTIMIZER_EXISTS, error.text, otherwise=f"{error.cure}.")
    try:
        schedule_options(schedule, job.schedule_options, job.warmup_updates)
    except UserError as error:
        refuse(SCHEDULE_EXISTS, error.text, otherwise=f"{error.cure}.")
    implementation = job.optimizer_implementation
    if implementation != "auto" and (optimizer not in SEVERAL or engine == "ipu"):
        found = f"optimizer is {optimizer}, engine is {engine}, optimizer_implementation is {implementation}"
        refuse(IMPLEMENTED, found, otherwise=f"Leave out --optimizer-implementation, or take {' or '.join(SEVERAL)}.")
    if implementation == "fused" and optimizer == "sgd" and job.allow_unused_parameters:
        found = "allow_unused_parameters is true"
        refuse(FUSED_STARTS, found, otherwise="Take --optimizer-implementation foreach, or --optimizer adamw.")
    if implementation == "fused" and ENGINES[engine].shards:
        refuse(FUSED, f"engine is {engine}", otherwise="Take --optimizer-implementation foreach.")
    able = ENGINES[engine].optimizers
    if able and optimizer not in able:
        found = f"engine {engine} has {', '.join(able)}, and optimizer is {optimizer}"
        refuse(OPTIMIZER_FITS, found, otherwise=f"Take --optimizer {' or '.join(able)}.")
