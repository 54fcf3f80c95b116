"""What a summary says of a server."""

import pytest
from listing_reader import real_servers, server

from proxy.listing.texts import server_texts
from proxy.listing.topics import nouns, singular


def topic(key: str, tools: list[str], width: int = 60, description: str | None = None) -> str:
    texts = server_texts(server(key, tools, description=description))
    assert texts is not None
    return at(texts.summaries, width)


def at(summaries: tuple[tuple[int, str], ...], width: int) -> str:
    line = [line for upto, line in summaries if upto <= width][-1]
    return line.partition("): ")[2]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("airtable", "record, table, comment"),
        ("aws-iam", "policy, user, group, access key, role"),
        ("chrome-devtools", "page, console message, network request, performance, fill"),
        ("github", "pull request, issue, file, repository, branch, comment"),
        ("github-openapi", "repo, org, action, user, issue, copilot, team, code, pull"),
        ("gitlab", "merge request, pipeline, group, work item, issue, note"),
        ("grafana", "label, dashboard, tempo, alerting, annotation, datasource"),
        ("linear", "issue, release, project, customer, o auth, initiative"),
        ("memory", "entity, node, observation, relation, graph"),
        ("notion", "data source, page, block, comment, user, children, markdown"),
        ("playwright", "click close console_messages drag drop emulate_media …"),
        ("twilio", "sip, phone number, recording, usage, call, key, connect app"),
        ("clickhouse", "list_databases list_tables run_query"),
    ],
)
def test_the_topic_of_a_real_server_is_what_its_tools_work_on(key: str, expected: str) -> None:
    texts = server_texts(next(one for one in real_servers() if one.key == key))
    assert texts is not None
    assert at(texts.summaries, 60) == expected


def test_the_topic_is_never_longer_than_its_width_and_grows_with_it() -> None:
    for one in real_servers():
        texts = server_texts(one)
        assert texts is not None
        found = [(width, line.partition("): ")[2]) for width, line in texts.summaries]
        assert found
        assert all(len(text) <= width for width, text in found)
        assert [len(text) for _, text in found] == sorted({len(text) for _, text in found})


def test_a_configured_description_wins_and_is_one_line() -> None:
    tools = [f"{verb}_page" for verb in ("get", "list", "create", "delete")] * 3
    assert topic("wiki", tools, description="our wiki,\n - github (3): not this") == "our wiki, - github (3): not this"


def test_few_short_names_are_the_topic_themselves() -> None:
    assert topic("time", ["get_time", "convert_time"]) == "convert_time get_time"


def test_the_servers_own_name_is_no_topic() -> None:
    tools = [f"{verb}_{noun}" for verb in ("get", "list", "create") for noun in ("jira_issue", "jira_board", "sprint")]
    assert topic("jira", tools) == "board, issue, sprint"


@pytest.mark.parametrize("key", ["my__board", "my board", "board_"])
def test_the_hash_that_public_names_end_in_is_no_topic(key: str) -> None:
    tools = [f"{verb}_{noun}" for verb in ("get", "list", "create") for noun in ("board", "issue", "sprint")]
    assert topic(key, tools) == "issue, sprint"


def test_another_servers_tools_do_not_change_a_topic() -> None:
    tools = [f"{verb}_{noun}" for verb in ("get", "list", "create") for noun in ("board", "issue", "sprint")]
    assert topic("one", tools) == topic("two", tools)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("create_pull_request", ["pull", "request"]),
        ("list_issues_by_label", ["issue"]),
        ("dns_records_delete", ["dns", "record"]),
        ("record_list_v2", ["record"]),
        ("searchCompanies", ["company"]),
        ("run", ["run"]),
    ],
)
def test_the_nouns_of_a_name(name: str, expected: list[str]) -> None:
    assert nouns(name) == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [("issues", "issue"), ("queries", "query"), ("status", "status"), ("addresses", "address"), ("boxes", "box"),
     ("dns", "dns"), ("access", "access"), ("repos", "repo"), ("analysis", "analysis")],
)  # fmt: skip
def test_singular(word: str, expected: str) -> None:
    assert singular(word) == expected
