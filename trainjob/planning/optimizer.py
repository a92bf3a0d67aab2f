"""Optimizer and schedule: their names and options exist, and the engine supports them."""

from __future__ import annotations

from trainjob.cluster.job import Job
from trainjob.contract.errors import UserError
from trainjob.contract.optimizers import SEVERAL, optimizer_options, schedule_options
from trainjob.contract.tasks import TaskFacts
from trainjob.planning.engines import ENGINES
from trainjob.planning.rules import refuse

OPTIMIZER_EXISTS = "an optimizer is a built-in one or module:attribute, with options that it takes"
SCHEDULE_EXISTS = "a schedule is given only options that it takes"
IMPLEMENTED = "only torch's own optimizers have several implementations"
FUSED_STARTS = "torch's fused sgd takes parameters that all get their first gradient in one update"
FUSED = "a fused optimizer steps on whole parameters"
OPTIMIZER_FITS = "an optimizer is one that the engine supports"


def check(job: Job, task: TaskFacts, engine: str) -> None:
    """Raise Broken if the optimizer, the schedule or an option does not exist, or the engine does not support it."""
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
        values = f"optimizer is {optimizer}, engine is {engine}, optimizer_implementation is {implementation}"
        refuse(IMPLEMENTED, values, otherwise=f"Leave out --optimizer-implementation, or take {' or '.join(SEVERAL)}.")
    if implementation == "fused" and optimizer == "sgd" and job.allow_unused_parameters:
        values = "allow_unused_parameters is true"
        refuse(FUSED_STARTS, values, otherwise="Take --optimizer-implementation foreach, or --optimizer adamw.")
    if implementation == "fused" and ENGINES[engine].shards:
        refuse(FUSED, f"engine is {engine}", otherwise="Take --optimizer-implementation foreach.")
    able = ENGINES[engine].optimizers
    if able and optimizer not in able:
        values = f"engine {engine} has {', '.join(able)}, and optimizer is {optimizer}"
        refuse(OPTIMIZER_FITS, values, otherwise=f"Take --optimizer {' or '.join(able)}.")
