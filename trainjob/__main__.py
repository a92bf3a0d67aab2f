"""python -m trainjob: the command line, where its script is not on PATH."""

from trainjob.cli.main import main

main()
