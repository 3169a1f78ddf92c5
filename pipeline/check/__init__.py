"""`rloo check`: everything that can be known before a run, in seconds."""
