"""The snapshot: last known lists on disk, private, atomic, shared, and never trusted more than it deserves."""

import json
import multiprocessing
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.config.settings import ServerConfig
from proxy.upstream.discovery import Found
from proxy.upstream.snapshot import Entry, Snapshot

CONFIG = ServerConfig("notes", "stdio", command="notes", launch_hash="a" * 64)
TOOLS = [{"name": "add", "inputSchema": {"type": "object"}, "x-vendor": {"ü": [1, None]}}]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "cache"
    if (tmp_path / "cache").exists():
        (tmp_path / "cache").chmod(0o700)


def entry(tools: list[dict[str, object]] = TOOLS) -> Entry:
    return Entry(Found(tools=list(tools), capabilities={"tools": {}}), {"name": "Notes"}, True)


def only_file(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


def test_what_is_kept_comes_back_as_it_was(folder: Path) -> None:
    Snapshot(folder).save(CONFIG, entry())
    assert Snapshot(folder).load(CONFIG) == entry()


def test_files_are_private_and_nothing_temporary_is_left(folder: Path) -> None:
    Snapshot(folder).save(CONFIG, entry())
    assert stat.S_IMODE(only_file(folder).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b'{"version": 1}', b"\xff\xfe", b"[" * 100_000],
    ids=["empty", "cut", "list", "null", "bare", "bytes", "deep"],
)
def test_a_broken_file_is_as_never_seen_and_is_replaced(folder: Path, content: bytes) -> None:
    Snapshot(folder).save(CONFIG, entry())
    only_file(folder).write_bytes(content)
    assert Snapshot(folder).load(CONFIG) is None
    Snapshot(folder).save(CONFIG, entry())
    assert Snapshot(folder).load(CONFIG) == entry()


@pytest.mark.parametrize(
    "change", [{"version": 999}, {"launch": "b" * 64}, {"server": "other"}, {"tools": {}}, {"info": []}]
)
def test_a_file_of_another_version_or_config_is_as_never_seen(folder: Path, change: dict[str, object]) -> None:
    Snapshot(folder).save(CONFIG, entry())
    file = only_file(folder)
    file.write_text(json.dumps({**json.loads(file.read_text(encoding="utf-8")), **change}), encoding="utf-8")
    assert Snapshot(folder).load(CONFIG) is None


@pytest.mark.skipif(sys.platform == "win32", reason="modes of POSIX")
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_is_as_never_seen_is_told_of_once_and_is_replaced(
    mode: int, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What it says goes into a model's context: descriptions, and instructions."""
    snapshot = Snapshot(folder)
    snapshot.save(CONFIG, entry())
    only_file(folder).chmod(mode)
    assert snapshot.load(CONFIG) is None and not snapshot.waited(CONFIG)
    assert caplog.text.count("others can write it") == 1
    snapshot.save(CONFIG, entry())
    assert snapshot.load(CONFIG) == entry()


@pytest.mark.skipif(sys.platform == "win32", reason="modes of POSIX")
def test_counts_and_vectors_that_others_can_write_are_not_read_either(folder: Path) -> None:
    snapshot = Snapshot(folder)
    snapshot.save_counts({"a": 1})
    snapshot.save_vectors(b"packed")
    assert (snapshot.load_counts(), snapshot.load_vectors()) == ({"a": 1}, b"packed")
    for file in folder.iterdir():
        file.chmod(0o666)
    assert (snapshot.load_counts(), snapshot.load_vectors()) == ({}, b"")


def test_another_launch_config_is_another_server(folder: Path) -> None:
    Snapshot(folder).save(CONFIG, entry())
    other = ServerConfig("notes", "stdio", command="notes", launch_hash="b" * 64)
    assert Snapshot(folder).load(other) is None
    Snapshot(folder).save(other, entry([]))
    assert Snapshot(folder).load(CONFIG) == entry()


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="permissions do not bind here")
def test_a_read_only_folder_costs_a_log_line(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder.mkdir(mode=0o500)
    Snapshot(folder).save(CONFIG, entry())
    assert "could not keep the snapshot" in caplog.text


def test_a_folder_that_cannot_be_made_costs_a_log_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    snapshot = Snapshot(tmp_path / "file" / "cache")
    snapshot.save(CONFIG, entry())
    snapshot.mark_waited(CONFIG)
    assert "could not keep the snapshot" in caplog.text
    assert snapshot.load(CONFIG) is None and not snapshot.waited(CONFIG)


def test_waiting_in_vain_is_remembered_and_never_replaces_a_list(folder: Path) -> None:
    snapshot = Snapshot(folder)
    assert not snapshot.waited(CONFIG)
    snapshot.mark_waited(CONFIG)
    assert snapshot.waited(CONFIG) and snapshot.load(CONFIG) is None
    snapshot.save(CONFIG, entry())
    snapshot.mark_waited(CONFIG)
    assert snapshot.load(CONFIG) == entry()


def _write_often(folder: Path, mark: int) -> None:
    for _ in range(50):
        Snapshot(folder).save(CONFIG, entry([{"name": f"tool_{mark}", "pad": str(mark) * 20_000}]))


def test_two_proxies_at_once_never_leave_half_a_file(folder: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_often, args=(folder, mark)) for mark in (1, 2)]
    for writer in writers:
        writer.start()
    seen = set()
    while any(writer.is_alive() for writer in writers):
        if (found := Snapshot(folder).load(CONFIG)) is not None:
            seen.add(found.found.tools[0]["name"])
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert seen <= {"tool_1", "tool_2"}
    assert Snapshot(folder).load(CONFIG) is not None
    assert only_file(folder)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
def test_what_is_no_file_is_as_never_seen(folder: Path) -> None:
    """Opening a pipe would wait for somebody who writes to it."""
    Snapshot(folder).save(CONFIG, entry())
    file = only_file(folder)
    file.unlink()
    os.mkfifo(file)
    assert Snapshot(folder).load(CONFIG) is None
