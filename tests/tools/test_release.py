"""`make release`: what it refuses, and what it writes; tests/packaging/test_release.py builds one."""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ticketlock_local.errors import ReleaseError
from ticketlock_local.release import sbom
from ticketlock_local.release.archive import pack
from ticketlock_local.release.build import SUMS, sums
from ticketlock_local.release.checks import check_site, check_template, unpacked
from ticketlock_local.release.commit import Commit, checked_out, git, write_files
from ticketlock_local.release.fresh import Environment
from ticketlock_local.release.tag import PROOF, check_tag

import ticketlock

ROOT = Path(__file__).parents[2]
TIME_S = 1_700_000_000
COMMIT = Commit("0" * 40, TIME_S)
CHANGES = "# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2026-03-01\n\n- All.\n"


class Checkout:
    """A repository, made for a test."""

    def __init__(self, root: Path) -> None:
        self.root = root
        git(root, "init", "--quiet", "--initial-branch=main")

    def commit(self, **files: str) -> str:
        """Write files, whose names have no dots and no slashes here, and commit them with all others."""
        for name, text in files.items():
            self.write(name.replace("__", "/").replace("_", "."), text)
        git(self.root, "add", "--all")
        somebody = ("-c", "user.name=Ann", "-c", "user.email=ann@example.com", "-c", "commit.gpgsign=false")
        git(self.root, *somebody, "commit", "--quiet", "--allow-empty", "--message=Files")
        return git(self.root, "rev-parse", "HEAD")

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    (tmp_path / "checkout").mkdir()
    return Checkout(tmp_path / "checkout")


def test_a_checkout_with_changes_in_no_commit_is_refused_by_the_names_of_its_files(checkout: Checkout) -> None:
    checkout.commit(one_py="1", two_py="2")
    checkout.write("two.py", "3")
    checkout.write("new/three.py", "3")
    with pytest.raises(ReleaseError) as refused:
        checked_out(checkout.root)
    assert str(refused.value).splitlines()[1:] == [" M two.py", "?? new/three.py"]


def test_a_commit_gives_its_name_its_time_and_its_own_files_alone(
    checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_COMMITTER_DATE", f"{TIME_S} +0900")
    sha = checkout.commit(src__one_py="1\n", _gitignore="*.pyc\n")
    checkout.write("src/one.pyc", "of this machine")
    assert checked_out(checkout.root) == Commit(sha, TIME_S)
    write_files(checkout.root, tmp_path / "files")
    written = {str(each.relative_to(tmp_path / "files")) for each in (tmp_path / "files").rglob("*") if each.is_file()}
    assert written == {".gitignore", "src/one.py"}


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="not a git repository"):
        checked_out(tmp_path)


@pytest.fixture
def proven(checkout: Checkout) -> Checkout:
    """A checkout whose proof is of the commit before, as `make proof` leaves it."""
    sha = checkout.commit(CHANGELOG_md=CHANGES, src__one_py="1")
    checkout.write(PROOF, json.dumps({"commit": sha}))
    checkout.commit(docs__proof_md=f"The figures of {sha}")
    return checkout


def test_a_tag_that_fits_the_version_the_changelog_and_the_proof_is_accepted(proven: Checkout) -> None:
    check_tag(proven.root, "v0.1.0", "0.1.0")


@pytest.mark.parametrize("tag", ["v0.1.1", "0.1.0", "v0.1.0rc1", "v0.1.0\n"])
def test_a_tag_of_another_version_is_refused(proven: Checkout, tag: str) -> None:
    with pytest.raises(ReleaseError, match=r"_version.py says 0\.1\.0, whose tag is v0\.1\.0"):
        check_tag(proven.root, tag, "0.1.0")


@pytest.mark.parametrize(
    "heading",
    ["", "## [0.1.0]", "## [0.1.0] - soon", "## [0.1.0] - 2026-02-30", "## [0x1.0] - 2026-03-01", "## 0.1.0"],
)
def test_a_version_without_a_dated_section_in_the_changelog_is_refused(proven: Checkout, heading: str) -> None:
    proven.write("CHANGELOG.md", CHANGES.replace("## [0.1.0] - 2026-03-01", heading))
    with pytest.raises(ReleaseError, match=r"has no section `## \[0\.1\.0\] - YYYY-MM-DD`"):
        check_tag(proven.root, "v0.1.0", "0.1.0")


