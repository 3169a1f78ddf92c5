"""A hub id as a folder in the hub's own cache; what cannot be had is said in plain words."""

import socket
from pathlib import Path

import httpx
from huggingface_hub import list_repo_files, snapshot_download
from huggingface_hub.constants import HF_HUB_CACHE
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
NO_NET = (
    *(LocalEntryNotFoundError, OfflineModeIsEnabled, httpx.HTTPError, HfHubHTTPError),
    *(ConnectionError, TimeoutError, socket.gaierror),
)


def download(name: str, settings: Model, option: str) -> Path:
    """The snapshot's folder, whose name is its commit. Pickled weights are fetched only where there are no others."""
    folder = _snapshot(name, settings, option, [*TEXTS, "*.safetensors"])
    if not any(folder.glob("*.safetensors")):
        folder = _snapshot(name, settings, option, [*TEXTS, *PICKLES])
    if not any(path.suffix in (".safetensors", ".bin") for path in folder.iterdir()):
        refuse_gguf(name, settings, option)
    return folder


def refuse_gguf(name: str, settings: Model, option: str) -> None:
    """Say what to do where the weights are GGUF files; nothing where they are not, or the hub does not say."""
    try:
        files = sorted(file for file in list_repo_files(name, revision=settings.revision) if file.endswith(".gguf"))
    except (*NO_NET, OSError):
        return
    if files:
        raise ParamsError(
            f"params.yaml: {option}.source = {name!r}: its weights are GGUF files ({', '.join(files[:3])}"
            f"{', ...' if len(files) > 3 else ''}): fetch one with `hf download {name} {files[0]} --local-dir .`, and "
            f"set {option}.source to {files[0]}"
        )


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
    except NO_NET as error:
        reason = (
            f"there is no folder of this name here, and the hub cannot be reached ({type(error).__name__}); "
            "download the model where there is a net, and give its folder"
        )
    except OSError as error:
        reason = f"its files cannot be kept in {HF_HUB_CACHE}: {error}; mend that, or set HF_HOME to another folder"
    except HFValidationError as error:
        reason = f"no folder, and not a hub id: {error}"
    raise ParamsError(f"{place}: {reason}") from None
