"""The official conformance suite against the proxy, and against our everything-server alone for comparison.

Columns: `direct` (the everything-server without us), `stdio` and `http` (the proxy in pass-through in front of it),
`crossed` (the same, with a server of the other era), `bridge` (with the three tools, for what a client can ask of any
server) and `client` (the proxy as the client of the suite's own servers). What may fail is written down, with the line
of the specification that rules it out, in tests/conformance/expected/; anything else that fails is an error, and so is
what is written down and does not fail. Warnings (what the specification says one SHOULD do) are shown, and no errors.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from harness import Daemon, Place, http_server, until

ROOT = Path(__file__).parents[1]
HERE = ROOT / "tests" / "conformance"
EVERYTHING = [sys.executable, str(HERE / "everything_server.py")]
NODE = ROOT / ".cache/foreign/node"
SUITE = NODE / "node_modules/@modelcontextprotocol/conformance/dist/index.js"

ERAS = {"2025-11-25": "legacy", "2026-07-28": "modern"}
"""Revision of the protocol -> `mode` of the upstream that speaks it."""
OTHER = {"legacy": "modern", "modern": "legacy"}
COLUMNS = ("direct", "stdio", "http", "crossed", "bridge", "client")

BRIDGE = {
    "2025-11-25": [
        "server-initialize",
        "server-session-lifecycle",
        "ping",
        "tools-list",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
    ],
    "2026-07-28": [
        "tools-list",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
        "caching",
        "http-header-validation",
        "input-required-result-unsupported-methods",
    ],
}
"""What applies to any server, whatever its tools are."""
CLIENT = {
    "2025-11-25": [
        "initialize",
        "tools_call",
        "elicitation-sep1034-client-defaults",
        "sse-retry",
        "json-schema-2020-12-preservation",
    ],
    "2026-07-28": [
        "tools_call",
        "request-metadata",
        "sep-2322-client-request-state",
        "http-standard-headers",
        "http-custom-headers",
        "http-invalid-tool-headers",
        "json-schema-ref-no-deref",
        "json-schema-2020-12-preservation",
    ],
}
"""All client scenarios but those of OAuth, which the proxy does not do on its own."""
QUICK = ("stdio", "client")
"""What `--quick` runs, in every CI: the proxy as a server and as a client, over HTTP on the side of the suite."""
SPEC_KEYS = {"revision", "page", "section", "line"}
MAX_KNOWN = 3
"""How many checks may be expected to fail in pass-through, per revision."""


@dataclass
class Outcome:
    """The checks of one scenario in one column."""

    passed: int = 0
    failures: dict[str, str] = field(default_factory=dict[str, str])
    """Check -> what the suite says of it."""
    warnings: dict[str, str] = field(default_factory=dict[str, str])


@dataclass
class Run:
    """One column of one era."""

    era: str
    column: str
    folder: Path
    scenario: str | None
    problems: list[str] = field(default_factory=list[str])
    """What is neither passed nor expected to fail."""

    def suite(self, *words: str) -> None:
        """Run the suite once."""
        command = [str(NODE / "bin/node"), str(SUITE), *words, "--spec-version", self.era, "-o", str(self.folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.folder)
        with (self.folder / "output.txt").open("a", encoding="utf-8") as log:
            log.write(done.stdout + done.stderr)
        if done.returncode and not any(outcome.failures for outcome in self.outcomes.values()):
            self.problems.append(f"the suite itself failed: {(done.stderr or done.stdout).strip()[:500]}")

    def server(self, url: str) -> None:
        """The server scenarios against `url`: one, those that apply to the bridge, or all."""
        if self.scenario is not None:
            self.suite("server", "--url", url, "--scenario", self.scenario)
        elif self.column == "bridge":
            for scenario in BRIDGE[self.era]:
                self.suite("server", "--url", url, "--scenario", scenario)
        else:
            self.suite("server", "--url", url, "--suite", "all")

    def client(self) -> None:
        """The client scenarios, two at a time: each waits for processes of its own most of its time."""

        def run(scenario: str) -> None:
            self.suite("client", "--command", f"{sys.executable} {HERE / 'client.py'}", "--scenario", scenario)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(run, [self.scenario] if self.scenario else CLIENT[self.era]))

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """Scenario -> outcome, from the files that the suite has left."""
        found: dict[str, Outcome] = {}
        for file in sorted(self.folder.rglob("checks.json")):
            scenario = re.sub(r"^server-|-\d{4}-\d\d-\d\dT[\d-]+Z$", "", str(file.parent.relative_to(self.folder)))
            outcome = found.setdefault(scenario, Outcome())
            for check in json.loads(file.read_text(encoding="utf-8")):
                said = check.get("errorMessage") or check.get("description") or ""
                if check["status"] == "SUCCESS":
                    outcome.passed += 1
                elif check["status"] == "FAILURE":
                    outcome.failures[check["id"]] = said
                elif check["status"] == "WARNING":
                    outcome.warnings[check["id"]] = said
        return found

    @property
    def baseline(self) -> Path:
        """What is expected to fail, and why."""
        return HERE / "expected" / f"{self.era}-{'proxy' if self.column in ('stdio', 'http') else self.column}.yaml"

    @property
    def written(self) -> list[dict[str, Any]]:
        """The entries of the baseline."""
        return yaml.safe_load(self.baseline.read_text(encoding="utf-8")) if self.baseline.exists() else []

    @property
    def expected(self) -> set[str]:
        """`scenario:check` of everything that is expected to fail."""
        return {check for entry in self.written for check in entry["checks"]}

    def unfounded(self) -> Iterator[str]:
        """Entries of the baseline without a reason, and too many of them."""
        for entry in self.written:
            spec = entry.get("spec")
            if not (entry.get("why") and isinstance(spec, dict) and spec.keys() == SPEC_KEYS and all(spec.values())):
                yield f"{self.baseline.name}: {entry['checks'][0]} needs `why`, and in `spec` {sorted(SPEC_KEYS)}"
        if self.column in ("stdio", "http") and len(self.expected) > MAX_KNOWN:
            yield f"{self.baseline.name}: {len(self.expected)} checks are expected to fail, {MAX_KNOWN} may"

    def judge(self) -> None:
        """Compare what has failed with what is expected to."""
        outcomes, expected = self.outcomes, self.expected
        if not outcomes and self.scenario is None:
            self.problems.append("no scenario was run")
        failed = {f"{scenario}:{check}" for scenario, outcome in outcomes.items() for check in outcome.failures}
        self.problems += [f"FAILED, and not expected to: {entry}" for entry in sorted(failed - expected)]
        self.problems += [
            f"expected to fail, but passes (take it out of {self.baseline.name}): {entry}"
            for entry in sorted(expected - failed)
            if entry.partition(":")[0] in outcomes
        ]
        self.problems += self.unfounded()


@contextmanager
def serving(place: Place, column: str, mode: str) -> Iterator[str]:
    """The URL to test in a column, as long as the block lasts."""
    if column == "direct":
        with http_server(place, *EVERYTHING, "--port", "0") as port:
            yield f"http://127.0.0.1:{port}/mcp"
    elif column == "http":
        with http_server(place, *EVERYTHING, "--port", "0") as port:
            yield from proxied(place, {"url": f"http://127.0.0.1:{port}/mcp"}, mode, "off")
    else:
        search = "on" if column == "bridge" else "off"
        yield from proxied(place, {"command": EVERYTHING[0], "args": EVERYTHING[1:]}, mode, search)


def answers(url: str, tool: str) -> bool:
    """Whether a call of `tool` at `url` succeeds by now."""
    era, prefix = "2026-07-28", "io.modelcontextprotocol/"
    meta = {f"{prefix}protocolVersion": era, f"{prefix}clientCapabilities": {}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": {}, "_meta": meta}}
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": era,
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    request = urllib.request.Request(url, json.dumps(call).encode(), headers)
    with suppress(OSError), urllib.request.urlopen(request, timeout=30) as answer:
        said = answer.read().decode()
        return '"content"' in said and '"isError":true' not in said.replace(" ", "")
    return False


def proxied(place: Place, server: Mapping[str, Any], mode: str, search: str) -> Iterator[str]:
    """The URL of the proxy in front of `server`, which may ask its clients for all there is."""
    entry = {**server, "mode": mode, "client_requests": ["elicitation", "sampling", "roots"]}
    config = place.config({"everything": entry}, tool_search={"enabled": search})
    with Daemon(place, "--config", str(config)) as daemon:

        def ready() -> bool:
            return answers(daemon.url, "everything__test_simple_text")

        try:
            until(ready, "the proxy has connected to the everything-server")
            yield daemon.url
        finally:
            (place.folder / "proxy.log").write_text(daemon.stderr.text, encoding="utf-8")


def run(era: str, column: str, folder: Path, scenario: str | None) -> Run:
    """All of one column, in a folder of its own; every process that it starts is gone at its end."""
    folder.mkdir(parents=True)
    results = Run(era, column, folder / "results", scenario)
    results.folder.mkdir()
    place = Place(folder)
    try:
        if column == "client":
            results.client()
        else:
            mode = OTHER[ERAS[era]] if column == "crossed" else ERAS[era]
            with serving(place, column, mode) as url:
                results.server(url)
    except AssertionError as error:
        results.problems.append(str(error))
    finally:
        place.clear()
    results.judge()
    return results


def cell(scenario: str, outcome: Outcome | None, expected: set[str]) -> str:
    if outcome is None:
        return "-"
    failed = len(outcome.failures)
    known = sum(f"{scenario}:{check}" in expected for check in outcome.failures)
    if failed:
        return f"FAIL {failed - known}" if failed > known else f"known {known}"
    return f"ok {outcome.passed}" + (f" ({len(outcome.warnings)} w)" if outcome.warnings else "")


def table(era: str, runs: Sequence[Run]) -> str:
    """Scenario by column, then what failed or warned, in the suite's words."""
    found = {each.column: (each.outcomes, each.expected) for each in runs}
    scenarios = list(dict.fromkeys(name for outcomes, _ in found.values() for name in outcomes))
    width = max(map(len, scenarios), default=10)
    said: dict[str, list[str]] = {}
    for column, (outcomes, expected) in found.items():
        for scenario, outcome in outcomes.items():
            for check, words in outcome.failures.items():
                mark = "known " if f"{scenario}:{check}" in expected else "FAILED"
                said.setdefault(f"{mark} {scenario}:{check}: {words[:300]}", []).append(column)
            for check, words in outcome.warnings.items():
                said.setdefault(f"warns  {scenario}:{check}: {words[:300]}", []).append(column)

    def line(title: str, cells: Iterable[str]) -> str:
        return f"{title:{width}}  " + "".join(f"{text:12}" for text in cells).rstrip()

    clean = (f"{sum(not o.failures for o in outcomes.values())}/{len(outcomes)}" for outcomes, _ in found.values())
    return "\n".join(
        [
            "",
            line(era, found),
            *(
                line(s, (cell(s, outcomes.get(s), expected) for outcomes, expected in found.values()))
                for s in scenarios
            ),
            line("clean", clean),
            *(f"{words} [{', '.join(columns)}]" for words, columns in sorted(said.items())),
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser("conformance", description="The official conformance suite against the proxy.")
    parser.add_argument("--era", choices=ERAS, help="only this revision")
    parser.add_argument("--direct", action="store_true", help="only the everything-server, without the proxy")
    parser.add_argument("--upstream", choices=("stdio", "http"), help="only the pass-through to such an upstream")
    parser.add_argument("--crossed", action="store_true", help="only the pass-through to a server of the other era")
    parser.add_argument("--bridge", action="store_true", help="only the three tools")
    parser.add_argument("--client", action="store_true", help="only the proxy as a client")
    parser.add_argument("--scenario", help="only this scenario (without --client, a server scenario)")
    parser.add_argument("--quick", action="store_true", help="only the columns that CI runs")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep what the suite and the proxy wrote")
    options = parser.parse_args()
    if not SUITE.exists():
        print("The conformance suite is not there: scripts/foreign could not build .cache/foreign/node.")
        return 1

    named = [c for c in COLUMNS if getattr(options, c, False) or c == options.upstream]
    columns = named or (QUICK if options.quick else COLUMNS)
    if options.scenario and not options.client:
        columns = [c for c in columns if c != "client"]
    folder = options.keep or Path(tempfile.mkdtemp(prefix="conformance-"))
    began, failed = time.monotonic(), False
    try:
        for era in [options.era] if options.era else ERAS:
            runs = [run(era, column, folder / era / column, options.scenario) for column in columns]
            print(table(era, runs), flush=True)
            for each in runs:
                for problem in each.problems:
                    failed = True
                    print(f"{era} {each.column}: {problem}")
    finally:
        if not options.keep:
            shutil.rmtree(folder)
    print(f"\n{'FAILED' if failed else 'As expected'} after {time.monotonic() - began:.0f} s")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
