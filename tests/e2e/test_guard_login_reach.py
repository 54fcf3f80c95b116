"""How far a login reaches, how it ends, and logins that need nobody."""

import json
from typing import Any

import pytest
from harness import Place
from hosted import NEEDED, Hosted, echoed, refused, said, serving

SECRET = "a-secret-of-mine"
WIDER = "narrow-waist login hosted --scope files:write"


def machine(hosted: Hosted, **keys: Any) -> str:
    """A configuration that logs in by itself; `MINE` has its secret."""
    hosted.control(register=False, client=["robot", SECRET], revoke_status=200)
    block = {"grant": "client_credentials", "client_id": "robot", "client_secret": "${MINE}", **keys}
    return hosted.config(oauth=block)


def fetched(hosted: Hosted) -> list[dict[str, Any]]:
    return hosted.seen("token", grant_type="client_credentials")


def test_a_call_that_wants_more_than_the_login_fails_alone_and_names_the_command(place: Place, hosted: Hosted) -> None:
    config = hosted.config()
    hosted.log_in(config)
    with serving(place, config) as client:
        assert echoed(client)
        challenge = 'Bearer error="insufficient_scope", scope="files:write", error_description="write to files"'
        hosted.control(needs="files:write", challenge=challenge)
        text = refused(client)
        assert f"its login lacks the scope files:write: {WIDER}. The call did not run." in text and NEEDED not in text
        found = client.call("tool_search", {"query": "echo"})["result"]["content"][0]["text"]
        assert "hosted__echo" in found and "unavailable" not in found
        assert not hosted.seen("token", grant_type="refresh_token")
        hosted.log_in(config, "--scope", "files:write")
        assert hosted.seen("authorize")[-1]["scope"] == hosted.kept()["tokens"]["scope"] == "tools files:write"
        assert echoed(client)
    hosted.log_in(config)
    assert hosted.seen("authorize")[-1]["scope"] == "tools files:write", "a later login forgets nothing"


@pytest.mark.parametrize(
    ("challenge", "says"),
    [
        ('Bearer error="insufficient_scope"', "a scope that the server does not name: narrow-waist login hosted."),
        ('Bearer error=insufficient_scope, scope="a;b $(id) \'c"', "login hosted --scope 'a;b $(id) '\"'\"'c'."),
        (f'Bearer error="insufficient_scope", scope="{"x" * 400}"', "a scope that the server does not name: "),
        ('Bearer error="insufficient_scope", scope="a\\b"', "a scope that the server does not name: "),
        ('Bearer error="invalid_request"', "HTTP 403 Forbidden: no"),
    ],
)
def test_what_a_server_asks_for_is_shown_so_that_it_can_be_typed(
    challenge: str, says: str, place: Place, hosted: Hosted
) -> None:
    config = hosted.config()
    hosted.log_in(config)
    hosted.control(needs="more", challenge=challenge)
    assert says in said(place.cli("call", "hosted__echo", "--config", config))


def test_a_scope_that_is_none_is_not_asked_for(place: Place, hosted: Hosted) -> None:
    done = place.cli("login", "hosted", "--no-browser", "--scope", 'a"b', "--config", hosted.config())
    assert done.returncode == 2 and "expected names of scopes" in done.stderr and not hosted.seen("mcp")


def test_logout_revokes_what_it_forgets(place: Place, hosted: Hosted) -> None:
    config = hosted.config()
    hosted.control(revoke_status=200)
    hosted.log_in(config)
    kept = hosted.kept()
    done = place.cli("logout", "hosted", "--config", config)
    [line] = done.stdout.splitlines()
    assert done.returncode == 0 and not hosted.files and "(revoked at its server too)" in line
    tokens = [(each["token_type_hint"], each["token"], each["client_id"]) for each in hosted.seen("revoke")]
    client = kept["client"]["client_id"]
    expected = ["refresh_token", "access_token"]
    assert tokens == [(kind, kept["tokens"][kind], client) for kind in expected]
    assert not hosted.leaks(said(done))


def test_what_cannot_be_revoked_is_forgotten_all_the_same(place: Place, hosted: Hosted) -> None:
    config = hosted.config()
    hosted.control(revoke_status=503)
    hosted.log_in(config)
    done = place.cli("logout", "hosted", "--config", config)
    [line] = said(done).splitlines()
    assert done.returncode == 0 and not hosted.files
    assert line.endswith("(not revoked at its server: HTTP 503 for the refresh token, HTTP 503 for the access token)")


def test_a_login_that_cannot_be_read_or_used_can_be_forgotten(place: Place, hosted: Hosted) -> None:
    hosted.log_in(hosted.config())
    config = hosted.config(oauth={"client_id": "me", "client_secret": "${NOT_SET}"})
    hosted.files[0].write_text("{}", encoding="utf-8")
    done = place.cli("logout", "hosted", "--config", config)
    assert "(not revoked at its server: it could not be read)" in done.stdout and not hosted.files
    done = place.cli("logout", "hosted", "--config", config)
    assert done.returncode == 2 and "NOT_SET" in done.stderr


