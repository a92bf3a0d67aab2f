"""The commands `doctor` and `adopt`, and the part of `rehearse` that takes a batch file."""
