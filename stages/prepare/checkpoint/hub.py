"""A hub id as a folder in the hub's own cache; what cannot be had is said in plain words."""

from pathlib import Path

import httpx
from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from stages.common.params import Model, ParamsError

TEXTS = ["*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken", "*.py"]
PICKLES = ["pytorch_model*.bin"]


def download(name: str, settings: Model, option: str) -> Path:
    """The snapshot's folder, whose name is its commit. Pickled weights are fetched only where there are no others."""
    folder = _snapshot(name, settings, option, [*TEXTS, "*.safetensors"])
    if not any(folder.glob("*.safetensors")):
        folder = _snapshot(name, settings, option, [*TEXTS, *PICKLES])
    return folder


def _snapshot(name: str, settings: Model, option: str, patterns: list[str]) -> Path:
    place = f"params.yaml: {option}.source = {name!r}"
    try:
        return Path(snapshot_download(name, revision=settings.revision, allow_patterns=patterns))
    except GatedRepoError:
        reason = "access to it is restricted: ask for it on its page at the hub, then log in with `hf auth login`"
    except RevisionNotFoundError:
        raise ParamsError(f"params.yaml: {option}.revision = {settings.revision!r}: {name} has no such one") from None
    except RepositoryNotFoundError:
        reason = (
            "there is no folder of this name here, and no such model at the hub (or it is private: `hf auth login`)"
        )
    except (LocalEntryNotFoundError, OfflineModeIsEnabled, httpx.HTTPError, HfHubHTTPError, OSError) as error:
        reason = (
            f"there is no folder of this name here, and the hub cannot be reached ({type(error).__name__}); "
            "download the model where there is a net, and give its folder"
        )
    except HFValidationError as error:
        reason = f"no folder, and not a hub id: {error}"
    raise ParamsError(f"{place}: {reason}") from None
