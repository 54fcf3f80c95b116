"""Places for processes, and the foreign environments that `scripts/foreign` builds."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import ROOT, Daemon, Place
from hosted import Hosted, a_server

FOREIGN = ROOT / ".cache" / "foreign"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes more than some seconds; left out of the quick run")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A place of one test, in which no process may be left at its end."""
    folder = tmp_path / "place"
    folder.mkdir()
    made = Place(folder)
    yield made
    made.clear()


@pytest.fixture
def hosted(place: Place) -> Iterator[Hosted]:
    """A server that wants a login."""
    with a_server(place) as found:
        yield found


@pytest.fixture(scope="module")
def shared_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A place of one module."""
    made = Place(tmp_path_factory.mktemp("shared"))
    yield made
    made.clear()


@pytest.fixture(scope="module")
def daemon(shared_place: Place, config: Path) -> Iterator[Daemon]:
    """A daemon of one module, with that module's `config`."""
    with Daemon(shared_place, "--config", str(config)) as running:
        yield running


def foreign_part(part: str) -> Path:
    """The folder of one foreign environment; skips the test where `scripts/foreign` could not build it."""
    folder = FOREIGN / part
    if not (folder / ".complete").exists():
        pytest.skip(f".cache/foreign/{part} is not there (scripts/foreign builds it)")
    return folder


@pytest.fixture(scope="session")
def foreign() -> Callable[[str], Path]:
    """Gives the folder of a foreign environment by its name."""
    return foreign_part


@pytest.fixture(scope="session")
def foreign_py() -> Path:
    """Python with the reference servers time, git and fetch."""
    return foreign_part("py") / "bin"


@pytest.fixture(scope="session")
def foreign_mcp1() -> Path:
    """Python with the 1.x SDK."""
    return foreign_part("mcp1") / "bin" / "python"


@pytest.fixture(scope="session")
def foreign_fastmcp() -> Path:
    """The fastmcp command."""
    return foreign_part("fastmcp") / "bin" / "fastmcp"


@pytest.fixture(scope="session")
def foreign_node() -> Path:
    """A folder with bin/node (>= 22) and node_modules."""
    return foreign_part("node")
