"""The command line of the bench."""

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench_mcp.report import markdown
from bench_mcp.scenarios import SCENARIOS, Options, duel, guarded
from bench_mcp.targets import BY_NAME, CHECKED, TARGETS, Target, install_peers
from bench_mcp.verdict import judge


def chosen(words: str | None) -> tuple[list[Target], dict[str, str]]:
    """The targets of a comma list (default: all), the direct ones always; and those skipped, with the reason."""
    names = [name for name in words.split(",") if name] if words else [target.name for target in TARGETS]
    if unknown := [name for name in names if name not in BY_NAME]:
        raise SystemExit(f"unknown target {', '.join(unknown)}; --list shows them")
    bases = {"direct", *(BY_NAME[name].base for name in names)}
    wanted = [target for target in TARGETS if target.name in bases or target.name in names]
    skipped = {target.name: why for target in wanted if (why := target.missing)}
    return [target for target in wanted if target.name not in skipped], skipped


async def measure(
    options: Options, scenarios: Sequence[str], targets: Sequence[Target], folder: Path, *, keeps: bool
) -> dict[str, dict[str, dict[str, Any]]]:
    """Scenario -> target -> figures."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    for name in scenarios:
        if name == "duel":
            found[name] = await duel(options, targets, folder / name, keeps=keeps)
            continue
        found[name] = {}
        for target in targets:
            if name != "lat" and target.name == "direct-http":
                continue
            began = time.perf_counter()
            found[name][target.name] = await guarded(options, name, target, folder / name / target.name)
            print(f"{name} {target.name}: {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
    return found


def head(command: Sequence[str]) -> str:
    """Where and how it was measured."""
    load, python = os.getloadavg()[0], sys.version.split()[0]
    return (
        f"`scripts/bench {' '.join(command)}`, {time.strftime('%Y-%m-%d')}, {os.cpu_count()} CPUs, load {load:.1f} at "
        f"the end, Python {python}."
    )


def check(found: Mapping[str, Mapping[str, Any]]) -> int:
    """Print the verdict; the exit code."""
    wrong = judge(found)
    for name, figures in found.items():
        if "ratio" in figures:
            print(
                f"{name:18} {figures['ratio']:5.2f} x direct  {figures['cpu_us']:6.0f} us CPU  "
                f"{figures['of_direct']:.2f} of direct at 64  {figures.get('keeps', '')}"
            )
    print("\n".join(wrong) if wrong else "all well")
    return 1 if wrong else 0


def main() -> int:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--target", help="comma list; default: all that are installed")
    parser.add_argument("--scenario", default="duel,lat,wide,cold20", help=f"comma list of duel,{','.join(SCENARIOS)}")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--rounds", type=int, help="of the duel")
    parser.add_argument("--check", action="store_true", help="a short duel; exit 1 where ratios are far off the bars")
    parser.add_argument("--md", metavar="FILE", help="write the tables there too")
    parser.add_argument("--json", metavar="FILE", help="write all figures there")
    parser.add_argument("--keep", action="store_true", help="keep the folder with logs and configs")
    parser.add_argument("--list", action="store_true", help="show the targets")
    parser.add_argument("--install-peers", action="store_true", help="install the peers into .cache/peers first")
    given = parser.parse_args()
    if given.list:
        for target in TARGETS:
            absent = " (absent)" if target.missing else ""
            print(f"{target.name:18} {target.down:5} <- {target.up:5} {target.about}{absent}")
        return 0
    if given.install_peers:
        install_peers()
    scenarios = ["duel"] if given.check else given.scenario.split(",")
    if unknown := [name for name in scenarios if name != "duel" and name not in SCENARIOS]:
        raise SystemExit(f"unknown scenario {', '.join(unknown)}")
    targets, skipped = chosen(",".join(CHECKED) if given.check else given.target)
    options = Options(rounds=5, calls=60) if given.check else Options.quick() if given.quick else Options()
    if given.rounds:
        options = Options(**{**vars(options), "rounds": given.rounds})
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        found = asyncio.run(measure(options, scenarios, targets, folder, keeps=given.check))
    finally:
        if given.keep:
            print(f"kept {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if given.json:
        Path(given.json).write_text(json.dumps(found, indent=1), encoding="utf-8")
    if given.check:
        return check(found["duel"])
    versions = {target.name: target.version for target in targets if target.package}
    text = markdown(found, head(sys.argv[1:]), versions, skipped)
    print(text)
    if given.md:
        Path(given.md).write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
