"""Logins to servers at an address: what a person sees, what is kept, who is sent it, and that none is shown."""

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from harness import PATIENCE, Daemon, Place, Running, proxy, until
from hosted import NEEDED, Hosted, a_server, echoed, refused, said, serving
from raw_client import MODERN, StdioClient


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("kind", ["http", "sse"])
def test_a_login_goes_over_loopback_with_pkce_and_is_kept_for_every_proxy(place: Place, kind: str) -> None:
    with a_server(place, kind) as hosted:
        config = hosted.config()
        assert NEEDED in said(place.cli("check", "--config", config))
        assert "Logged in to hosted: 6 tools." in hosted.log_in(config).splitlines()
        [asked], [token] = hosted.seen("authorize"), hosted.seen("token")
        assert asked["code_challenge_method"] == "S256" and len(asked["state"]) >= 32
        assert urlsplit(asked["redirect_uri"]).hostname == "127.0.0.1"
        assert asked["resource"] == token["resource"] == hosted.url
        with serving(place, config) as client:
            assert echoed(client)
        with Daemon(place, "--config", config):
            used = {each["authorization"] for each in until(lambda: hosted.seen("mcp")[-1:], "a request")}
            assert used == {f"Bearer {hosted.kept()['tokens']['access_token']}"}


def test_without_a_login_every_command_says_what_to_type_and_no_browser_is_opened(place: Place, hosted: Hosted) -> None:
    config, opened = hosted.config(), place.folder / "opened"
    browser = {"BROWSER": f"touch {opened} %s"}
    for words in (["check"], ["list"], ["doctor", "codex"], ["call", "hosted__echo"]):
        assert NEEDED in said(place.cli(*words, "--config", config, **browser)), words
    with StdioClient(place, proxy("--config", config), **browser) as client:
        client.handshake()
        assert NEEDED in refused(client)
    assert not opened.exists() and not hosted.seen("register")


def test_a_browser_is_opened_at_the_address_that_is_printed(place: Place, hosted: Hosted) -> None:
    script, opened = place.folder / "browser", place.folder / "opened"
    script.write_text(f'#!/bin/sh\necho "$1" > {opened}.new && mv {opened}.new {opened}\n', encoding="utf-8")
    script.chmod(0o755)
    command = proxy("login", "hosted", "--config", hosted.config())
    with Running(place, command, stdout=True, BROWSER=str(script)) as running:
        assert running.stdout is not None
        address = running.stdout.wait(r"^(http://\S+)$")[1]
        until(opened.exists, "the browser")
        assert opened.read_text(encoding="utf-8").strip() == address
        httpx2.get(address, follow_redirects=True)
        running.stdout.wait("^Logged in to hosted: 6 tools")
        assert running.process.wait(PATIENCE) == 0


@pytest.mark.parametrize("described", [True, False])
def test_an_expired_token_is_renewed_without_anybody_noticing(described: bool, place: Place, hosted: Hosted) -> None:
    config = hosted.config()
    hosted.control(described=described)
    hosted.log_in(config)
    with serving(place, config) as client:
        assert echoed(client, 1)
        hosted.control(expire=True)
        assert echoed(client, 2)
        [renewal] = hosted.seen("token", grant_type="refresh_token")
        assert renewal["resource"] == hosted.url
        [file], kept = hosted.files, hosted.kept()
        assert kept["tokens"]["refresh_token"] != renewal["refresh_token"] and mode(file) == 0o600
        file.write_text(json.dumps({**kept, "expires_at": 1.0}), encoding="utf-8")
        asked = len(hosted.seen("mcp", authorization=f"Bearer {kept['tokens']['access_token']}"))
        assert echoed(client, 3) and len(hosted.seen("token", grant_type="refresh_token")) == 2
        assert len(hosted.seen("mcp", authorization=f"Bearer {kept['tokens']['access_token']}")) == asked


def test_what_one_proxy_has_renewed_all_of_them_use(place: Place, hosted: Hosted) -> None:
    config = hosted.config()
    hosted.log_in(config)
    with ExitStack() as stack, ThreadPoolExecutor(4) as threads:
        clients = [stack.enter_context(serving(place, config)) for _ in range(4)]
        assert all(map(echoed, clients))
        hosted.control(expire=True)
        assert all(threads.map(echoed, clients))
    assert len(hosted.seen("token", grant_type="refresh_token")) == 1


def test_a_refused_renewal_makes_the_server_unavailable_until_a_login_which_a_running_proxy_takes_up(
    place: Place, hosted: Hosted
) -> None:
    config = hosted.config()
    hosted.log_in(config)
    with serving(place, config) as client:
        assert echoed(client)
        hosted.control(revoke=True)
        assert NEEDED in refused(client)
        assert NEEDED in said(place.cli("check", "--config", config))
        hosted.log_in(config)
        until(lambda: echoed(client), "the new login")
        assert hosted.seen("mcp")[-1]["version"] == MODERN


