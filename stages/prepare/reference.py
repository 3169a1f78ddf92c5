"""`prepare reference`: the reference policy of the KL, where it is another model than the initial policy.

The folder is there without one, too, as DVC wants it: reference.json says which model the KL is measured to.
"""

from stages.common import paths
from stages.common.files import publish
from stages.common.journal import Journal
from stages.common.params import Params
from stages.common.write_json import write_json


def run(params: Params, journal: Journal) -> None:
    with publish(paths.KL_REFERENCE) as scratch:
        scratch.mkdir()
        write_json({"reference": str(paths.REFERENCE)}, scratch / "reference.json")
    journal.say("the reference is the initial policy")
