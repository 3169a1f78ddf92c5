"""`python -m stages.evaluate`."""

import sys

from stages.entry import main

sys.exit(main("evaluate", sys.argv[1:]))
