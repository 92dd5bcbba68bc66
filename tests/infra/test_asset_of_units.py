"""The asset of the functions for units: complete, lean, and another one than that of locks."""

import pytest
from kit.assets import said_by
from ticketlock_cdk.assets import OF_UNITS, source_folder, stage_functions


@pytest.fixture(scope="module")
def asset(tmp_path_factory):
    return stage_functions(tmp_path_factory.mktemp("asset-of-units"), OF_UNITS)


def test_it_has_its_own_handlers_alone(asset):
    of_locks = {path.name for path in source_folder("functions").glob("*.py")}
    names = {path.name for path in asset.iterdir()}
    assert {"roll_back.py", "sweeper.py"} <= names
    assert not names & of_locks
    assert {name for name in names if (asset / name).is_dir()} == {"ticketlock", "aws_lambda_powertools", "jmespath"}


def test_the_asset_of_locks_has_none_of_them(tmp_path):
    of_locks = stage_functions(tmp_path)
    assert not list(of_locks.rglob("sweeper.py"))
    assert not (of_locks / "of_units").exists()


def test_it_has_only_the_parts_of_the_library_that_units_need(asset):
    rooms = {path.name for path in (asset / "ticketlock").iterdir() if path.is_dir()}
    # `ticketlock` itself imports its clients.
    assert rooms == {"_expressions", "client", "locks", "units", "wire"}
    assert not list(asset.glob("ticketlock/**/_async_*"))


def test_its_handlers_can_be_imported_with_the_asset_and_boto3_alone(asset):
    code = "import roll_back, sweeper, ticketlock; print(ticketlock.__file__)"
    assert said_by(asset, code).startswith(str(asset))
