"""How many examples Hypothesis tries: few and always the same in CI, many and new ones at night."""

from __future__ import annotations

import hypothesis

CI, NIGHTLY = 50, 1000


def register_profiles() -> None:
    """Register the profiles ci, which is the default, and nightly (`pytest --hypothesis-profile nightly`)."""
    # How long an example takes says how busy the machine is.
    hypothesis.settings.register_profile("ci", deadline=None, max_examples=CI, derandomize=True)
    hypothesis.settings.register_profile("nightly", deadline=None, max_examples=NIGHTLY, print_blob=True)
    hypothesis.settings.load_profile("ci")


def examples(count: int) -> hypothesis.settings:
    """Return the settings of a test whose examples start processes: so many in CI, in proportion at night."""
    return hypothesis.settings(max_examples=count * hypothesis.settings.default.max_examples // CI)
