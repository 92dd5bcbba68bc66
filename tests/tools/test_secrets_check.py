"""`make check` fails on a secret in a tracked file: here on generated trees with made-up secrets."""

import base64
import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from ticketlock_local.checkout import ROOT
from ticketlock_local.checks import secrets_check
from ticketlock_local.checks.secrets_check import check_secrets
from ticketlock_local.errors import LocalCloudError

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="an unpacked archive is tested without git")


def made_up(length: int) -> str:
    """Letters and digits without any meaning, put together here: as text they would be found in this file."""
    return (
        base64.b64encode(hashlib.sha512(b"ticketlock").digest()).decode().replace("+", "a").replace("/", "b")[:length]
    )


SECRETS = {
    "an access key": lambda: "AKIA" + made_up(16).upper(),
    "its secret": lambda: f'aws_secret_access_key = "{made_up(40)}"',
    "a private key": lambda: "-----BEGIN RSA " + "PRIVATE KEY-----",
    "a token of GitHub": lambda: "ghp_" + made_up(36),
    "a password": lambda: f'password = "{made_up(12)}"',
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    git("init", "--quiet", folder=tmp_path)
    (tmp_path / "clean.py").write_text('LOCK = "order-42"\nOWNER = "host:4711/3f2c"\n')
    git("add", "clean.py", folder=tmp_path)
    return tmp_path


def git(*arguments: str, folder: Path) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True, timeout=30)


def test_a_tree_without_secrets_passes(tree: Path) -> None:
    assert check_secrets(tree) == 0


@pytest.mark.parametrize("kind", SECRETS)
def test_a_tracked_file_with_a_secret_fails_and_is_named(
    kind: str, tree: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    secret = SECRETS[kind]()
    (tree / "settings.py").write_text(f"# settings\n{secret}\n")
    git("add", "settings.py", folder=tree)
    assert check_secrets(tree) != 0
    told = "".join(capfd.readouterr())
    assert "settings.py:2" in told
    assert secret not in told


def test_untracked_files_are_not_checked(tree: Path) -> None:
    (tree / "mine.py").write_text(SECRETS["its secret"]())
    assert check_secrets(tree) == 0


def test_where_nothing_is_tracked_nothing_is_called_clean(tmp_path: Path) -> None:
    git("init", "--quiet", folder=tmp_path)
    with pytest.raises(LocalCloudError, match="no tracked file"):
        check_secrets(tmp_path)


def test_an_unpacked_archive_passes_and_the_output_says_that_it_was_not_checked(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "settings.py").write_text(SECRETS["its secret"]())
    assert check_secrets(tmp_path) == 0
    assert "NOT SEARCHED FOR SECRETS" in capfd.readouterr().err


def test_an_archive_is_let_through_without_git_and_a_checkout_is_not(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    monkeypatch.setenv("PATH", str(archive))
    assert check_secrets(archive) == 0
    with pytest.raises(LocalCloudError, match="'git'"):
        check_secrets(tree)


def test_without_detect_secrets_nothing_is_called_clean(tree: Path) -> None:
    with pytest.raises(LocalCloudError, match="no-such-hook"):
        check_secrets(tree, hook=tree / "no-such-hook")


def test_a_baseline_of_another_version_passes_and_stays_as_it_is(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = json.dumps(json.loads((ROOT / ".secrets.baseline").read_text()) | {"version": "1.4.0"})
    baseline = tmp_path / "baseline"
    baseline.write_text(old)
    monkeypatch.setattr(secrets_check, "_BASELINE", baseline)
    assert check_secrets(tree) == 0
    assert baseline.read_text() == old
