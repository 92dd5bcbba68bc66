"""`make release`: what it refuses, and what it writes; tests/packaging/test_release.py builds one."""

import json
import os
import sys
from pathlib import Path

import pytest
from ticketlock_local.errors import ReleaseError
from ticketlock_local.release import sbom
from ticketlock_local.release.checks import check_package, check_site, check_template
from ticketlock_local.release.commit import Commit, checked_out, git, write_files
from ticketlock_local.release.tag import PROOF, check_tag

import ticketlock

pytestmark = pytest.mark.verify("tests no part of the product")

ROOT = Path(__file__).parents[2]
TIME_S = 1_700_000_000
CHANGES = "# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2026-03-01\n\n- All.\n"


def commit(root: Path, **files: str) -> str:
    """Write files, a dot in whose names is an underscore here, and commit them with all others."""
    for name, text in files.items():
        (root / name.replace("_", ".")).write_text(text)
    git(root, "add", "--all")
    git(root, "-c", "user.name=Ann", "-c", "user.email=ann@example.com", "commit", "--quiet", "--message=Files")
    return git(root, "rev-parse", "HEAD")


def write_proof(root: Path, of: str) -> None:
    (root / PROOF).write_text(json.dumps({"commit": of}))


@pytest.fixture
def proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose proof is of the commit before, as `make proof` leaves it."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    root = tmp_path / "checkout"
    (root / PROOF).parent.mkdir(parents=True)
    git(root, "init", "--quiet")
    write_proof(root, commit(root, CHANGELOG_md=CHANGES, one_py="1"))
    commit(root)
    return root


def test_a_tag_that_fits_the_version_the_changelog_and_the_proof_is_accepted(proven: Path) -> None:
    check_tag(proven, "v0.1.0", "0.1.0")


def test_a_tag_that_fits_nothing_is_refused_with_every_reason(proven: Path) -> None:
    commit(proven, CHANGELOG_md="## [0.1.0] - soon\n", one_py="2")
    with pytest.raises(ReleaseError) as refused:
        check_tag(proven, "v0.1.0rc1", "0.1.0")
    _, name, section, proof = str(refused.value).splitlines()
    assert name == "src/ticketlock/_version.py says 0.1.0, whose tag is v0.1.0"
    assert section == "CHANGELOG.md has no section `## [0.1.0] - YYYY-MM-DD`"
    assert proof.endswith("also these files changed: CHANGELOG.md, one.py")


@pytest.mark.parametrize(
    ("of", "why"), [("1" * 40, "cannot be compared"), ("main", "full name"), ("--output=written", "full name")]
)
def test_a_proof_of_a_commit_that_is_not_there_is_refused(proven: Path, of: str, why: str) -> None:
    write_proof(proven, of)
    with pytest.raises(ReleaseError, match=why):
        check_tag(proven, "v0.1.0", "0.1.0")
    (proven / PROOF).unlink()
    with pytest.raises(ReleaseError, match="is missing"):
        check_tag(proven, "v0.1.0", "0.1.0")


def test_a_release_gets_the_files_of_the_commit_alone(proven: Path, tmp_path: Path) -> None:
    sha = commit(proven, _gitignore="*.pyc\n")
    (proven / "one.pyc").write_text("of this machine")
    assert checked_out(proven).sha == sha
    write_files(proven, tmp_path / "files")
    assert {each.name for each in (tmp_path / "files").iterdir()} == {".gitignore", "CHANGELOG.md", "docs", "one.py"}
    (proven / "two.py").write_text("2")
    with pytest.raises(ReleaseError, match=r"not committed:\n\?\? two\.py$"):
        checked_out(proven)


def test_the_sbom_has_each_package_of_the_functions_with_its_hash_and_each_requirement() -> None:
    written = sbom.written(ROOT, "0.1.0", Commit("0" * 40, TIME_S))
    sbom.check(written)
    bill = json.loads(written)
    assert bill["metadata"]["component"]["purl"] == "pkg:pypi/ticketlock@0.1.0"
    found = {each["name"]: each for each in bill["components"]}
    pin = (
        f"jmespath=={found['jmespath']['version']} \\\n    --hash=sha256:{found['jmespath']['hashes'][0]['content']}\n"
    )
    assert pin in (ROOT / "functions" / "requirements.txt").read_text()
    assert (found["boto3"]["scope"], "version" in found["boto3"]) == ("required", False)
    assert {"name": "ticketlock:extra", "value": "cdk"} in found["aws-cdk-lib"]["properties"]
    with pytest.raises(ReleaseError, match="does not fit its schema"):
        sbom.check(json.dumps(bill | {"components": [{"name": "boto3"}]}))


def test_a_site_without_its_front_page_or_with_a_dead_link_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="no front page"):
        check_site(tmp_path)
    (tmp_path / "index.html").write_text('<a href="gone.html">There</a>')
    with pytest.raises(ReleaseError, match=r"lead nowhere:\nindex\.html -> gone\.html$"):
        check_site(tmp_path)


def test_a_package_with_another_version_or_without_a_module_is_refused() -> None:
    check_package(sys.executable, ticketlock.__version__, "ticketlock.aio")
    with pytest.raises(ReleaseError, match=r"of release 9\.9\.9 says 'ticketlock "):
        check_package(sys.executable, "9.9.9")
    with pytest.raises(ReleaseError, match=r"No module named 'ticketlock\.gone'"):
        check_package(sys.executable, ticketlock.__version__, "ticketlock.gone")


@pytest.mark.parametrize(
    ("file", "old", "new", "why"),
    [
        ("functions/work.py", "handler", "gone", "has no attribute 'handler'"),
        ("functions/ticketlock/__init__.py", None, None, "ticketlock is not in the function's code"),
        ("ticketlock.json", "python3.14", "python2.7", "found faults"),
    ],
)
def test_a_template_with_a_fault_or_whose_code_lacks_something_is_refused(
    tmp_path: Path, file: str, old: str | None, new: str | None, why: str
) -> None:
    code = tmp_path / "functions"
    for package in ("ticketlock", "aws_lambda_powertools"):
        (code / package).mkdir(parents=True)
        (code / package / "__init__.py").touch()
    (code / "work.py").write_text("import ticketlock\n\ndef handler(event, context): ...\n")
    function = {"Code": "functions", "Handler": "work.handler", "Role": "arn:aws:iam::123456789012:role/work"}
    resources = {"Work": {"Type": "AWS::Lambda::Function", "Properties": {**function, "Runtime": "python3.14"}}}
    (tmp_path / "ticketlock.json").write_text(json.dumps({"Resources": resources}))
    check_template(tmp_path, sys.executable)
    if old is None or new is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_text((tmp_path / file).read_text().replace(old, new))
    with pytest.raises(ReleaseError, match=why):
        check_template(tmp_path, sys.executable)
