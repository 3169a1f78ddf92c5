"""Stage `sft`: supervised fine-tuning of the base into the initial policy, which is the reference too.

Parts: `demonstrations` -> demonstrations.parquet, `policy` -> reference/ and sft.parquet.
"""

from stages.common.journal import Journal
from stages.common.params import Params
from stages.common.policy import Models
from stages.sft import demonstrations, policy


def run(part: str, params: Params, models: Models, journal: Journal) -> None:
    if part == "demonstrations":
        demonstrations.run(params, models.runtime, journal)
    else:
        policy.run(params, models.runtime, journal)
