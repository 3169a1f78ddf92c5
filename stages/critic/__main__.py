"""`python -m stages.critic`."""

import sys

from stages.entry import main

sys.exit(main("critic", sys.argv[1:]))
