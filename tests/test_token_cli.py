"""`token`: what it says of who gets in."""

from pathlib import Path

import pytest

from proxy.cli import main


def test_the_first_token_and_the_last_say_who_gets_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tokens.json"
    monkeypatch.setattr("proxy.cli.token.token_file", lambda _: file)
    said: list[str] = []
    for words in (["create", "ada"], ["create", "bob"], ["revoke", "ada"], ["revoke", "bob"], ["create", "eve"]):
        assert main(["token", *words]) == 0
        said.append(capsys.readouterr().err)
    assert "lets in nobody without a token" in said[0]
    assert "lets in nobody" not in said[1] and said[2] == ""
    assert f"no token is left: nobody gets in; delete {file} to serve without" in said[3]
    assert "lets in nobody" not in said[4], "the file was there all the time"
