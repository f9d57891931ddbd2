"""Run the agent from wherever its folder was copied to, as `python3 FOLDER COMMAND`."""

import importlib
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path[0] = str(FOLDER.parent)
sys.exit(importlib.import_module(f"{FOLDER.name}.main").main(sys.argv[1:]))
