"""`python -m stages.prepare`."""

import sys

from stages.entry import main

sys.exit(main("prepare", sys.argv[1:]))
