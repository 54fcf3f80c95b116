"""Tests with servers that do what real ones do wrong. `-m "not slow"` leaves out what takes more than some seconds."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes more than some seconds; left out of the quick run")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
