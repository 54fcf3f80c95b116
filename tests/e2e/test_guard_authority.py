"""Authorization servers that mean us harm, or are merely odd, seen by one login in the test's own process."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
import pytest
from harness import Place
from hosted import Hosted, a_server
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from proxy.config import OAuthConfig, ServerConfig
from proxy.upstream.asking import LoginError, log_in
from proxy.upstream.authority import AuthorityError, refuse_unsafe
from proxy.upstream.failure import ConnectError
from proxy.upstream.kept import Kept, LoginFile
from proxy.upstream.login import Login
from proxy.upstream.revoking import revoke

PRM = "/.well-known/oauth-protected-resource/mcp"
METADATA = "/.well-known/oauth-authorization-server"
TOKEN = "/oauth/token"


@pytest.fixture(scope="module")
def server_of_the_module(shared_place: Place) -> Iterator[Hosted]:
    with a_server(shared_place) as found:
        yield found


@pytest.fixture
def evil(server_of_the_module: Hosted) -> Hosted:
    server_of_the_module.control(reset=True)
    return server_of_the_module


def config_of(hosted: Hosted, **keys: Any) -> ServerConfig:
    return ServerConfig(key="hosted", transport="http", url=hosted.url, oauth=OAuthConfig(**keys))


async def browse(address: str, times: int = 1) -> None:
    """Open the address that a person is shown."""
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        for _ in range(times):
            assert (await browser.get(address)).is_success


async def logged_in(hosted: Hosted, **keys: Any) -> Kept:
    return await log_in(config_of(hosted, **keys), browse, 20)


async def failed(hosted: Hosted, **keys: Any) -> str:
    """The one line that a login ends with; a browser, if it was opened, got no token."""
    before = len(hosted.seen("made"))
    with pytest.raises(LoginError) as caught:
        await logged_in(hosted, **keys)
    text = str(caught.value)
    assert text.startswith("hosted: ") and "\n" not in text and len(text) < 500
    assert len(hosted.seen("made")) == before, "a token was made all the same"
    assert not hosted.leaks(text)
    return text


async def test_metadata_of_another_resource_leads_nowhere(evil: Hosted) -> None:
    prm = {"resource": "https://bank.example/mcp", "authorization_servers": [evil.base]}
    evil.control(instead={PRM: {"json": prm}})
    assert "https://bank.example/mcp does not match expected" in await failed(evil)
    assert not evil.seen("register")


async def test_metadata_in_the_name_of_another_issuer_is_refused(evil: Hosted) -> None:
    evil.control(metadata={"issuer": "https://accounts.example.com"})
    assert "issuer mismatch: https://accounts.example.com != http://127.0.0.1" in await failed(evil)


@pytest.mark.parametrize(
    ("advertised", "back", "says"),
    [
        (False, {"iss": "https://accounts.example.com"}, "iss mismatch: https://accounts.example.com"),
        (True, {}, "missing iss parameter"),
    ],
)
async def test_a_code_of_another_issuer_is_given_to_nobody(
    advertised: bool, back: dict[str, str], says: str, evil: Hosted
) -> None:
    evil.control(metadata={"authorization_response_iss_parameter_supported": advertised}, back=back)
    asked = len(evil.seen("token"))
    assert says in await failed(evil)
    assert len(evil.seen("token")) == asked


async def test_a_code_with_the_right_issuer_is_taken(evil: Hosted) -> None:
    evil.control(metadata={"authorization_response_iss_parameter_supported": True}, back={"iss": evil.base})
    assert (await logged_in(evil)).tokens.access_token


async def test_only_the_issuer_that_is_configured_gets_a_login(evil: Hosted) -> None:
    text = await failed(evil, issuer="https://auth.example.com")
    assert f"its authorization server is {evil.base}" in text and "`oauth.issuer` is another" in text
    assert (await logged_in(evil, issuer=f"{evil.base}/")).tokens.access_token


@pytest.mark.parametrize("what", ["authorization_endpoint", "token_endpoint", "registration_endpoint"])
async def test_nothing_of_a_login_is_sent_unencrypted(what: str, evil: Hosted) -> None:
    evil.control(metadata={what: "http://auth.example.com/x"})
    assert "http://auth.example.com would have the login sent unencrypted" in await failed(evil)


async def test_an_authorization_server_without_encryption_is_not_even_asked(evil: Hosted) -> None:
    prm = {"resource": evil.url, "authorization_servers": ["http://auth.example.com"]}
    evil.control(instead={PRM: {"json": prm}})
    assert "http://auth.example.com would have" in await failed(evil)


@pytest.mark.parametrize(
    ("address", "home", "says"),
    [
        ("http://127.0.0.1:8080/x", "https://mcp.example.com/mcp", "no business"),
        ("https://localhost/x", "https://mcp.example.com/mcp", "no business"),
        ("http://app.localhost./x", "https://mcp.example.com/mcp", "no business"),
        ("http://[::1]/x", "https://mcp.example.com/mcp", "no business"),
        ("http://[::ffff:127.0.0.1]/x", "https://mcp.example.com/mcp", "no business"),
        ("http://0.0.0.0/x", "https://mcp.example.com/mcp", "no business"),
        ("http://2130706433/x", "https://mcp.example.com/mcp", "unencrypted"),
        ("http://169.254.169.254/latest", "https://mcp.example.com/mcp", "unencrypted"),
        ("http://auth.example.com/x", "http://localhost:1/mcp", "unencrypted"),
        ("https://auth.example.com/x", "https://mcp.example.com/mcp", ""),
        ("http://127.0.0.1:8080/x", "http://localhost:1/mcp", ""),
        ("http://[::1]:8080/x", "http://127.0.0.1:1/mcp", ""),
    ],
)
def test_a_server_elsewhere_cannot_send_us_to_this_machine(address: str, home: str, says: str) -> None:
    if says:
        with pytest.raises(AuthorityError, match=says):
            refuse_unsafe(httpx2.URL(address), httpx2.URL(home))
    else:
        refuse_unsafe(httpx2.URL(address), httpx2.URL(home))


@pytest.mark.parametrize("path", [PRM, METADATA, TOKEN])
async def test_an_answer_without_end_is_given_up(path: str, evil: Hosted) -> None:
    evil.control(instead={path: {"text": "x" * 65536, "times": 10_000}})
    assert "its answer is longer than 1 MiB" in await failed(evil)


async def test_an_answer_that_is_packed_is_not_unpacked(evil: Hosted) -> None:
    evil.control(instead={METADATA: {"text": "x", "headers": {"content-encoding": "gzip"}}})
    assert "packs its answer, which was not asked for" in await failed(evil)
    assert evil.seen("instead")[-1]["accept-encoding"] == "identity"


@pytest.mark.parametrize("path", [METADATA, TOKEN])
async def test_an_answer_that_does_not_come_is_given_up(
    path: str, evil: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil.control(instead={path: {"hang": 3600}})
    monkeypatch.setattr("proxy.upstream.authority.ANSWER", 1.0)
    assert "no whole answer within 1 s" in await failed(evil)


@pytest.mark.parametrize("path", [PRM, METADATA, "/oauth/register", TOKEN])
async def test_a_redirect_in_circles_or_elsewhere_ends(path: str, evil: Hosted) -> None:
    for to in (path, "https://elsewhere.example/x"):
        before = len(evil.seen("instead"))
        evil.control(instead={path: {"status": 307, "headers": {"location": to}, "text": ""}})
        if path == PRM:  # as if there were none
            assert (await logged_in(evil)).tokens.access_token
        else:
            await failed(evil)
        assert len(evil.seen("instead")) - before <= 12  # it is asked for at two places, which are the same one


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"token_type": "mac"}, "validation error"),
        ({"access_token": None}, "validation error"),
        ({"expires_in": "soon"}, "validation error"),
        ({"access_token": "a\r\nX-Evil: 1"}, "no bearer token"),
        ({"access_token": "naïve"}, "no bearer token"),
    ],
)
async def test_a_token_that_is_none_is_refused(changed: dict[str, Any], says: str, evil: Hosted) -> None:
    evil.control(instead={TOKEN: {"json": {"access_token": "t", "token_type": "Bearer"} | changed}})
    assert says in await failed(evil)


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({"where": 'Bearer resource_metadata="https://a:b/"'}, "an address that is none"),
        ({"where": 'Bearer resource_metadata="/x"'}, "would have the login sent unencrypted"),
        ({"where": 'Bearer resource_metadata="file:///etc/passwd"'}, "would have the login sent unencrypted"),
        ({"instead": {TOKEN: {"status": 400, "text": "é", "charset": "latin-1"}}}, "an answer cannot be read"),
        ({"instead": {TOKEN: {"text": "[" * 100_000}}}, "validation error"),
        ({"instead": {TOKEN: {"text": "é", "charset": "latin-1"}}}, "validation error"),
    ],
)
async def test_an_answer_that_no_server_should_give_is_one_line(rules: dict[str, Any], says: str, evil: Hosted) -> None:
    evil.control(**rules)
    assert says in await failed(evil)


async def test_a_refusal_in_any_letters_is_understood(evil: Hosted) -> None:
    evil.control(where='Bearer realm="é"')
    assert (await logged_in(evil)).tokens.access_token


@pytest.mark.parametrize("lasts", [0, -1, "3600", 10**30, 10**400, None])
async def test_a_lifetime_is_understood_however_it_is_sent(lasts: Any, evil: Hosted, tmp_path: Path) -> None:
    evil.control(metadata={"token_endpoint": f"{evil.base}/odd"}, open=True)
    odd = {"access_token": "token-of-mine", "token_type": "bearer", "expires_in": lasts}
    evil.control(instead={"/odd": {"json": odd}})
    kept = await logged_in(evil)
    file = LoginFile(config_of(evil), {"XDG_STATE_HOME": str(tmp_path)})
    file.write(kept)
    assert file.read() == kept
    expected = 3600 if lasts == "3600" else None if lasts in (0, -1, None) else 10 * 365 * 86400
    assert (kept.expires_at is None) == (expected is None)
    if expected is not None and kept.expires_at is not None:
        assert abs(kept.expires_at - time.time() - expected) < 60


async def test_a_callback_that_comes_twice_counts_once(evil: Hosted) -> None:
    async def twice(address: str) -> None:
        back = httpx2.URL(parse_qs(urlsplit(address).query)["redirect_uri"][0])
        state = parse_qs(urlsplit(address).query)["state"][0]
        async with httpx2.AsyncClient() as browser:
            right = (await browser.get(address)).headers["location"]
            first, second = await browser.get(right), await browser.get(right)
            assert first.is_success and second.is_success
            await browser.get(back.copy_merge_params({"state": state, "code": "another"}))

    kept = await log_in(config_of(evil), twice, 20)
    assert kept.tokens.access_token and evil.seen("token")[-1]["code"] != "another"


async def test_a_server_that_lets_everybody_in_can_still_be_logged_in_to(evil: Hosted) -> None:
    """Some ask for a login only where a tool is called."""
    evil.control(open=True)
    assert (await logged_in(evil)).tokens.access_token
    evil.control(described=False)
    assert "answered without asking for a login; nothing is kept" in await failed(evil)


async def test_headers_of_the_configuration_are_not_sent_to_an_authorization_server(evil: Hosted) -> None:
    with_key = ServerConfig(key="hosted", transport="http", url=evil.url, headers={"X-Api-Key": "of-mine"})
    await log_in(with_key, browse, 20)
    assert evil.seen("mcp")[-1]["api_key"] == "of-mine"
    assert {each.get("api_key", "") for each in evil.seen("token") + evil.seen("register")} == {""}


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ({"revoke_status": 0}, "it has no way to do that"),
        ({"revoke_status": 400}, "HTTP 400 for the refresh token, HTTP 400 for the access token"),
        ({"metadata": {"revocation_endpoint": "http://127.0.0.1:1/x"}}, "cannot reach http://127.0.0.1:1: "),
        ({"metadata": {"revocation_endpoint": "http://auth.example.com/x"}}, "would have the login sent unencrypted"),
        ({"revoke_status": 200, "instead": {"/oauth/revoke": {"hang": 3600}}}, "no answer within 1 s"),
        ({"revoke_status": 200}, ""),
    ],
)
async def test_why_tokens_could_not_be_revoked_is_told(
    rules: dict[str, Any], why: str, evil: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.upstream.revoking.PATIENCE", 1.0 if "instead" in rules else 20.0)
    evil.control(**rules)
    kept = await logged_in(evil)
    told = await revoke(config_of(evil), kept)
    assert why in told and bool(why) == bool(told) and not evil.leaks(told)


# Renewals.


def kept_before(hosted: Hosted, file: LoginFile) -> None:
    """A login that has expired, and can be renewed at TOKEN."""
    tokens = OAuthToken(access_token="old-access-of-mine", refresh_token="old-renewal-of-mine", scope="tools more")
    file.write(Kept(tokens, 1.0, OAuthClientInformationFull(client_id="c", redirect_uris=None), None, None))


async def renewed(hosted: Hosted, tmp_path: Path, *answers: dict[str, Any]) -> tuple[str, Kept | None]:
    """How a request for each answer ends ("" where it got a token along), and what is kept then."""
    file = LoginFile(config_of(hosted), {"XDG_STATE_HOME": str(tmp_path)})
    kept_before(hosted, file)
    said: list[str] = []
    async with httpx2.AsyncClient(auth=Login(config_of(hosted), file)) as client:
        for answer in answers:
            hosted.control(open=True, instead={"/token": answer})
            try:
                await client.get(hosted.url)
                said.append("")
            except ConnectError as error:
                said.append(str(error))
    return "; ".join(said), file.read()


async def test_a_renewal_keeps_what_it_does_not_replace(evil: Hosted, tmp_path: Path) -> None:
    said, kept = await renewed(evil, tmp_path, {"json": {"access_token": "new", "token_type": "bearer"}})
    assert not said and kept is not None
    assert (kept.tokens.refresh_token, kept.tokens.scope) == ("old-renewal-of-mine", "tools more")
    assert evil.seen("mcp")[-1]["authorization"] == "Bearer new"
    rotated = {"access_token": "newer", "token_type": "bearer", "refresh_token": "next", "expires_in": -5}
    said, kept = await renewed(evil, tmp_path, {"json": rotated})
    assert not said and kept is not None and (kept.tokens.refresh_token, kept.expires_at) == ("next", None)


@pytest.mark.parametrize(
    "answer",
    [
        {"json": {"access_token": "new", "token_type": "mac"}},
        {"json": {"access_token": "a\nb", "token_type": "bearer"}},
        {"text": "x" * 65536, "times": 10_000},
        {"status": 307, "headers": {"location": "https://elsewhere.example/x"}},
    ],
)
async def test_a_renewal_that_brings_no_token_loses_none(answer: dict[str, Any], evil: Hosted, tmp_path: Path) -> None:
    said, kept = await renewed(evil, tmp_path, answer)
    assert said.startswith("its login could not be renewed: ") and "of-mine" not in said
    assert kept is not None and kept.tokens.refresh_token == "old-renewal-of-mine"
    said, kept = await renewed(evil, tmp_path, answer, {"json": {"access_token": "good", "token_type": "bearer"}})
    assert said.startswith("its login could") and said.endswith("; ")
    assert kept is not None and kept.tokens.access_token == "good"


async def test_two_who_wait_for_the_lock_of_a_file_that_is_replaced_hold_it_one_after_the_other(
    evil: Hosted, tmp_path: Path
) -> None:
    file = LoginFile(config_of(evil), {"XDG_STATE_HOME": str(tmp_path)})
    kept_before(evil, file)
    inside, most = 0, 0

    async def hold() -> None:
        nonlocal inside, most
        for _ in range(3):
            async with LoginFile(config_of(evil), {"XDG_STATE_HOME": str(tmp_path)}).locked():
                inside += 1
                most = max(most, inside)
                await anyio.wait_all_tasks_blocked()
                kept_before(evil, file)  # as renewing does at its end
                inside -= 1

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(6):
                tasks.start_soon(hold)
    assert most == 1
