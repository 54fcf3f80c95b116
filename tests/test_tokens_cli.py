"""`tokens`: what the tools cost a model, directly and through the proxy."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.cli import main


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("NARROW_WAIST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    servers = {key: {"command": sys.executable, "args": ["-P", "-m", f"proxy.demo.{key}"]} for key in ("notes", "calc")}
    servers["calc"]["pinned"] = ["calculate"]  # type: ignore[assignment]
    file = tmp_path / "upstreams.yaml"
    file.write_text(yaml.safe_dump({"servers": servers}), encoding="utf-8")
    return str(file)


def test_the_report_has_modes_servers_uses_and_turns(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tokens", "--json", "--config", path]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    modes = {mode["mode"]: mode for mode in found["modes"]}
    assert modes["everything direct"]["tools"] == 6
    assert modes["bridge, servers only"]["per_turn"] < modes["bridge, listing: on"]["per_turn"]
    assert modes["as configured"] == {**modes["bridge, listing: auto"], "mode": "as configured"}
    servers = {server["server"]: server for server in found["servers"]}
    assert servers.keys() == {"notes", "calc"}
    # everything directly costs what the schemas of its servers cost (and their longer public names)
    direct = sum(server["eager"] for server in found["servers"])
    assert direct <= modes["everything direct"]["per_turn"] <= 1.2 * direct
    assert 0 < servers["notes"]["bridge"] < servers["notes"]["eager"]
    assert found["per_use"]["search"] > 0 and found["per_use"]["describe"] > 0
    assert found["turns"]["everything direct"]["10"] == 10 * modes["everything direct"]["per_turn"]


def test_a_table_is_printed_for_people(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tokens", "--config", path]) == 0
    printed = capsys.readouterr().out
    assert "tokens a turn" in printed and "everything direct" in printed and "notes" in printed


def test_without_the_vocabulary_figures_are_estimates_and_say_so(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(path)
    file.write_text(file.read_text(encoding="utf-8") + "tool_search: {tokenizer: estimate}\n", encoding="utf-8")
    assert main(["tokens", "--config", path]) == 0
    printed = capsys.readouterr().out
    assert "tokens a turn" in printed and "everything direct" in printed and "notes" in printed
    assert "estimated tokens" in printed
