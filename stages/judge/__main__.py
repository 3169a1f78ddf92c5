"""`python -m stages.judge`."""

import sys

from stages.entry import main

sys.exit(main("judge", sys.argv[1:]))
