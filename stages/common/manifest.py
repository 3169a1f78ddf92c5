"""Manifests: what a stage wrote, with sizes and hashes. Written last: without one, nothing of the stage is finished."""

from stages.common import paths
from stages.common.files import publish, published
from stages.common.fingerprint import file_hash
from stages.common.write_json import write_json


def write_manifest(stage: str, name: str) -> None:
    """Of everything published since the stage began."""
    files = [
        file
        for target in published
        for file in (sorted(p for p in target.rglob("*") if p.is_file()) if target.is_dir() else [target])
        if target != paths.SECONDS_CSV
    ]
    content = {str(file): {"size": file.stat().st_size, "hash": file_hash(file)} for file in files}
    with publish(paths.manifest(stage, name)) as scratch:
        write_json({"files": content}, scratch)
