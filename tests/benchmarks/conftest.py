"""Benchmarks and tools are scripts that import each other by their plain names."""

import sys
from pathlib import Path

for name in ("benchmarks", "tools"):
    sys.path.insert(0, str(Path(__file__).parents[2] / name))
