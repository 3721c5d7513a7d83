"""Runs mini-swe-agent's command on the task of the case."""

import json
import os
import sys
from pathlib import Path

task = json.loads(Path(os.environ["SPARRING_CASE_FILE"]).read_text())["input"]
os.environ |= {
    "MSWEA_CONFIGURED": "true",
    "MSWEA_GLOBAL_CONFIG_DIR": "/tmp",
    "MSWEA_COST_TRACKING": "ignore_errors",
    "MSWEA_SILENT_STARTUP": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}
command = Path(sys.executable).parent / "mini"
options = ["--yolo", "--exit-immediately", "--cost-limit", "0", "--output", "/tmp/trajectory.json"]
model = f"openai/{os.environ['SPARRING_MODEL']}"
os.execv(sys.executable, [sys.executable, str(command), *options, "-m", model, "-t", task])
