"""How many cores this process may use. Apart from what imports torch, so that light stages can tell, too."""

import os


def available_cores() -> int:
    """Those that the scheduler grants this process, where the system says so."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