def test_a_renewal_that_fails_for_now_loses_no_login(place: Place, hosted: Hosted) -> None:
    config = hosted.config()
    hosted.log_in(config)
    with serving(place, config) as client:
        assert echoed(client)
        for status in (503, 403):
            hosted.control(expire=True, renewal_status=status)
            assert f"its login could not be renewed: HTTP {status} (if it stays so: " in refused(client)
            hosted.control(renewal_status=200)
            until(lambda: echoed(client), "the renewal")
        hosted.control(expire=True, token_answer="<html>log in to the hotel</html>")
        assert "its login could not be renewed: HTTP 200 without a token" in refused(client)


def test_logout_forgets_also_for_a_running_proxy(place: Place, hosted: Hosted) -> None:
    config = hosted.config()
    hosted.log_in(config)
    with serving(place, config) as client:
        assert echoed(client)
        done = place.cli("logout", "hosted", "--config", config)
        assert done.returncode == 0 and "logged out" in done.stdout and not hosted.files
        assert NEEDED in refused(client)
    assert place.cli("logout", "hosted", "--config", config).stdout == "hosted: no login\n"


@pytest.mark.skipif(os.name != "posix", reason="rights of files are of POSIX systems")
def test_a_login_is_kept_in_a_private_file_and_one_that_others_can_reach_is_refused(
    place: Place, hosted: Hosted
) -> None:
    config = hosted.config()
    before = os.umask(0)
    try:
        hosted.log_in(config)
    finally:
        os.umask(before)
    [file] = hosted.files
    assert (mode(file), mode(file.parent)) == (0o600, 0o700)
    token = hosted.kept()["tokens"]["access_token"]
    for rights in (0o640, 0o620, 0o602):
        file.chmod(rights)
        asked = len(hosted.seen("mcp", authorization=f"Bearer {token}"))
        told = said(place.cli("check", "--config", config))
        assert f"{NEEDED} ({file}: other users can reach it; run: chmod 600 {file})" in told
        assert len(hosted.seen("mcp", authorization=f"Bearer {token}")) == asked and token not in told
    file.chmod(0o600)
    assert place.cli("check", "--config", config).returncode == 0


def test_a_changed_address_or_name_never_gets_the_token_of_another(place: Place, hosted: Hosted) -> None:
    hosted.log_in(hosted.config())
    with a_server(place) as other:
        assert NEEDED in said(place.cli("check", "--config", other.config()))
        assert {each["authorization"] for each in other.seen("mcp")} == {""}
    renamed = str(place.config({"renamed": {"url": hosted.url}}))
    assert "needs a login: narrow-waist login renamed" in said(place.cli("check", "--config", renamed))


@pytest.mark.parametrize("kind", ["http", "sse"])
def test_a_redirect_to_another_origin_gets_no_token(place: Place, kind: str) -> None:
    with a_server(place, kind) as hosted, a_server(place, kind) as other:
        config = hosted.config()
        hosted.log_in(config)
        hosted.control(elsewhere=other.url)
        other.control(open=True)
        place.cli("check", "--config", config)
        assert {each["authorization"] for each in other.seen("mcp")} == ({""} if kind == "sse" else set())


def test_an_authorization_header_of_the_persons_own_goes_first(place: Place, hosted: Hosted) -> None:
    hosted.log_in(hosted.config())
    config = hosted.config(headers={"authorization": "Bearer of-my-own-choice"})
    asked = len(hosted.seen("mcp"))
    told = said(place.cli("check", "--config", config))
    assert "HTTP 401" in told and "needs a login" not in told and "of-my-own-choice" not in told
    assert {each["authorization"] for each in hosted.seen("mcp")[asked:]} == {"Bearer of-my-own-choice"}
    done = place.cli("login", "hosted", "--config", config)
    assert done.returncode == 2 and "`headers`" in done.stderr and len(done.stderr.splitlines()) == 1


def test_what_the_person_configures_for_a_login_is_used_and_its_secret_is_not_kept(
    place: Place, hosted: Hosted
) -> None:
    secret = "a secret: of/mine"
    hosted.control(register=False, client=["made-by-hand", "a%20secret%3A%20of%2Fmine"])
    block = {"client_id": "made-by-hand", "client_secret": "${MINE}", "scopes": ["tools", "more"]}
    config = hosted.config(oauth=block)
    hosted.log_in(config, MINE=secret)
    [asked] = hosted.seen("authorize")
    assert (asked["client_id"], asked["scope"]) == ("made-by-hand", "tools more")
    assert secret not in hosted.files[0].read_text(encoding="utf-8")
    hosted.control(expire=True)
    assert place.cli("check", "--config", config, MINE=secret).returncode == 0
    told = said(place.cli("check", "--config", hosted.config(oauth={"client_id": "another"})))
    assert f"{NEEDED} (the one that is kept was made otherwise than `oauth` says now)" in told


