"""`python -m stages.offline`."""

import sys

from stages.entry import main

sys.exit(main("offline", sys.argv[1:]))
