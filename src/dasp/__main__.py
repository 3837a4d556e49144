"""Run the command line by `python -m dasp`."""

import sys

from dasp.cli.main import main

sys.exit(main())
