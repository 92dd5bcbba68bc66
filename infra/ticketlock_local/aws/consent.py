"""Asks the user to agree before anything is made: which account, what it costs, and what is deleted."""

from collections.abc import Callable
from typing import TextIO

from ticketlock_local.aws.account import Account
from ticketlock_local.errors import LocalCloudError


class NotAgreed(LocalCloudError):
    """The user has not agreed; nothing was made."""


def agree(
    account: Account,
    text: str,
    *,
    yes: bool,
    named: str | None,
    stdin: TextIO,
    ask: Callable[[str], str] = input,
    tell: Callable[[str], object] = print,
) -> None:
    """Show what will be done where, and ask for agreement: the account's id, typed or given.

    Args:
        account: where.
        text: what will be made, cost and be deleted.
        yes: do not ask; only with ``named``.
        named: the account's id as the caller gave it.
        stdin: whom to ask.
        ask: how.
        tell: where the text goes.

    Raises:
        NotAgreed: standard input is not a terminal, or the answer is another account.
    """
    tell(f"account  {account.id}, as {account.caller}")
    tell(f"Region   {account.region}" + ("" if account.is_aws else f", at {account.endpoint}, which is not AWS"))
    tell(text)
    if named is not None and named != account.id:
        raise NotAgreed(f"--account says {named}, and these credentials are of {account.id}: nothing was made")
    if yes:
        if named is None:
            raise NotAgreed("--yes needs --account with the account's id: nothing was made")
        return
    if not stdin.isatty():
        raise NotAgreed(
            "cannot ask, since standard input is not a terminal; give --yes and --account: nothing was made"
        )
    try:
        answer = ask("Type the account's id to continue: ")
    except EOFError:
        answer = ""
    if answer.strip() != account.id:
        raise NotAgreed(f"{answer.strip()!r} is not {account.id}: nothing was made")
