"""Shared by the stand-ins: the place of an instance, the meeting of instances, and the line that says what they are."""
