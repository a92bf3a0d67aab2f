from trainjob.requests.interface import PlannedJob as PlannedJob
from trainjob.requests.interface import Run as Run
from trainjob.requests.interface import UserError as UserError
from trainjob.requests.interface import plan as plan
from trainjob.requests.interface import run as run
from trainjob.requests.interface import runs as runs
from trainjob.requests.interface import submit as submit

__version__: str