def test_a_proof_of_a_commit_since_which_other_files_changed_is_refused_by_their_names(proven: Checkout) -> None:
    proven.commit(src__one_py="2", src__two_py="2")
    with pytest.raises(ReleaseError, match=r"also these files changed: src/one\.py, src/two\.py$"):
        check_tag(proven.root, "v0.1.0", "0.1.0")


@pytest.mark.parametrize(
    ("commit", "why"), [("1" * 40, "cannot be compared"), ("main", "full name"), ("--output=written", "full name")]
)
def test_a_proof_of_a_commit_that_is_not_there_is_refused(proven: Checkout, commit: str, why: str) -> None:
    proven.write(PROOF, json.dumps({"commit": commit}))
    with pytest.raises(ReleaseError, match=why):
        check_tag(proven.root, "v0.1.0", "0.1.0")


def test_a_tag_without_any_proof_is_refused_with_every_other_reason(checkout: Checkout) -> None:
    checkout.commit(CHANGELOG_md="# Changelog\n")
    with pytest.raises(ReleaseError) as refused:
        check_tag(checkout.root, "v1", "0.1.0")
    first, *reasons = str(refused.value).splitlines()
    assert first == "v1 cannot be released:"
    assert [reason.split()[0] for reason in reasons] == ["src/ticketlock/_version.py", "CHANGELOG.md", PROOF]


def test_equal_files_give_equal_archives_whatever_their_times_modes_and_order(tmp_path: Path) -> None:
    for place, names, mode in (("here", ("b.py", "a/c.py"), 0o600), ("there", ("a/c.py", "b.py"), 0o755)):
        for name in names:
            path = tmp_path / place / "code" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
            path.chmod(mode)
            os.utime(path, (mode * 1_000_000, mode * 1_000_000))
        pack(tmp_path / place / "code", tmp_path / place / "code-1.zip", time_s=TIME_S)
    here, there = ((tmp_path / place / "code-1.zip").read_bytes() for place in ("here", "there"))
    assert here == there
    members = zipfile.ZipFile(tmp_path / "here" / "code-1.zip").infolist()
    assert [each.filename for each in members] == ["code-1/a/c.py", "code-1/b.py"]
    assert {each.date_time for each in members} == {(2023, 11, 14, 22, 13, 20)}
    assert (unpacked(tmp_path / "here" / "code-1.zip", tmp_path / "out") / "a" / "c.py").read_text() == "a/c.py"


def test_the_sums_are_what_sha256sum_checks_and_a_changed_file_fails(tmp_path: Path) -> None:
    (tmp_path / "one.whl").write_text("one")
    (tmp_path / "two.zip").write_text("two")
    (tmp_path / SUMS).write_text(sums(tmp_path))

    def checked() -> tuple[int, str]:
        command = ["sha256sum", "--check", "--strict", SUMS]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    assert checked() == (0, "one.whl: OK\ntwo.zip: OK\n")
    (tmp_path / "two.zip").write_text("three")
    assert checked() == (1, "one.whl: OK\ntwo.zip: FAILED\n")


@pytest.fixture(scope="module")
def bill() -> Any:
    return json.loads(sbom.written(ROOT, "0.1.0", COMMIT))


def of_bill(bill: Mapping[str, Any], name: str) -> Any:
    (found,) = (each for each in bill["components"] if each["name"] == name)
    return found


