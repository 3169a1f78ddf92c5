"""`rloo variance`, in a folder without any run."""

import polars as pl
import pytest
from typer.testing import CliRunner

from pipeline.cli import app, main
from stages.enumeration.study import GROUP_SIZES, estimators, example


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments):
    result = CliRunner().invoke(app, ["variance", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_writes_and_shows_the_table(folder):
    shown = run()
    frame = pl.read_csv(folder / "data/variance.csv")
    assert frame.height == len(GROUP_SIZES) * len(estimators(example(0.0)))
    (of_rloo,) = frame.filter((pl.col("estimator") == "rloo") & (pl.col("k") == 4)).to_dicts()
    assert of_rloo["variance_ratio"] == pytest.approx(4 / 3)
    assert of_rloo["relative_bias"] < 1e-10
    assert [line.split()[2:4] for line in shown.splitlines() if line.split()[:2] == ["4", "rloo"]] == [["1.333", "0"]]
    assert not list((folder / "data/.partial").iterdir())


def test_same_bytes_again_and_any_folder_by_suffix(folder):
    run("--out", "new/place/one.parquet", "--beta", "0.3")
    run("--out", "new/place/two.parquet", "--beta", "0.3")
    run("--out", "three.csv", "--beta", "0.3")
    first, second = ((folder / "new/place" / name).read_bytes() for name in ("one.parquet", "two.parquet"))
    assert first == second
    assert pl.read_parquet(folder / "new/place/one.parquet").columns == pl.read_csv(folder / "three.csv").columns


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--out", "table.xlsx"], "must end in .csv or .parquet"), (["--beta", "inf"], "must be finite")],
)
def test_refuses(folder, capsys, arguments, message):
    with pytest.raises(SystemExit) as exit_:
        main(["variance", *arguments])
    assert exit_.value.code == 1
    assert message in capsys.readouterr().err
    assert not list(folder.iterdir())
