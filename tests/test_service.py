"""`narrow-waist service`: units that the system takes, with the words of the command as they are, and no secret."""

import json
import os
import plistlib
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.cli import main, service
from proxy.errors import ConfigError

WORDS = [
    sys.executable,
    "-P",
    "-m",
    "proxy",
    "--http",
    "127.0.0.1:8788",
    "--config",
    '/home/a b/100%/$HOME/"q" \\ é.yaml',
    "it's",
]


SEARCH = '/opt/a b/100%/"q":/usr/bin'


def unit(kind: str, words: list[str], home: Path) -> str:
    return service.unit(kind, words, home, search=SEARCH, variables=home / "50%" / "environment")


def test_the_systemd_unit_starts_exactly_these_words(tmp_path: Path) -> None:
    text = unit("systemd", WORDS, tmp_path)
    [line] = [line.removeprefix("ExecStart=") for line in text.splitlines() if line.startswith("ExecStart=")]
    # As systemd reads it: quotes and backslashes as a shell does, then %% and $$.
    assert [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(line)] == WORDS
    assert "NoNewPrivileges=yes" in text and "UMask=0077" in text and "RestartPreventExitStatus=2" in text


def test_a_program_in_an_odd_place_is_started_too(tmp_path: Path) -> None:
    """systemd takes a `$` in the program's path as it is."""
    text = unit("systemd", ["/opt/it's $5/100%/nw", "$x"], tmp_path)
    assert 'ExecStart="/opt/it\'s $5/100%%/nw" "$$x"\n' in text


@pytest.mark.parametrize("kind", ["systemd", "launchd"])
def test_a_path_that_no_unit_can_have_is_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"cannot stand in a {kind} unit"):
        unit(kind, ["/bin/nw", "--config", "/a\nExecStartPre=/bin/evil"], tmp_path)
    if kind == "systemd":
        with pytest.raises(ConfigError, match="cannot stand in"):
            unit(kind, ['/opt/"q"/nw'], tmp_path)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not there")
def test_the_systemd_unit_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "narrow-waist.service"
    path.write_text(unit("systemd", WORDS, tmp_path), encoding="utf-8")
    environ = {**os.environ, "SYSTEMD_LOG_LEVEL": "warning", "XDG_RUNTIME_DIR": str(tmp_path), "LC_ALL": "C.UTF-8"}
    words = ["systemd-analyze", "--user", "verify", "--man=no", "--generators=no", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, env=environ, timeout=50, check=False)
    ours = [line for line in done.stderr.splitlines() if "narrow-waist" in line]
    assert not ours, done.stderr


def started(words: list[str], home: Path) -> list[str]:
    """What launchd starts."""
    return plistlib.loads(unit("launchd", words, home).encode())["ProgramArguments"]


def test_the_launchd_unit_is_a_plist_with_exactly_these_words(tmp_path: Path) -> None:
    words = [*WORDS, "<&>"]
    made = plistlib.loads(unit("launchd", words, tmp_path).encode())
    assert made["ProgramArguments"][-len(words) :] == words
    assert (made["Label"], made["RunAtLoad"], made["Umask"]) == ("narrow-waist", True, 0o077)
    assert made["KeepAlive"] == {"SuccessfulExit": False}


def test_the_daemon_has_the_path_of_whoever_installs_it_and_variables_from_a_file(tmp_path: Path) -> None:
    """Neither npx from nvm nor any ${VAR} of the configuration was there."""
    lines = unit("systemd", WORDS, tmp_path).splitlines()
    [path] = [line.removeprefix("Environment=") for line in lines if line.startswith("Environment=")]
    assert [word.replace("%%", "%") for word in shlex.split(path)] == [f"PATH={SEARCH}"]
    assert f"EnvironmentFile=-{tmp_path}/50%%/environment" in lines
    assert plistlib.loads(unit("launchd", WORDS, tmp_path).encode())["EnvironmentVariables"] == {"PATH": SEARCH}


@pytest.mark.skipif(sys.platform == "win32", reason="starts a POSIX shell")
def test_launchd_starts_the_daemon_with_the_variables_of_the_file(tmp_path: Path) -> None:
    script = "import json, os, sys; print(json.dumps([os.getpid(), sys.argv[1:], dict(os.environ)]))"
    words = [sys.executable, "-I", "-S", "-c", script, "a b", "$HOME", '"q"']

    def run() -> tuple[list[str], dict[str, str]]:
        environ = {"PATH": "/usr/bin:/bin", "HOME": "/home/x"}
        with subprocess.Popen(started(words, tmp_path), stdout=subprocess.PIPE, env=environ) as process:
            assert process.stdout is not None
            pid, args, found = json.loads(process.stdout.read())
        assert pid == process.pid, "the signals of launchd reach the daemon itself"
        return args, {name: value for name, value in found.items() if name not in ("PATH", "HOME", "PWD", "LC_CTYPE")}

    assert run() == (words[5:], {}), "the file need not be there"
    file = tmp_path / "50%" / "environment"
    file.parent.mkdir()
    lines = ["# a comment", "PLAIN=a b&c;d $HOME `id`", 'QUOTED="a b"', "SINGLE='a b'", "EMPTY="]
    lines += ["", "export NOT=taken", "no variable", "1X=no", "line=1", "name=2", "value=3", "CRLF=x\r", "LAST=a=b"]
    file.write_text("\n".join(lines), encoding="utf-8")
    variables = {"PLAIN": "a b&c;d $HOME `id`", "QUOTED": "a b", "SINGLE": "a b", "EMPTY": ""}
    variables |= {"line": "1", "name": "2", "value": "3", "CRLF": "x", "LAST": "a=b"}
    assert run() == (words[5:], variables)
    assert not any("a b&c" in word for word in started(words, tmp_path)), "no secret is in the unit"


@pytest.mark.parametrize("kind", ["systemd", "launchd"])
def test_it_is_printed_installed_and_removed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "upstreams.yaml"
    config.write_text("servers: {s: {command: x, env: {API_KEY: sk-literal-value}}}", encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NARROW_WAIST_TOKEN", "a-token-of-some-length")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    told: list[list[str]] = []

    def tell(words: list[str], **_: object) -> "subprocess.CompletedProcess[str]":
        told.append(words)
        return subprocess.CompletedProcess(words, 0, "", "")

    monkeypatch.setattr(subprocess, "run", tell)
    common = ["--kind", kind, "--config", str(config)]
    assert main(["service", "print", *common]) == 0
    printed = capsys.readouterr().out
    assert (
        str(config) in printed
        and os.environ["PATH"] in printed
        and "sk-literal" not in printed
        and "a-token" not in printed
        and not told
    )
    assert main(["service", "install", *common]) == 0
    path = service.unit_path(kind, tmp_path)
    assert path.read_text(encoding="utf-8") == printed
    said = capsys.readouterr().out
    assert "it is running" in said and f"lines NAME=VALUE in {tmp_path}/.config/narrow-waist/environment" in said
    assert main(["service", "uninstall", *common]) == 0
    assert not path.exists() and len(told) == 2
    assert main(["service", "uninstall", *common]) == 2
