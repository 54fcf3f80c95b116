"""When a changed configuration file is read, what is said of it, and what never ends a proxy that runs."""

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from proxy.config import GuardConfig, Profile, ServerConfig, Settings, ToolSearchConfig, load
from proxy.errors import ConfigError
from proxy.masking import mask
from proxy.reload import Reload, changes
from proxy.upstream.discovery import Found
from proxy.upstream.snapshot import Entry, Snapshot

PATIENCE = 10.0


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def settings(*servers: ServerConfig, **more: Any) -> Settings:
    return Settings(servers=servers, **more)


ONE, TWO = ServerConfig("one", "stdio", command="x"), ServerConfig("two", "stdio", command="x")


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (settings(ONE), settings(ONE), None),
        (settings(ONE), settings(ONE, warnings=("a comment has changed",)), None),
        (settings(ONE), settings(ONE, TWO), "new: two"),
        (settings(ONE, TWO), settings(TWO), "gone: one"),
        (settings(ONE), settings(replace(ONE, enabled=False)), "gone: one"),
        (settings(ONE), settings(replace(ONE, env={"KEY": "secret-value"})), "changed: one"),
        (settings(), settings(guard=GuardConfig(), profiles={"p": Profile("p")}), "also profiles, guard"),
        (settings(ONE), settings(TWO, tool_search=ToolSearchConfig("on")), "new: two; gone: one; also tool_search"),
        (settings(), settings(replace(ONE, enabled=False)), "nothing that is served"),
    ],
)
def test_what_has_changed_is_said_by_names(before: Settings, now: Settings, said: str | None) -> None:
    assert changes(before, now) == said


@pytest.mark.parametrize("quiet", [Settings(), Settings(path=Path("upstreams.yaml"), reload=False)])
async def test_nothing_is_watched_where_nothing_is_to_be_taken_up(quiet: Settings) -> None:
    def never(*_: object) -> Settings:
        raise AssertionError

    with anyio.fail_after(PATIENCE):
        await Reload(quiet, never, never, listens=True).run()


