"""Upstream wrapper (like npx) that ignores stdin EOF and SIGTERM and has a grandchild holding the pipes.

argv[1]: file to which "parent <pid>\\nchild <pid>" is written. Seen in: NousResearch/hermes-agent#50169, #60650,
ihor-sokoliuk/mcp-searxng#60 (1,073 orphans, 70 GB), ProxymanApp/Proxyman#2727 (1,088), codefuturist/email-mcp#60,
web-infra-dev/midscene#2157 (EPIPE loop at 100 % CPU), supercorp-ai/supergateway#108/#141.
Right behaviour: when the proxy ends by EOF on stdin, SIGTERM, SIGINT or a crash of one upstream task, both pids are
gone within 5 s (close stdin, wait, SIGTERM the group, SIGKILL the group); on reconnect the old tree dies before the
new one starts. A test must count a zombie (State Z in /proc/<pid>/status) as gone: in containers PID 1 may not reap.
mcp 2.3.0 alone needs 4 s for this one (2 s after EOF, 2 s after SIGTERM), per server: close servers in parallel.
After kill -9 of the proxy the wrapper at least sees EOF; nothing may spin.
"""

import os
import signal
import subprocess
import sys
import time

from _raw import Server, serve, text, tool

signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
child = subprocess.Popen(
    [
        sys.executable,
        "-c",
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "t = time.time()\nwhile time.time() - t < 120: time.sleep(1)",
    ]
)
if len(sys.argv) > 1:
    with open(sys.argv[1], "w") as f:
        f.write(f"parent {os.getpid()}\nchild {child.pid}\n")
serve(Server([tool("alive", "Still here.")], lambda n, a, p, q: text("alive"), name="stubborn"))
deadline = time.time() + 120  # ignore EOF (bounded, so that a failed test cleans itself up)
while time.time() < deadline:
    time.sleep(0.5)
