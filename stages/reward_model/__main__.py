"""`python -m stages.reward_model`."""

import sys

from stages.entry import main

sys.exit(main("reward_model", sys.argv[1:]))
