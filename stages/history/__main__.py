"""`python -m stages.history`."""

import sys

from stages.entry import main

sys.exit(main("history", sys.argv[1:]))
