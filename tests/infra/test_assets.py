"""The functions' assets: complete, lean, and the same from every machine."""

import os
import shutil
from pathlib import Path

import pytest
from kit.stacks import said_by
from ticketlock_cdk import assets
from ticketlock_cdk.assets import OF_UNITS, ThirdPartyError, source_folder, stage_functions, third_party_packages

import ticketlock

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def asset(tmp_path_factory):
    return stage_functions(tmp_path_factory.mktemp("asset"))


def files(folder):
    return {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}


def test_the_asset_has_the_handlers_the_library_and_the_third_party_packages(asset):
    assert {"take_ticket.py", "check_position.py", "heartbeat.py", "release.py"} <= set(files(asset))
    of_packages = {"ticketlock/workflow/_steps.py", "aws_lambda_powertools/__init__.py", "jmespath/__init__.py"}
    assert of_packages <= set(files(asset))


def test_the_asset_has_nothing_else_at_its_top(asset):
    folders = {path.name for path in asset.iterdir() if path.is_dir()}
    assert folders == {"ticketlock", "aws_lambda_powertools", "jmespath"}
    assert {path.suffix for path in asset.iterdir() if path.is_file()} == {".py"}


def test_the_asset_leaves_out_the_parts_of_the_library_that_functions_do_not_need(asset):
    rooms = {path.name for path in (asset / "ticketlock").iterdir() if path.is_dir()}
    assert rooms == {"client", "locks", "wire", "workflow"}
    assert not list(asset.glob("ticketlock/**/_async_*"))


def test_the_asset_stays_the_same_when_units_of_work_or_expressions_change(asset, tmp_path, monkeypatch):
    library = tmp_path / "ticketlock"
    shutil.copytree(Path(ticketlock.__file__).parent, library)
    for package in ("_expressions", "units"):
        (library / package).mkdir(exist_ok=True)
        (library / package / "_added.py").write_text("added = True\n")
    monkeypatch.setattr(ticketlock, "__file__", str(library / "__init__.py"))
    assert stage_functions(tmp_path / "staged").name == asset.name


def test_the_asset_leaves_out_files_that_differ_between_machines(asset):
    assert not [name for name in files(asset) if "__pycache__" in name or ".dist-info" in name or name.endswith(".pyc")]


def test_the_handlers_can_be_imported_with_the_asset_and_boto3_alone(asset):
    code = "import take_ticket, check_position, heartbeat, release, aws_lambda_powertools as p; print(p.__file__)"
    assert said_by(asset, code).startswith(str(asset))


def test_everybody_may_read_the_asset(tmp_path):
    umask = os.umask(0o077)
    try:
        staged = stage_functions(tmp_path / "strict")
    finally:
        os.umask(umask)
    assert {oct(path.stat().st_mode & 0o777) for path in files(staged).values()} == {"0o644"}
    assert {oct(path.stat().st_mode & 0o777) for path in staged.rglob("*") if path.is_dir()} == {"0o755"}


def test_an_asset_that_is_staged_twice_is_the_same(asset, tmp_path):
    again = stage_functions(tmp_path)
    assert again.name == asset.name
    assert {name: path.read_bytes() for name, path in files(again).items()} == {
        name: path.read_bytes() for name, path in files(asset).items()
    }


def test_an_asset_that_is_staged_again_in_the_same_place_stays_where_it_is(tmp_path):
    assert stage_functions(tmp_path) == stage_functions(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1


def test_an_asset_with_other_content_has_another_name(asset, tmp_path, monkeypatch):
    functions = tmp_path / "functions"
    shutil.copytree(source_folder("functions"), functions)
    (functions / "release.py").write_text("changed = True\n")
    monkeypatch.setattr(assets, "source_folder", lambda _: functions)
    assert stage_functions(tmp_path / "staged").name != asset.name


def test_an_installation_without_its_folders_is_refused():
    with pytest.raises(FileNotFoundError, match="lacks its folder 'nowhere'"):
        source_folder("nowhere")


def test_every_third_party_package_is_pinned_with_a_hash():
    lines = (source_folder("functions") / "requirements.txt").read_text().splitlines()
    entries = "\n".join(line for line in lines if not line.startswith("#")).replace("\\\n", "").splitlines()
    assert entries
    assert all("==" in entry and "--hash=sha256:" in entry for entry in entries)


def test_boto3_is_no_third_party_package_of_the_functions():
    assert "boto3" not in (source_folder("functions") / "requirements.txt").read_text()


def test_third_party_packages_are_pinned_as_the_repository_pins_them():
    pinned = (ROOT / "requirements.txt").read_text()
    [powertools] = [line for line in pinned.splitlines() if line.startswith("aws-lambda-powertools==")]
    assert powertools in (source_folder("functions") / "requirements.txt").read_text()


def test_third_party_packages_are_installed_once(monkeypatch):
    first = third_party_packages(source_folder("functions") / "requirements.txt")
    monkeypatch.setattr(assets, "_pip_install", lambda *_: pytest.fail("installed again"))
    assert third_party_packages(source_folder("functions") / "requirements.txt") == first


@pytest.mark.verify("a stack of its own, synthesised")
def test_a_package_of_another_content_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(f"jmespath==1.1.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(ThirdPartyError, match=r"installing the packages of .* failed"):
        third_party_packages(requirements)
    assert [path.name for path in (tmp_path / "ticketlock").iterdir()] == []


# The asset_of_units of the functions for units: complete, lean, and another one than that of locks.


@pytest.fixture(scope="module")
def asset_of_units(tmp_path_factory):
    return stage_functions(tmp_path_factory.mktemp("asset-of-units"), OF_UNITS)


def test_the_asset_of_units_has_its_own_handlers_alone(asset_of_units):
    of_locks = {path.name for path in source_folder("functions").glob("*.py")}
    names = {path.name for path in asset_of_units.iterdir()}
    assert {"roll_back.py", "sweeper.py"} <= names
    assert not names & of_locks
    assert {name for name in names if (asset_of_units / name).is_dir()} == {
        "ticketlock",
        "aws_lambda_powertools",
        "jmespath",
    }


def test_the_asset_of_locks_has_no_handler_of_units(tmp_path):
    of_locks = stage_functions(tmp_path)
    assert not list(of_locks.rglob("sweeper.py"))
    assert not (of_locks / "of_units").exists()


def test_the_asset_of_units_has_only_the_parts_of_the_library_that_units_need(asset_of_units):
    rooms = {path.name for path in (asset_of_units / "ticketlock").iterdir() if path.is_dir()}
    # `ticketlock` itself imports its clients.
    assert rooms == {"_expressions", "client", "locks", "units", "wire"}
    assert not list(asset_of_units.glob("ticketlock/**/_async_*"))


def test_the_handlers_of_units_can_be_imported_with_their_asset_and_boto3_alone(asset_of_units):
    code = "import roll_back, sweeper, ticketlock; print(ticketlock.__file__)"
    assert said_by(asset_of_units, code).startswith(str(asset_of_units))