def test_the_sbom_of_a_commit_is_always_the_same_and_fits_its_schema() -> None:
    written = sbom.written(ROOT, "0.1.0", COMMIT)
    sbom.check(written)
    again = [sys.executable, "-c", "import sys; from ticketlock_local.release.commit import Commit; "]
    again[-1] += "from ticketlock_local.release.sbom import written; from pathlib import Path; "
    again[-1] += f"sys.stdout.write(written(Path({str(ROOT)!r}), '0.1.0', {COMMIT!r}))"
    elsewhere = os.environ | {"PYTHONHASHSEED": "17", "TZ": "Asia/Tokyo"}
    done = subprocess.run(again, env=elsewhere, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == written
    assert (
        json.loads(written)["serialNumber"]
        != json.loads(sbom.written(ROOT, "0.1.0", Commit("1" * 40, TIME_S)))["serialNumber"]
    )


def test_an_sbom_that_does_not_fit_its_schema_is_refused(bill: Any) -> None:
    with pytest.raises(ReleaseError, match="does not fit its schema"):
        sbom.check(json.dumps(bill | {"components": [{"name": "boto3"}]}))


def test_the_sbom_names_the_release_and_its_time(bill: Any) -> None:
    assert bill["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"
    assert bill["metadata"]["component"]["purl"] == "pkg:pypi/ticketlock@0.1.0"


def test_the_sbom_has_each_package_of_the_functions_with_its_hash_and_each_requirement(bill: Any) -> None:
    pinned = of_bill(bill, "jmespath")
    assert pinned["purl"] == f"pkg:pypi/jmespath@{pinned['version']}"
    assert f"jmespath=={pinned['version']} \\\n    --hash=sha256:{pinned['hashes'][0]['content']}\n" in (
        (ROOT / "functions" / "requirements.txt").read_text()
    )
    asked = of_bill(bill, "boto3")
    assert (asked["scope"], asked["purl"], "version" in asked) == ("required", "pkg:pypi/boto3", False)
    assert {"name": "ticketlock:extra", "value": "cdk"} in of_bill(bill, "aws-cdk-lib")["properties"]
    (of_product,) = (each["dependsOn"] for each in bill["dependencies"] if "ticketlock" in each["ref"])
    assert len(of_product) == len(bill["components"])


def test_a_site_without_its_front_page_or_with_a_dead_link_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="no front page"):
        check_site(tmp_path)
    (tmp_path / "index.html").write_text('<a href="gone.html">There</a>')
    with pytest.raises(ReleaseError, match=r"lead nowhere:\nindex\.html -> gone\.html$"):
        check_site(tmp_path)


@pytest.fixture
def installed() -> Environment:
    """This environment, with the checkout installed in it."""
    return Environment(Path(sys.prefix))


def test_an_environment_whose_command_says_another_version_is_refused(installed: Environment) -> None:
    installed.check_command(ticketlock.__version__)
    with pytest.raises(ReleaseError, match=r"of release 9\.9\.9 says 'ticketlock "):
        installed.check_command("9.9.9")


def test_an_environment_without_a_module_is_refused(installed: Environment) -> None:
    installed.check_lock("ticketlock.aio")
    with pytest.raises(ReleaseError, match=r"No module named 'ticketlock\.gone'"):
        installed.check_lock("ticketlock.gone")


@pytest.fixture
def template(tmp_path: Path) -> Path:
    """The folder of a template with one function, whose code is complete."""
    code = tmp_path / "functions"
    for package in ("ticketlock", "aws_lambda_powertools"):
        (code / package).mkdir(parents=True)
        (code / package / "__init__.py").touch()
    (code / "work.py").write_text("import ticketlock\n\ndef handler(event, context): ...\n")
    function = {"Code": "functions", "Handler": "work.handler", "Role": "arn:aws:iam::123456789012:role/work"}
    resources = {"Work": {"Type": "AWS::Lambda::Function", "Properties": {**function, "Runtime": "python3.14"}}}
    (tmp_path / "ticketlock.json").write_text(json.dumps({"Resources": resources}))
    return tmp_path


def test_a_template_with_the_code_of_its_handlers_is_accepted(template: Path, installed: Environment) -> None:
    check_template(template, installed)


@pytest.mark.parametrize(
    ("lost", "why"),
    [
        ("work.py", "No module named 'work'"),
        ("ticketlock/__init__.py", "ticketlock is not in the function's code"),
        ("aws_lambda_powertools/__init__.py", "aws_lambda_powertools is not in the function's code"),
    ],
)
def test_a_template_whose_code_lacks_something_is_refused(
    template: Path, installed: Environment, lost: str, why: str
) -> None:
    (template / "functions" / lost).unlink()
    with pytest.raises(ReleaseError, match=why):
        check_template(template, installed)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [("work.handler", "work.gone", "has no attribute 'gone'"), ("python3.14", "python2.7", "found faults")],
)
def test_a_template_with_a_fault_is_refused(
    template: Path, installed: Environment, old: str, new: str, why: str
) -> None:
    file = template / "ticketlock.json"
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(ReleaseError, match=why):
        check_template(template, installed)
