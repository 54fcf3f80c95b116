"""The scripts that show what no single test can, in short."""

import subprocess
import sys

import pytest
from hostile_proxy import ROOT


@pytest.mark.slow
@pytest.mark.timeout(150)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_killing_servers_under_load_hurts_only_the_calls_on_them() -> None:
    """T1, T5, T6, T9; scripts/chaos.py runs as long as one likes."""
    command = [sys.executable, str(ROOT / "scripts" / "chaos.py"), "--seconds", "20", "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=140, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
