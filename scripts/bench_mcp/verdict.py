"""What `--check` demands: ratios far outside the bars fail, times never do, so that a busy machine cannot.

The bars themselves (docs/performance.md) are for a quiet machine and the whole duel.
"""

from collections.abc import Mapping
from typing import Any

STDIO_RATIO = 4.0
"""p50 over stdio, times that of a direct connection; the bar is 1.8."""
HTTP_RATIO = 8.0
"""The same over Streamable HTTP; the bar is 4."""
CPU_RATIO = 3.0
"""CPU of a call, times that of a proxy that only parses and rewrites JSON (`floor-json`)."""
OF_DIRECT = 0.06
"""Throughput at 64, as part of a direct connection's; the bar is .4."""
PROGRESS = 5
KEEPS = ("echo", "content", "structured", "meta", "isError", "cancel")


def judge(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What is wrong with the figures of a duel with `keeps`, target -> figures; empty where all is well."""
    wrong = [f"{name}: {figures['error']}" for name, figures in found.items() if "error" in figures]
    floor = found.get("floor-json", {}).get("cpu_us")
    ours = {name: figures for name, figures in found.items() if name.startswith("ours") and "error" not in figures}
    if not ours or floor is None:
        wrong.append("nothing to judge: ours and floor-json must both be measured")
    for name, figures in ours.items():
        http = "http" in name.split("-") and "up" not in name
        limit = HTTP_RATIO if http else STDIO_RATIO
        if figures["ratio"] > limit:
            wrong.append(f"{name}: p50 is {figures['ratio']:.1f} x direct, more than {limit:g}")
        if not http and floor is not None and figures["cpu_us"] > CPU_RATIO * floor:
            wrong.append(
                f"{name}: {figures['cpu_us']:.0f} us CPU a call, more than {CPU_RATIO:g} x floor-json's {floor:.0f}"
            )
        if not http and figures["of_direct"] < OF_DIRECT:
            wrong.append(f"{name}: {figures['of_direct']:.2f} of direct throughput at 64, less than {OF_DIRECT:g}")
        keeps = figures["keeps"]
        wrong += [f"{name}: {key} does not arrive" for key in KEEPS if keeps.get(key) is not True]
        if keeps.get("progress") != PROGRESS:
            wrong.append(f"{name}: {keeps.get('progress')} of {PROGRESS} progress notifications arrive")
    return wrong
