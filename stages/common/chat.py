"""Chat templates: what goes into them besides the turns."""

from datetime import datetime

A_FIXED_DAY = datetime(2024, 7, 26)  # for templates that write the date: what they render must not change with it
