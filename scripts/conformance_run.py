"""The official conformance suite against the proxy, and against our everything-server alone for comparison.

Columns: `direct` (the everything-server without us), `stdio` and `http` (the proxy in pass-through in front of it),
`bridge` (with the three tools, for what a client can ask of any server) and `client` (the proxy as the client of the
suite's own servers). What may fail is written down, with the reason, in tests/conformance/expected/; anything else
that fails, and anything written down that no longer does, is an error.
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import Daemon, Place, http_server, until

ROOT = Path(__file__).parents[1]
HERE = ROOT / "tests" / "conformance"
EVERYTHING = [sys.executable, str(HERE / "everything_server.py")]
NODE = ROOT / ".cache/foreign/node"
SUITE = NODE / "node_modules/@modelcontextprotocol/conformance/dist/index.js"

ERAS = {"2025-11-25": "legacy", "2026-07-28": "modern"}
"""Revision of the protocol -> `mode` of the upstream that speaks it."""
COLUMNS = ("direct", "stdio", "http", "bridge", "client")

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
QUICK = {"direct": False, "stdio": False, "http": True, "bridge": True, "client": False}
"""What `--quick` runs: `http` passes everything that `stdio` does, but for the pipes, which have tests of their own."""


@dataclass
class Outcome:
    """The checks of one scenario in one column."""

    passed: int = 0
    failures: list[str] = field(default_factory=list[str])
    warnings: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        if self.failures:
            return f"FAIL {len(self.failures)}/{len(self.failures) + self.passed}"
        return f"ok {self.passed}" + (f" ({len(self.warnings)} w)" if self.warnings else "")


def outcomes(folder: Path) -> dict[str, Outcome]:
    """Scenario -> outcome, from the files that the suite has left."""
    found: dict[str, Outcome] = {}
    for file in sorted(folder.rglob("checks.json")):
        scenario = re.sub(r"^server-|-\d{4}-\d\d-\d\dT[\d-]+Z$", "", str(file.parent.relative_to(folder)))
        outcome = found.setdefault(scenario, Outcome())
        for check in json.loads(file.read_text(encoding="utf-8")):
            said = f"{check['id']}: {check.get('errorMessage') or check.get('description')}"
            if check["status"] == "SUCCESS":
                outcome.passed += 1
            elif check["status"] == "FAILURE":
                outcome.failures.append(said)
            elif check["status"] == "WARNING":
                outcome.warnings.append(said)
    return found


@dataclass
class Run:
    """One column of one era."""

    era: str
    column: str
    folder: Path
    scenario: str | None
    problems: list[str] = field(default_factory=list[str])
    """What the suite says is neither passed nor expected to fail."""

    def suite(self, *words: str) -> None:
        """Run the suite once; the expected failures are those of this column, where there are any."""
        baseline = HERE / "expected" / f"{self.era}-{self.kind}.yaml"
        expected = ["--expected-failures", str(baseline)] if baseline.exists() else []
        command = [str(NODE / "bin/node"), str(SUITE), *words, "--spec-version", self.era, "-o", str(self.folder)]
        done = subprocess.run([*command, *expected], capture_output=True, text=True, check=False, cwd=self.folder)
        (self.folder / "output.txt").open("a", encoding="utf-8").write(done.stdout + done.stderr)
        if done.returncode:
            self.problems.append(self._reason(done.stdout + done.stderr))

    @property
    def kind(self) -> str:
        return "proxy" if self.column in ("stdio", "http") else self.column

    @staticmethod
    def _reason(output: str) -> str:
        plain = re.sub(r"\x1b\[\d*m", "", output)
        start = re.search(r"^(Unexpected failures|Stale baseline)", plain, re.MULTILINE)
        return plain[start.start() :].strip() if start else "\n".join(plain.strip().splitlines()[-3:])

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
        """The client scenarios."""
        for scenario in [self.scenario] if self.scenario else CLIENT[self.era]:
            self.suite("client", "--command", f"{sys.executable} {HERE / 'client.py'}", "--scenario", scenario)


@contextmanager
def serving(place: Place, column: str, mode: str) -> Iterator[str]:
    """The URL to test in a column, as long as the block lasts."""
    if column == "direct":
        with http_server(place, *EVERYTHING, "--port", "0") as port:
            yield f"http://127.0.0.1:{port}/mcp"
    elif column == "http":
        with http_server(place, *EVERYTHING, "--port", "0") as port:
            yield from proxied(place, {"url": f"http://127.0.0.1:{port}/mcp", "mode": mode}, "off")
    else:
        search = "on" if column == "bridge" else "off"
        yield from proxied(place, {"command": EVERYTHING[0], "args": EVERYTHING[1:], "mode": mode}, search)


def proxied(place: Place, server: Mapping[str, Any], search: str) -> Iterator[str]:
    config = place.config({"everything": server}, tool_search={"enabled": search})
    with Daemon(place, "--config", str(config)) as daemon:

        def ready() -> bool:
            with urllib.request.urlopen(f"{daemon.base}/health", timeout=10) as answer:
                return json.load(answer)["servers"]["everything"]["state"] == "ready"

        try:
            until(ready, "the proxy has connected to the everything-server")
            yield daemon.url
        finally:
            (place.folder / "proxy.log").write_text(daemon.stderr.text, encoding="utf-8")


def run(era: str, column: str, folder: Path, scenario: str | None, mode: str) -> Run:
    """All of one column, in a folder of its own; every process that it starts is gone at its end."""
    folder.mkdir(parents=True)
    results = Run(era, column, folder / "results", scenario)
    results.folder.mkdir()
    place = Place(folder)
    try:
        if column == "client":
            results.client()
        else:
            with serving(place, column, mode) as url:
                results.server(url)
    except AssertionError as error:
        results.problems.append(str(error))
    finally:
        place.clear()
    return results


def table(era: str, runs: Sequence[Run]) -> str:
    """Scenario by column, then what failed or warned, in the suite's words."""
    found = {each.column: outcomes(each.folder) for each in runs}
    scenarios = list(dict.fromkeys(name for each in found.values() for name in each))
    width = max(map(len, scenarios), default=10)
    lines = [f"\n{era:{width}}  " + "".join(f"{c:14}" for c in found)]
    lines += [
        f"{s:{width}}  " + "".join(f"{outcome if (outcome := each.get(s)) else '-'!s:14}" for each in found.values())
        for s in scenarios
    ]
    clean = {c: sum(not o.failures for o in each.values()) for c, each in found.items()}
    lines.append(f"{'clean':{width}}  " + "".join(f"{f'{clean[c]}/{len(each)}':14}" for c, each in found.items()))
    for column, each in found.items():
        for scenario, outcome in each.items():
            lines += [f"  {column} {scenario}: FAILED {said}" for said in outcome.failures]
            lines += [f"  {column} {scenario}: warning {said}" for said in outcome.warnings]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser("conformance", description=__doc__.split("\n")[0])
    parser.add_argument("--era", choices=ERAS, help="only this revision")
    parser.add_argument("--direct", action="store_true", help="only the everything-server, without the proxy")
    parser.add_argument("--upstream", choices=("stdio", "http"), help="only the pass-through to such an upstream")
    parser.add_argument("--bridge", action="store_true", help="only the three tools")
    parser.add_argument("--client", action="store_true", help="only the proxy as a client")
    parser.add_argument("--scenario", help="only this scenario (without --client, a server scenario)")
    parser.add_argument("--mode", choices=("legacy", "modern", "auto"), help="the upstream's era; else the client's")
    parser.add_argument("--quick", action="store_true", help="only what is not also covered by a slower column")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep what the suite and the proxy wrote")
    options = parser.parse_args()
    if not SUITE.exists():
        print("The conformance suite is not there: scripts/foreign could not build .cache/foreign/node.")
        return 1

    named = [c for c in COLUMNS if getattr(options, c, False) or c == options.upstream]
    columns = named or [c for c in COLUMNS if QUICK[c] or not options.quick]
    if options.scenario and not options.client:
        columns = [c for c in columns if c != "client"]
    folder = options.keep or Path(tempfile.mkdtemp(prefix="conformance-"))
    began, failed = time.monotonic(), False
    try:
        for era in [options.era] if options.era else ERAS:
            mode = options.mode or ERAS[era]
            runs = [run(era, column, folder / era / column, options.scenario, mode) for column in columns]
            print(table(era, runs), flush=True)
            for each in runs:
                for problem in each.problems:
                    failed = True
                    print(f"\n{era} {each.column}: {problem}")
    finally:
        if not options.keep:
            shutil.rmtree(folder)
    print(f"\n{'FAILED' if failed else 'As expected'} after {time.monotonic() - began:.0f} s")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
