"""What DVC is given of a file of params is what its own loader gives."""

import pytest
from dvc.fs import LocalFileSystem
from dvc.utils.serialize import EncodingError, YAMLFileCorruptedError, load_path, load_yaml

from pipeline import dvc_yaml
from pipeline.dvc_yaml import remember_texts
from tests.workspace import ROOT


@pytest.fixture(autouse=True)
def remembering():
    remember_texts()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text((ROOT / "params.yaml").read_text())
    return path


def loaded(file):
    return load_path(str(file), LocalFileSystem())


def test_the_content_is_that_of_dvc_and_of_the_text_as_it_is_now(file):
    assert loaded(file) == load_yaml(str(file))
    file.write_text("a: 1e-5\nb: yes\n")
    assert loaded(file) == load_yaml(str(file)) == {"a": 1e-5, "b": "yes"}


def test_a_text_is_parsed_once_and_who_changes_what_was_read_changes_no_other_s(file, monkeypatch):
    first = loaded(file)
    monkeypatch.setattr(dvc_yaml, "parse_yaml", None)
    first["rollout"]["samples_per_prompt"] = 99
    assert loaded(file)["rollout"]["samples_per_prompt"] != 99


def test_what_is_no_text_or_no_yaml_is_refused_as_by_dvc_each_time(file):
    for content, error in ((b"\xff\xfe", EncodingError), (b"a: [1", YAMLFileCorruptedError)):
        file.write_bytes(content)
        for _ in range(2):
            with pytest.raises(error):
                loaded(file)
