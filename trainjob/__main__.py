"""The command line: `trainjob`, or `python -m trainjob` where its script is not on PATH."""

import sys


def main() -> None:
    """Run the command line; say in one line that its own modules can't be read."""
    try:
        from trainjob.cli.main import main as run
    except (OSError, ImportError, MemoryError) as error:
        sys.stderr.write(
            f"trainjob: its own modules can't be read ({type(error).__name__}: {error}). Check the disk that "
            f"{sys.prefix} is on, and try again; if the disk is fine, reinstall trainjob\n"
        )
        sys.exit(1)
    run()


if __name__ == "__main__":
    main()