def test_a_server_that_registers_nobody_is_told_what_to_do(place: Place, hosted: Hosted) -> None:
    hosted.control(register=False)
    done = place.cli("login", "hosted", "--no-browser", "--config", hosted.config())
    [line] = done.stderr.splitlines()
    assert done.returncode == 1 and "oauth: {client_id: ..." in line and not hosted.files


def test_a_login_over_an_open_network_is_not_begun(place: Place, hosted: Hosted) -> None:
    hosted.control(endpoints="http://auth.example.com")
    done = place.cli("login", "hosted", "--no-browser", "--config", hosted.config())
    [line] = done.stderr.splitlines()
    assert done.returncode == 1 and "http://auth.example.com would have the login sent unencrypted" in line
    assert not done.stdout


def test_a_person_who_says_no_gets_one_line(place: Place, hosted: Hosted) -> None:
    hosted.control(deny=True)
    with hosted.asking(hosted.config()) as (running, address):
        page = httpx2.get(address, follow_redirects=True)
        assert page.is_success and "not logged in" in page.text
        assert running.process.wait(PATIENCE) == 1
        told = running.stderr.wait("refused")[0] and running.stderr.text
        assert told == "narrow-waist: hosted: the login was refused: access_denied: The person said no"
    assert not hosted.files


def test_who_does_not_know_the_state_can_do_nothing_with_a_login_that_is_under_way(
    place: Place, hosted: Hosted
) -> None:
    with hosted.asking(hosted.config()) as (running, address):
        asked = {name: value[0] for name, value in parse_qs(urlsplit(address).query).items()}
        back = asked["redirect_uri"]
        for query in ("code=stolen", "code=stolen&state=wrong", "error=access_denied&state=", "state=%C3%A9&code=x"):
            assert httpx2.get(f"{back}?{query}").status_code == 400
        assert httpx2.get(f"{back.removesuffix('/callback')}/?code=x&state={asked['state']}").status_code == 404
        assert httpx2.post(f"{back}?code=x&state={asked['state']}").status_code == 404
        assert httpx2.get(address, follow_redirects=True).is_success
        assert running.process.wait(PATIENCE) == 0
    assert [each["code"].startswith("code-") for each in hosted.seen("token")] == [True]


def test_a_login_that_nobody_makes_ends_in_time(place: Place, hosted: Hosted) -> None:
    done = place.cli("login", "hosted", "--no-browser", "--wait", "0.2", "--config", hosted.config())
    assert done.returncode == 1 and not hosted.files
    assert done.stderr == "narrow-waist: hosted: nobody has logged in within 0.2 s; run it again\n"


@pytest.mark.parametrize(
    "answer",
    ['{"refresh_token": "ACCESS"}', "no, not for ASKED", '{"error": "bad", "asked": ASKED, "access_token": "ACCESS"}'],
)
def test_a_login_that_fails_shows_no_secret(answer: str, place: Place, hosted: Hosted) -> None:
    hosted.control(token_answer=answer)
    with hosted.asking(hosted.config(), "-v") as (running, address):
        httpx2.get(address, follow_redirects=True)
        assert running.process.wait(PATIENCE) == 1
        running.stderr.wait("hosted: the login failed: ")
        assert running.stdout is not None
        shown = f"{running.stdout.text}{running.stderr.text}"
    assert len(hosted.secrets()) == 4 and not hosted.leaks(shown)


def test_no_output_ever_holds_a_token(place: Place, hosted: Hosted) -> None:
    """A server that repeats what it was sent is the worst case: in a refusal, and beside what is cut."""
    config = hosted.config()
    shown = hosted.log_in(config, "-v")
    with serving(place, config, "-v") as client:
        assert echoed(client)
        hosted.control(expire=True)
        assert echoed(client)
        hosted.control(expire=True, echo="x" * 140)
        shown += refused(client)
        hosted.control(echo="refused:")
        shown += refused(client)
        hosted.control(echo="")
        until(lambda: echoed(client), "the next token")
        hosted.control(revoke=True)
        shown += refused(client) + client.stderr.text
    hosted.log_in(config)
    hosted.control(expire=True, echo="refused:")
    for words in (["check"], ["check", "--json"], ["list"], ["doctor", "codex", "--json"], ["call", "hosted__echo"]):
        shown += said(place.cli(*words, "-v", "--config", config))
    assert "HTTP 403" in shown and NEEDED in shown
    assert len(hosted.secrets()) > 6 and not hosted.leaks(shown)
