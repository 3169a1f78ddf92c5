"""`rloo check`: everything that can be known before a run, in seconds.

Libraries read whether they may draw progress bars when they are imported, so it is said here.
"""

import os

os.environ.setdefault("TQDM_DISABLE", "1")
