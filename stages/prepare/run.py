"""Stage `prepare`: what a run starts from. Parts: `sources` -> hashes of what comes from outside, `model` -> base/,
`prompts` -> prompts.parquet, `policy` -> i0000, `reference` -> kl_reference/, `options` and `acceptance` -> the files
that stand between options and stages.

A part imports what it needs when it runs: `sources` runs each time, and must not wait for torch.
"""

from stages.common.journal import Journal
from stages.common.libraries import imported
from stages.common.params import Params

PLACES = {"prompts": "prompts.run"}


def run(part: str, params: Params, journal: Journal) -> None:
    imported(f"stages.prepare.{PLACES.get(part, part)}", journal).run(params, journal)
