"""The benchmarks are scripts beside each other, and import each other by their plain names."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
