import pytest

from proxy.errors import ConfigError
from proxy.hosts import ROWS, HostTable
from proxy.hosts.programs import PROGRAMS


@pytest.mark.parametrize(
    ("client", "row"),
    [
        ("claude-code", "claude-code"),
        ("codex-mcp-client", "codex"),
        ("gemini-cli-mcp-client", "gemini"),
        ("opencode", "opencode"),
        ("something else", "unknown"),
        (None, "unknown"),
    ],
)
def test_a_client_is_known_by_the_name_it_sends(client: str | None, row: str) -> None:
    assert HostTable().row_for(client, None).name == row


def test_the_configured_row_wins_over_the_clients_name() -> None:
    assert HostTable().row_for("claude-code", "openai-1024").description == 1024


def test_a_row_that_does_not_exist_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match="did you mean 'claude-code'"):
        HostTable().row_for(None, "claud-code")


def test_every_row_states_its_source_and_lets_the_listing_begin_in_the_first_description() -> None:
    for row in ROWS:
        assert row.source
        assert row.slots[0] == "search"
        assert all(row.limit(slot) != 0 for slot in row.slots)


def test_no_name_stands_for_two_rows() -> None:
    names = [row.name for row in ROWS]
    clients = [client for row in ROWS for client in row.client_names]
    assert len(set(names)) == len(names)
    assert len(set(clients)) == len(clients)


def test_every_program_that_we_are_installed_in_has_a_row() -> None:
    assert {program.name for program in PROGRAMS} <= {row.name for row in ROWS}
