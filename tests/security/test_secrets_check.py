"""`make check` fails on a secret in a tracked file: here on trees with secrets that are made up."""

import base64
import hashlib
import subprocess
from pathlib import Path

import pytest
from ticketlock_local.errors import LocalCloudError
from ticketlock_local.secrets_check import check_secrets


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


def test_what_is_not_tracked_is_not_looked_at(tree: Path) -> None:
    (tree / "mine.py").write_text(SECRETS["its secret"]())
    assert check_secrets(tree) == 0


def test_where_nothing_is_tracked_nothing_is_called_clean(tmp_path: Path) -> None:
    with pytest.raises(LocalCloudError, match="no tracked file"):
        check_secrets(tmp_path)
