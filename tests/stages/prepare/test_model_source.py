"""Where the initial model comes from: sources that are not there, and files that are not the expected ones."""

import hashlib
from pathlib import Path

import pytest

from stages.common.params import Model, ParamsError
from stages.prepare.model import check_hash, load_source, locate


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
    check_hash(path, right)
    with pytest.raises(ParamsError) as error:
        check_hash(path, wrong)
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
    with pytest.raises(ParamsError, match=r"prepare\.model\.source = .* cannot be loaded"):
        load_source(Model(source=str(tmp_path), sha256=None))
