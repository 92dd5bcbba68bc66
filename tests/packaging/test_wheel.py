"""What a user gets by installing the package."""

import email
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import readme_renderer.markdown
from kit.pages import ALL_PAGES, text

import ticketlock

pytestmark = pytest.mark.verify("builds the wheel, and installs it")

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "examples" / "orders"
# An environment of Python's own, filled from the package index.
needs_time = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = ["make", "wheel", f"PYTHON={sys.executable}", f"DIST={folder}"]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT, timeout=300)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_has_the_library_the_constructs_the_handlers_and_the_definition_and_nothing_else(
    wheel: Path,
) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "ticketlock/__init__.py",
        "ticketlock/report/_page.css",
        "ticketlock/py.typed",
        "ticketlock_cdk/__init__.py",
        "ticketlock_cdk/_bundled/functions/take_ticket.py",
        "ticketlock_cdk/_bundled/functions/of_dashboards/live_report.py",
        "ticketlock_cdk/_bundled/functions/of_units/roll_back.py",
        "ticketlock_cdk/_bundled/functions/of_units/sweeper.py",
        "ticketlock_cdk/_bundled/functions/requirements.txt",
        "ticketlock_cdk/_bundled/statemachines/serialize.asl.json",
    } <= names
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"ticketlock", "ticketlock_cdk"}


@pytest.mark.always("a page that is changed changes it; it takes seconds")
def test_a_package_index_takes_the_wheel_and_renders_its_readme(wheel: Path) -> None:
    check = [sys.executable, "-m", "twine", "--no-color", "check", "--strict", str(wheel)]
    # It breaks its lines at the terminal's width.
    wide = os.environ | {"COLUMNS": "500"}
    done = subprocess.run(check, env=wide, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, f"Checking {wheel}: PASSED\n")
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    shown = str(email.message_from_string(archive.read(metadata).decode()).get_payload())
    rendered = readme_renderer.markdown.render(shown)
    assert rendered is not None
    assert re.search(r"<h1[^>]*>ticketlock<", rendered)
    assert re.search(r"<li><strong>(<a [^>]*>)?Workflows<", rendered)
    # It links to nothing that the index does not have.
    assert "https://docs.aws.amazon.com" in shown
    assert re.findall(r"\]\((?!https:)", shown) == []
    assert "[Guarantees](docs/guarantees.md)" in text("README.md")
    assert "Guarantees ·" in shown
    # Where it is shown, the package is on an index.
    assert "In a checkout" not in shown
    assert "Before the first release" not in " ".join(shown.split())
    assert re.findall(r"^pip install '(.*?)\[", shown, re.MULTILINE) == ["ticketlock"]


def test_the_library_works_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import ticketlock; "
        "print(ticketlock.__file__, ticketlock.LockName('order-42').namespace)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == [str(tmp_path / "ticketlock" / "__init__.py"), "default"]


@needs_time
def test_the_wheel_works_with_the_oldest_packages_that_it_allows(wheel: Path, tmp_path: Path) -> None:
    """Lambda's runtimes have a boto3 of their own, which may be older than any that a new environment gets."""
    oldest = dict(re.findall(r'"(boto3|click|rich)>=([\d.]+)', (ROOT / "pyproject.toml").read_text()))
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=120)
    exact = [f"{name}=={version}" for name, version in oldest.items()]
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *exact, str(wheel)], check=True, timeout=600)
    program = """
import boto3, ticketlock, ticketlock.cli, ticketlock.report, ticketlock.units, ticketlock.workflow
from ticketlock.testing import MemoryDynamoDB

keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "eu-west-1"}
client = boto3.client("dynamodb", config=ticketlock.client_config(), **keys)
MemoryDynamoDB(lock_table="locks").serve(client)
with ticketlock.LockClient("locks", client=client) as locks, locks.acquire("order-42") as lease:
    print(boto3.__version__, lease.entity)
"""
    done = subprocess.run([str(python), "-c", program], check=True, capture_output=True, text=True, timeout=60)
    version, entity = done.stdout.split()
    assert version.startswith(oldest["boto3"])
    assert entity == "order-42"
    command = [str(python.with_name("ticketlock")), "show", "--help"]
    assert "ENTITY" in subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


@needs_time
def test_the_command_is_installed_as_the_readme_says(tmp_path: Path) -> None:
    (install,) = re.findall(r"^pip install .*", text("README.md"), re.MULTILINE)
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=120)
    environment = {**os.environ, "PATH": f"{tmp_path / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    script = "\n".join(["set -e", install, "command -v ticketlock", "ticketlock --version"])
    done = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, env=environment, check=True, capture_output=True, text=True, timeout=600
    )
    *_, where, version = done.stdout.splitlines()
    assert where.startswith(str(tmp_path / "venv"))
    assert version == f"ticketlock {ticketlock.__version__}"


