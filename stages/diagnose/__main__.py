"""`python -m stages.diagnose`."""

import sys

from stages.entry import main

sys.exit(main("diagnose", sys.argv[1:]))
