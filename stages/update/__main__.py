"""`python -m stages.update`."""

import sys

from stages.entry import main

sys.exit(main("update", sys.argv[1:]))
