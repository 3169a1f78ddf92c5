"""`rloo show`: the tables of a run as tables for people."""

from pipeline.show.evaluation import comparison
from pipeline.show.files import files
from pipeline.show.history import diagnostics, history
from pipeline.show.offline import offline
from pipeline.show.rows import rows

__all__ = ["comparison", "diagnostics", "files", "history", "offline", "rows"]
