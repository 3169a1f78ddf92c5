"""`python -m stages.rollout`."""

import sys

from stages.entry import main

sys.exit(main("rollout", sys.argv[1:]))
