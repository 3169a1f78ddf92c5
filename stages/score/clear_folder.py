"""Removing a folder in which a program may have made others thousands deep, which no recursion gets down."""

import os
import shutil


def clear(folder: str) -> None:
    """Remove the folder, however deep what lies in it: folders inside are emptied into it, one level at a time."""
    count = 0
    while True:
        inner = [entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
        if not inner:
            break
        for path in inner:
            os.chmod(path, 0o700)
            for name in os.listdir(path):
                count += 1
                os.rename(os.path.join(path, name), os.path.join(folder, f".{count}.cleared"))
            os.rmdir(path)
    shutil.rmtree(folder)
