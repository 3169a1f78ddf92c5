"""`python -m stages.score`."""

import sys

from stages.entry import main

sys.exit(main("score", sys.argv[1:]))
