"""Windows of a long run: the open one is pipeline/plan.yaml and dvc.lock, finished ones keep theirs here."""