def test_client_credentials_need_nobody_and_are_kept_like_a_login(place: Place, hosted: Hosted) -> None:
    config = machine(hosted, scopes=["tools", "more"])
    with serving(place, config, "-v", MINE=SECRET) as client:
        assert echoed(client)
        [asked] = fetched(hosted)
        assert (asked["scope"], asked["resource"]) == ("tools more", hosted.url)
        assert asked["authorization"].startswith("Basic ") and "client_secret" not in asked
        token = hosted.kept()["tokens"]["access_token"]
        assert place.cli("check", "--config", config, MINE=SECRET).returncode == 0 and len(fetched(hosted)) == 1
        hosted.control(expire=True)
        assert echoed(client) and len(fetched(hosted)) == 2
        file, kept = hosted.files[0], hosted.kept()
        assert kept["tokens"]["access_token"] != token and SECRET not in file.read_text(encoding="utf-8")
        file.write_text(json.dumps({**kept, "expires_at": 1.0}), encoding="utf-8")
        useless = ("", f"Bearer {kept['tokens']['access_token']}")
        before = [len(hosted.seen("mcp", authorization=each)) for each in useless]
        assert echoed(client) and len(fetched(hosted)) == 3
        assert [len(hosted.seen("mcp", authorization=each)) for each in useless] == before
        assert not hosted.leaks(client.stderr.text) and SECRET not in client.stderr.text
    assert not hosted.seen("authorize") and not hosted.seen("register")
    done = place.cli("login", "hosted", "--config", config, MINE=SECRET)
    assert done.returncode == 2 and "logs in by itself" in done.stderr
    assert "revoked at its server too" in place.cli("logout", "hosted", "--config", config, MINE=SECRET).stdout
    assert hosted.seen("revoke")[0]["authorization"].startswith("Basic ") and not hosted.files


def test_client_credentials_that_are_refused_are_one_clear_line(place: Place, hosted: Hosted) -> None:
    config = machine(hosted)
    wrong = "a-wrong-secret-of-mine"
    for words in (["check"], ["call", "hosted__echo"]):
        told = said(place.cli(*words, "-v", "--config", config, MINE=wrong))
        assert "its client credentials (`oauth`) do not work: Token exchange failed (401): invalid_client" in told
        assert NEEDED not in told and wrong not in told
    assert not hosted.files
    hosted.control(instead={"/oauth/token": {"json": {"access_token": "of-nobody", "token_type": "Bearer"}}})
    told = said(place.cli("check", "--config", config, MINE=SECRET))
    assert "do not work: the server refuses the token that was just made for it (HTTP 401)" in told


def test_client_credentials_are_sent_to_nobody_that_the_person_has_not_named(place: Place, hosted: Hosted) -> None:
    """A server may name any authorization server; whoever is named would have the secret."""
    config = machine(hosted)
    elsewhere = hosted.base.replace("127.0.0.1", "localhost")
    prm = {"resource": hosted.url, "authorization_servers": [elsewhere]}
    metadata = {"issuer": elsewhere, "token_endpoint": f"{elsewhere}/oauth/token"}
    hosted.control(instead={"/.well-known/oauth-protected-resource/mcp": {"json": prm}}, metadata=metadata)
    told = said(place.cli("check", "--config", config, MINE=SECRET))
    assert f"the server wants them sent to {elsewhere}" in told and "`oauth.issuer`" in told and not fetched(hosted)
    assert place.cli("check", "--config", machine(hosted, issuer=elsewhere), MINE=SECRET).returncode == 0
    assert len(fetched(hosted)) == 1
    other = machine(hosted, issuer="https://auth.example.com")
    told = said(place.cli("check", "--config", other, MINE=SECRET))
    assert f"its authorization server is {elsewhere}, and `oauth.issuer` is another" in told
    assert len(fetched(hosted)) == 1


def test_client_credentials_that_reach_too_short_name_the_setting(place: Place, hosted: Hosted) -> None:
    config = machine(hosted)
    hosted.control(needs="files:write", challenge='Bearer error="insufficient_scope", scope="files:write"')
    told = said(place.cli("call", "hosted__echo", "--config", config, MINE=SECRET))
    assert "its login lacks the scope files:write: set `oauth.scopes` of server 'hosted'" in told
    config = machine(hosted, scopes=["tools", "files:write"])
    assert place.cli("call", "hosted__echo", "--config", config, MINE=SECRET).returncode == 0


def test_doctor_sees_a_login_that_is_gone_though_the_list_is_remembered(place: Place, hosted: Hosted) -> None:
    config = hosted.config(start="lazy")
    hosted.log_in(config)
    hosted.control(revoke=True)
    done = place.cli("doctor", "codex", "--config", config)
    assert done.returncode == 1 and f"- hosted: {NEEDED}" in done.stdout


def test_what_a_client_has_in_its_own_file_is_used_for_the_login(place: Place, hosted: Hosted) -> None:
    hosted.control(register=False, client=["made-by-hand", SECRET])
    entry = {"url": hosted.url, "auth": {"CLIENT_ID": "made-by-hand", "CLIENT_SECRET": "${MINE}", "scopes": ["more"]}}
    path = place.folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"hosted": entry}}), encoding="utf-8")
    hosted.log_in(str(path), MINE=SECRET)
    assert (hosted.seen("authorize")[-1]["client_id"], hosted.seen("authorize")[-1]["scope"]) == (
        "made-by-hand",
        "more",
    )
