"""`python -m stages.sft`."""

import sys

from stages.entry import main

sys.exit(main("sft", sys.argv[1:]))
