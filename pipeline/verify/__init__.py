"""`rloo verify`: are the files of a run, and the objects in DVC's cache, what its stages wrote?"""
