"""`python -m stages.advantage`."""

import sys

from stages.entry import main

sys.exit(main("advantage", sys.argv[1:]))