@pytest.mark.always("takes a moment")
def test_the_wheel_is_made_where_nothing_is_installed() -> None:
    command = ["make", "--dry-run", "--always-make", "--no-print-directory", "wheel"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert "-m pip wheel" in done.stdout
    assert not re.search(r"npm|requirements\.txt|--editable", done.stdout)


@pytest.mark.always("takes a moment")
def test_the_readme_alone_says_how_to_install_it() -> None:
    # A function's package is none that is installed.
    says = {page for page in ALL_PAGES if re.search(r"pip install (?!--no-deps --target package \. )", text(page))}
    assert says == {"README.md"}
    assert not re.search(r"pip install ['\"]?ticketlock", text("README.md")), "it is on no index"


class Outside:
    """The example, in a folder outside the checkout, with the wheel in an environment that had nothing in it.

    Attributes:
        python: of that environment.
        assembly: what the example was synthesised to.
    """

    def __init__(self, folder: Path, wheel: Path) -> None:
        self._cache = folder / "cache"
        self.python = folder / "venv" / "bin" / "python"
        self.example = Path(shutil.copytree(EXAMPLE, folder / "orders", ignore=shutil.ignore_patterns("__pycache__")))
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True, timeout=120)
        named = f"ticketlock @ {wheel.as_uri()}"
        install = [*(str(self.python), "-m", "pip", "install"), "--quiet", "--no-compile", named]
        requirements = ["--requirement", str(self.example / "requirements.txt")]
        subprocess.run([*install, *requirements], check=True, timeout=600)
        self.assembly = folder / "cdk.out"
        self.synthesise(self.python, self.example, self.assembly)

    def synthesise(self, python: Path, example: Path, assembly: Path, **more: str) -> None:
        """Run the example's app as the CDK does, with nothing of this environment but how pip finds its index."""
        kept = {name: value for name, value in os.environ.items() if name == "PATH" or name.startswith("PIP_")}
        environment = {
            "CDK_OUTDIR": str(assembly),
            "HOME": str(self._cache.parent),
            "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "18,20",
            "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "true",
            "XDG_CACHE_HOME": str(self._cache),
        }
        command = [str(python), str(example / "app.py")]
        subprocess.run(command, check=True, cwd=example, env=kept | environment | more, timeout=300)


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Outside:
    return Outside(tmp_path_factory.mktemp("outside"), wheel)


def template(assembly: Path) -> Any:
    return json.loads((assembly / "Orders.template.json").read_text())


def assets(assembly: Path) -> set[str]:
    """The hashes of the code of the lock's functions."""
    functions = [
        found for found in template(assembly)["Resources"].values() if found["Type"] == "AWS::Lambda::Function"
    ]
    return {found["Properties"]["Code"]["S3Key"] for found in functions if "S3Key" in found["Properties"]["Code"]}


@needs_time
def test_the_example_is_synthesised_outside_the_checkout_from_the_wheel_alone_and_without_a_fault(
    outside: Outside,
) -> None:
    program = "import ticketlock, ticketlock_cdk; print(ticketlock.__file__, ticketlock_cdk.__file__)"
    done = subprocess.run([str(outside.python), "-c", program], check=True, capture_output=True, text=True, timeout=120)
    assert all(file.startswith(str(outside.python.parents[1])) for file in done.stdout.split())
    machines = [found for found in template(outside.assembly)["Resources"].values() if "StateMachine" in found["Type"]]
    # The example's own, the lock's, and the one in which long waits go on.
    assert len(machines) == 3
    texts = [file.read_text() for file in outside.assembly.glob("*.json") if file.name != "tree.json"]
    assert not [each for each in texts if str(ROOT) in each]
    # W3005: the CDK itself adds DependsOn entries that a GetAtt already implies.
    lint = [str(Path(sys.executable).with_name("cfn-lint")), "--ignore-checks", "W3005", "--"]
    file = str(outside.assembly / "Orders.template.json")
    linted = subprocess.run([*lint, file], capture_output=True, text=True, check=False, timeout=120)
    assert (linted.returncode, linted.stdout) == (0, "")


@needs_time
def test_the_functions_are_the_same_from_the_checkout_and_no_index_is_needed_twice(
    outside: Outside, tmp_path: Path
) -> None:
    outside.synthesise(Path(sys.executable), EXAMPLE, tmp_path, PIP_NO_INDEX="1", PIP_FIND_LINKS="")
    assert len(assets(tmp_path)) == 1
    assert assets(outside.assembly) == assets(tmp_path)
    assert template(outside.assembly) == template(tmp_path)
