"""Commands that compute with no model do not wait for the libraries that models need."""

import subprocess
import sys

import pytest

from tests.workspace import ROOT

OF_MODELS = ("torch", "transformers", "peft")
COMMANDS = (
    "train",
    "rescore",
    "diff",
    "show",
    "compare",
    "export",
    "verify.run",
    "storage.usage",
    "heal",
    "watch",
    "presets",
)


@pytest.mark.parametrize(
    "module", [*(f"pipeline.{command}" for command in COMMANDS), "stages.prepare.sources", "stages.history.run"]
)
def test_no_library_of_models_is_imported(module):
    script = f"import {module}, sys; print([name for name in {OF_MODELS} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
