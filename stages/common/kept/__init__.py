"""What a stage has finished while it is at work, kept so that a run that is killed goes on from there.

    keeping.py   where, how often, and until when
    key.py       the hash of everything that a result depends on
    shard.py     one file: tensors and notes with their own hash
    parts.py     results that are computed part by part, each on its own
    steps.py     training: weights, optimizer state and the rows of its table after a step

Keeping is a convenience: what cannot be kept, or read, is computed again, and no result depends on it.
"""
