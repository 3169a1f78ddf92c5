"""`python -m stages.preferences`."""

import sys

from stages.entry import main

sys.exit(main("preferences", sys.argv[1:]))
