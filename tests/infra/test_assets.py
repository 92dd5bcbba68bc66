"""The functions' assets: complete, lean, and the same from every machine."""

import os
import shutil
from pathlib import Path

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_lambda as lambda_
from kit.stacks import said_by
from ticketlock_cdk import assets, code_with_ticketlock
from ticketlock_cdk.assets import (
    OF_DASHBOARDS,
    OF_UNITS,
    ThirdPartyError,
    source_folder,
    stage_functions,
    third_party_packages,
)

import ticketlock

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def asset(tmp_path_factory):
    return stage_functions(tmp_path_factory.mktemp("asset"))


def files(folder):
    return {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="session")
def asset_of_units(tmp_path_factory):
    return stage_functions(tmp_path_factory.mktemp("asset-of-units"), OF_UNITS)


@pytest.fixture(scope="session")
def asset_of_dashboards(tmp_path_factory):
    return stage_functions(tmp_path_factory.mktemp("asset-of-dashboards"), OF_DASHBOARDS)


@pytest.mark.parametrize(
    ("which", "folder", "other", "rooms"),
    [
        ("asset", "functions", "functions/of_units", {"client", "locks", "wire", "workflow"}),
        # `ticketlock` itself imports its clients.
        ("asset_of_units", "functions/of_units", "functions", {"_expressions", "client", "locks", "units", "wire"}),
        (
            "asset_of_dashboards",
            "functions/of_dashboards",
            "functions",
            {"_expressions", "client", "locks", "report", "units", "wire"},
        ),
    ],
)
def test_an_asset_has_its_own_handlers_the_parts_of_the_library_that_they_need_and_nothing_else(
    which, folder, other, rooms, request
):
    asset = request.getfixturevalue(which)
    handlers = {path.name for path in asset.iterdir() if path.is_file()}
    assert {path.name for path in (ROOT / folder).glob("*.py")} <= handlers
    assert not {path.name for path in (ROOT / other).glob("*.py")} & handlers
    assert {path.suffix for path in asset.iterdir() if path.is_file()} == {".py"}
    assert {path.name for path in asset.iterdir() if path.is_dir()} == {
        "ticketlock",
        "aws_lambda_powertools",
        "jmespath",
    }
    assert {path.name for path in (asset / "ticketlock").iterdir() if path.is_dir()} == rooms
    assert not list(asset.glob("ticketlock/**/_for_tasks"))
    # Files that differ between machines.
    assert not [name for name in files(asset) if "__pycache__" in name or ".dist-info" in name or name.endswith(".pyc")]


@pytest.mark.parametrize("which", ["asset", "asset_of_units", "asset_of_dashboards"])
def test_the_handlers_can_be_imported_with_their_asset_and_boto3_alone(which, request):
    asset = request.getfixturevalue(which)
    handlers = ", ".join(path.stem for path in asset.glob("*.py"))
    code = f"import {handlers}, ticketlock, aws_lambda_powertools as p; print(p.__file__, ticketlock.__file__)"
    assert all(path.startswith(str(asset)) for path in said_by(asset, code).split())


def test_the_function_of_a_dashboard_writes_its_page_with_its_asset_alone(asset_of_dashboards):
    code = """
import os
os.environ.update(TABLE_NAME="locks", AWS_REGION="us-east-1", SHOWS="locks")
import live_report
from ticketlock.report import TableReading
print(live_report.widget(live_report.reader(), TableReading(0, [], None, 0, False), "us-east-1", dark=True))
"""
    shown = said_by(asset_of_dashboards, code)
    assert "Locks in the table <bdi>locks</bdi>" in shown
    assert ".ticketlock {" in shown


def test_the_asset_stays_the_same_when_units_of_work_or_expressions_change(asset, tmp_path, monkeypatch):
    library = tmp_path / "ticketlock"
    shutil.copytree(Path(ticketlock.__file__).parent, library)
    for package in ("_expressions", "report", "units"):
        (library / package).mkdir(exist_ok=True)
        (library / package / "_added.py").write_text("added = True\n")
    monkeypatch.setattr(ticketlock, "__file__", str(library / "__init__.py"))
    assert stage_functions(tmp_path / "staged").name == asset.name


def test_everybody_may_read_the_asset(tmp_path):
    umask = os.umask(0o077)
    try:
        staged = stage_functions(tmp_path / "strict")
    finally:
        os.umask(umask)
    assert {oct(path.stat().st_mode & 0o777) for path in files(staged).values()} == {"0o644"}
    assert {oct(path.stat().st_mode & 0o777) for path in staged.rglob("*") if path.is_dir()} == {"0o755"}