class Looks:
    """A file that is another one at each look, as these numbers say, and what is made of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *looks: int | None) -> None:
        self.left = iter(looks)
        self.read, self.taken = list[list[int | None]](), list[Settings]()
        self.results: list[Settings | Exception] = [Settings(path=Path("x"), first_list_wait=7.0)]
        """What reading it gives, one after the other."""
        monkeypatch.setattr("proxy.reload.POLL", 0.001)
        monkeypatch.setattr("proxy.reload.PAUSE", 0.0)
        monkeypatch.setattr("proxy.reload._stamp", self._look)

    def _look(self, _: object) -> tuple[int, ...] | None:
        look = next(self.left, 0)
        return None if look is None else (1, look)

    def _read(self) -> Settings:
        self.read.append([*self.left])
        self.left = iter(self.read[-1])
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    async def run(self) -> None:
        """Look until something is taken up."""
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:

                def take(settings: Settings) -> None:
                    self.taken.append(settings)
                    tasks.cancel_scope.cancel()

                tasks.start_soon(Reload(Settings(path=Path("x")), self._read, take, listens=False).run)


async def test_a_file_that_is_still_being_written_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch, 1, 1, 2, 3, None, 4, 4, 4)
    await looks.run()
    assert looks.read == [[4]]


async def test_a_file_that_is_never_at_rest_is_read_all_the_same_and_half_of_one_is_not_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks = Looks(monkeypatch, *range(1, 100))
    looks.results.insert(0, ConfigError("half of it"))
    await looks.run()
    assert [len(left) for left in looks.read] == [93, 88] and looks.taken
    assert "half of it" not in caplog.text


async def test_a_file_that_takes_long_to_read_is_not_read_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch, 1, 2, 2, 3, 3, 4, 4, *[5] * 1000)
    monkeypatch.setattr("proxy.reload.PAUSE", math.inf)
    clock = iter(range(1000))
    monkeypatch.setattr("proxy.reload.anyio.current_time", lambda: next(clock, 1000))
    looks.results[:] = [ConfigError("broken")]
    with anyio.move_on_after(0.2):
        await looks.run()
    assert len(looks.read) == 1


async def test_why_a_file_cannot_be_used_is_told_once_and_nothing_that_it_brings_about_ends_us(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks = Looks(monkeypatch, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6)
    looks.results[:0] = [ConfigError("broken"), ConfigError("broken"), ValueError("quite"), ConfigError("broken")]
    await looks.run()
    told = [record.getMessage().rpartition("stays: ")[2] for record in caplog.records if "stays" in record.getMessage()]
    assert told == ["broken", "ValueError: quite", "broken"]


async def test_what_a_refused_file_holds_makes_nothing_that_is_served_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def secret(text: str) -> Settings:
        return Settings(path=Path("x"), servers=(ServerConfig("s", "stdio", secrets=(text,)),))

    looks = Looks(monkeypatch, 1, *(n // 2 for n in range(4, 40)))
    looks.results[:] = [secret("secret-served"), *(secret(f"secret-refused-{n}") for n in range(5)), Settings()]

    def take(settings: Settings) -> None:
        if settings == Settings():
            tasks.cancel_scope.cancel()
        elif "refused" in settings.servers[0].secrets[0]:
            raise ConfigError("no")

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Reload(Settings(path=Path("x")), looks._read, take, listens=False).run)
    assert mask("secret-served", ()) == "***"


@pytest.mark.parametrize("how", ["mode", "times"])
async def test_what_neither_size_nor_time_tells_of_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr("proxy.reload.POLL", 0.001)
    file = tmp_path / "upstreams.yaml"
    file.write_text("one")
    before = file.stat()
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:

            def read() -> Settings:
                tasks.cancel_scope.cancel()
                return Settings(path=file)

            tasks.start_soon(Reload(Settings(path=file), read, lambda _: None, listens=False).run)
            await anyio.wait_all_tasks_blocked()
            if how == "times":
                file.write_text("two")
                os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
            else:
                file.chmod(0o600 if before.st_mode & 0o777 != 0o600 else 0o644)


async def test_an_empty_file_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("proxy.reload.POLL", 0.001)
    file = tmp_path / "upstreams.yaml"
    file.write_text("one")

    def never(_: object) -> None:
        raise AssertionError

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Reload(settings(ONE, path=file), Settings, never, listens=False).run)
        with anyio.fail_after(PATIENCE):
            await anyio.wait_all_tasks_blocked()
            file.write_text("")
            while "is empty" not in caplog.text:  # noqa: ASYNC110
                await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()


async def test_a_file_is_read_when_it_has_come_to_rest_and_a_refusal_keeps_what_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("proxy.reload.POLL", 0.001)
    file = tmp_path / "upstreams.yaml"
    file.write_text("1")
    read, taken = list[str](), list[Settings]()
    done = anyio.Event()

    def now() -> Settings:
        read.append(file.read_text())
        if read[-1] == "bad":
            raise ConfigError(f"{file}:1: bad")
        made = (ServerConfig(f"s{n}", "stdio", secrets=("secret-of-four",)) for n in range(len(read[-1])))
        return settings(*made, path=file)

    def take(new: Settings) -> None:
        taken.append(new)
        done.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Reload(settings(path=file), now, take, listens=False).run)
        with anyio.fail_after(PATIENCE):
            await anyio.wait_all_tasks_blocked()
            file.write_text("bad")
            while "what was configured before stays" not in caplog.text:  # noqa: ASYNC110
                await anyio.sleep(0.001)
            assert not taken
            file.unlink()
            file.write_text("four")
            await done.wait()
        tasks.cancel_scope.cancel()
    assert [len(new.servers) for new in taken] == [4]
    assert read[0] == "bad" and read[-1] == "four"
    assert mask("it knows secret-of-four", ()) == "it knows ***"


def test_what_is_no_file_or_too_long_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, said in (("pipe", "is a pipe or device, not a file"), (".", "is a folder, not a file")):
        with pytest.raises(ConfigError, match=said):
            load(tmp_path / name)
    monkeypatch.setattr("proxy.config.document.LARGEST_YAML", 10)
    for name in ("a.yaml", "a.json"):
        (tmp_path / name).write_text('{"servers": {}}')
    with pytest.raises(ConfigError, match="has 15 characters; a configuration has at most 10 of this kind"):
        load(tmp_path / "a.yaml")
    assert load(tmp_path / "a.json").path
    monkeypatch.setattr("proxy.config.document.LARGEST", 10)
    with pytest.raises(ConfigError, match="has 15 characters"):
        load(tmp_path / "a.json")


def test_a_server_may_have_any_name_that_json_can_write(tmp_path: Path) -> None:
    odd, kept = ServerConfig("\ud800", "stdio", launch_hash="0"), Snapshot(tmp_path)
    assert kept.load(odd) is None
    kept.save(odd, Entry(Found(tools=[{"name": "slow"}], capabilities={}), modern=False))  # as well as it can be
