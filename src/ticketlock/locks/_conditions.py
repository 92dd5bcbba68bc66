"""Every condition of the protocol. Its name states what it requires.

``#me`` and ``#my_token`` are the two attributes of the caller's own grant; ``#last`` and ``#last_token`` those of the
holder whose release grants it; ``#x0``, ``#x1`` ... those of expired holders.
"""

# On the lock item.
NO_LOCK_ITEM = "attribute_not_exists(pk)"
KNOWN_FORMAT = "#format = :format"
PERMITS_AS_ASKED = "permits = :permits OR attribute_exists(permitsKeptUntil)"
PERMITS_AS_ASKED_OR_LATER = f"{PERMITS_AS_ASKED} OR permitsSinceMs >= :since"
MY_PERMITS_ARE_LATER = (
    "attribute_not_exists(permitsKeptUntil) AND "
    "(permitsSinceMs < :since OR (attribute_not_exists(permitsSinceMs) AND permits = :permits))"
)
MY_PERMITS_ARE_LATER_BENEATH_A_LIMIT = (
    "attribute_exists(permitsKeptUntil) AND "
    "(permitsSinceMs < :since OR (attribute_not_exists(permitsSinceMs) AND "
    "(attribute_not_exists(permitsOfUsers) OR permitsOfUsers = :permits)))"
)
NO_USER_HAS_ASKED = "attribute_not_exists(permitsOfUsers)"
NO_LIMIT_IS_SET = "attribute_not_exists(permitsKeptUntil)"
LIMIT_AS_I_SAW = "permitsKeptUntil = :seen_kept_until"
NO_LIMIT_UNSET_YET = "attribute_not_exists(permitsWereKeptUntil)"
LIMIT_UNSET_AS_I_SAW = "permitsWereKeptUntil = :seen_kept_until"
PERMITS_AS_I_SAW = "permits = :seen_permits"
NO_WAITER_IS_COUNTED = "waiting = :zero"
A_WAITER_IS_COUNTED = "waiting > :zero"
A_PERMIT_IS_FREE = "held < permits"
A_PERMIT_OF_MINE_IS_FREE = "held < :permits"
NO_HOLDER_SHARES = "heldShared = :zero"
ALL_HOLDERS_SHARE = "heldShared = held"
A_SHARED_PLACE_IS_FREE = "held < :most_shared"
NOT_CLOSED = "permits > :zero"
NOT_A_HOLDER_YET = "attribute_not_exists(#me)"
NO_TICKET_SINCE_I_READ = "issued = :issued"
NO_GRANT_SINCE_I_READ = "fencingToken = :seen_token"
MY_TICKET_IS_THE_LATEST = "ticketAtMs <= :now"
MY_TICKET_IS_NOT_VOID = "voidUpTo < :ticket"
I_HOLD_WITH_MY_TOKEN = "#my_token = :token"
I_SHARE = "attribute_exists(#me.#shared)"
I_DO_NOT_SHARE = "attribute_not_exists(#me.#shared)"
MY_LEASE_IS_NOT_OVER = "#me.leaseUntilMs > :now"
MY_LEASE_GROWS = "#me.leaseUntilMs < :lease_until"
MY_LEASE_IS_AS_I_SAW = "#me.leaseUntilMs = :seen_lease"
NO_LATER_INVOCATION_RESUMED = "attribute_not_exists(#me.invocationEndsMs) OR #me.invocationEndsMs < :invocation_ends"
MINE_IS_THE_LATEST_INVOCATION = f"{NO_LATER_INVOCATION_RESUMED} OR #me.invocation = :invocation"
I_AM_SUSPENDED = "attribute_exists(#me.suspended)"
I_AM_SUSPENDED_OR_MY_LEASE_GROWS = f"{I_AM_SUSPENDED} OR {MY_LEASE_GROWS}"

THE_LAST_HOLDS_WITH_ITS_TOKEN = "#last_token = :token"
ONE_HOLDS = "held = :one"
NO_MORE_HOLD_THAN_MAY = "held <= permits"

# On a queue row.
NO_SUCH_ROW = "attribute_not_exists(pk)"
ROW_IS_MINE = "#owner = :me"
ROW_LEASE_GROWS = "leaseUntilMs < :lease_until"
ROW_IS_AS_I_SAW = "#owner = :seen_owner AND leaseUntilMs = :seen_lease"

# On a session item.
PARKED_AS_I_SAW = "wakeUpToken = :seen_token"
NO_LATER_PARK = "attribute_not_exists(park) OR park <= :park"
NO_LATER_CONTINUATION = "attribute_not_exists(continuations) OR continuations <= :continuations"
NO_LATER_TICKET = "attribute_not_exists(ticket) OR ticket < :ticket"
NO_CLAIM_YET = "attribute_not_exists(entity)"
NO_LATER_BEAT = (
    "attribute_not_exists(fencingToken) OR fencingToken < :token OR (fencingToken = :token AND beat <= :beat)"
)
NOT_FINISHED_YET = "attribute_not_exists(finishedToken) OR finishedToken < :token"
NOTHING_LATER_STOPPED = "attribute_not_exists(stoppedToken) OR stoppedToken <= :token"
NOTHING_LATER_ABANDONED = "attribute_not_exists(abandonedToken) OR abandonedToken <= :token"


def expired_holder_as_seen(position: int) -> str:
    """The expired holder has not renewed its lease since it was read."""
    return f"#x{position}.leaseUntilMs = :x{position}"