def test_an_asset_that_is_staged_again_is_the_same_and_stays_where_it_is(asset, tmp_path):
    again = stage_functions(tmp_path)
    assert again.name == asset.name
    assert {name: path.read_bytes() for name, path in files(again).items()} == {
        name: path.read_bytes() for name, path in files(asset).items()
    }
    assert stage_functions(tmp_path) == again
    assert len(list(tmp_path.iterdir())) == 1


def test_an_asset_with_other_content_has_another_name(asset, tmp_path, monkeypatch):
    functions = tmp_path / "functions"
    shutil.copytree(source_folder("functions"), functions)
    (functions / "release.py").write_text("changed = True\n")
    monkeypatch.setattr(assets, "source_folder", lambda _: functions)
    assert stage_functions(tmp_path / "staged").name != asset.name


def test_code_of_a_user_and_the_library_can_be_imported_with_boto3_alone_and_keep_their_modes(tmp_path, synthesise):
    folder = tmp_path / "function"
    (folder / "__pycache__").mkdir(parents=True)
    (folder / "__pycache__" / "pay.cpython-311.pyc").touch()
    (folder / "pay.py").write_text("from ticketlock import LockClient\nfrom ticketlock.units import Units\n")
    (folder / "tool").touch(mode=0o700)
    stack = Stack(App(outdir=str(tmp_path / "assembly")), "Test")
    code = code_with_ticketlock(stack, folder)
    first, second = (
        lambda_.Function(stack, name, code=code, runtime=lambda_.Runtime.PYTHON_3_14, handler="pay.handler")
        for name in ("First", "Second")
    )
    found = synthesise(stack)
    assert found.function(first)["Code"] == found.function(second)["Code"]
    [staged] = (tmp_path / "assembly").glob("functions-with-ticketlock-*")
    assert {path.name for path in staged.iterdir()} == {"pay.py", "ticketlock", "tool"}
    assert [oct((staged / name).stat().st_mode & 0o777) for name in ("pay.py", "tool")] == ["0o644", "0o755"]
    assert not any((staged / "ticketlock" / name).exists() for name in ("__pycache__", "cli", "testing"))
    assert said_by(staged, "import pay; print(pay.Units.__name__)") == "Units\n"


@pytest.mark.parametrize("found", ["is no folder", "has a ticketlock of its own"])
def test_code_that_cannot_be_a_users_is_refused(found, tmp_path):
    folder = tmp_path / "function"
    if found != "is no folder":
        (folder / "ticketlock").mkdir(parents=True)
    with pytest.raises(ValueError, match=rf"folder is '{folder}', which {found}; allowed: the folder of your"):
        code_with_ticketlock(Stack(App(outdir=str(tmp_path / "assembly")), "Test"), folder)


def test_an_installation_without_its_folders_is_refused():
    with pytest.raises(FileNotFoundError, match="lacks its folder 'nowhere'"):
        source_folder("nowhere")


def test_every_third_party_package_is_pinned_with_a_hash_as_the_repository_pins_it():
    text = (source_folder("functions") / "requirements.txt").read_text()
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    entries = lines.replace("\\\n", "").splitlines()
    assert entries
    assert all("==" in entry and "--hash=sha256:" in entry for entry in entries)
    assert "boto3" not in text
    pinned = (ROOT / "requirements.txt").read_text().splitlines()
    [powertools] = [line for line in pinned if line.startswith("aws-lambda-powertools==")]
    assert powertools in text


def test_third_party_packages_are_installed_once(monkeypatch):
    first = third_party_packages(source_folder("functions") / "requirements.txt")
    monkeypatch.setattr(assets, "_pip_install", lambda *_: pytest.fail("installed again"))
    assert third_party_packages(source_folder("functions") / "requirements.txt") == first


@pytest.mark.verify("asks a package index")
def test_packages_go_where_they_belong_though_pip_is_told_to_install_for_the_user(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_USER", "1")
    assert list(third_party_packages(source_folder("functions") / "requirements.txt").iterdir())


@pytest.mark.verify("asks a package index")
def test_a_package_of_another_content_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(f"jmespath==1.1.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(ThirdPartyError, match=r"installing the packages of .* failed"):
        third_party_packages(requirements)
    assert [path.name for path in (tmp_path / "ticketlock").iterdir()] == []
