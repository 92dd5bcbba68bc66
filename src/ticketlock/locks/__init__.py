"""The ticket lock: the stored items, every condition, every write, every decision."""

from ticketlock.locks import _conditions as only_if
from ticketlock.locks import _reads as reads
from ticketlock.locks import _writes as write
from ticketlock.locks._fencing import Fence, FencedTransaction
from ticketlock.locks._hand_over import (
    Next,
    await_wake_up,
    release_to,
    store_wake_up_token,
    take_handed,
)
from ticketlock.locks._items import (
    DEFAULT_NAMESPACE,
    Decided,
    ForcedRelease,
    Holder,
    LimitSet,
    LockItem,
    LockName,
    Row,
    Session,
    integer_if_there,
    lock_key,
    owner_id,
    record_wait_ms,
    row_key,
    session_expires_at_s,
)
from ticketlock.locks._lock_table import LOCK_TABLE, LockTable, create_table, this_user
from ticketlock.locks._modes import EXCLUSIVE, MAX_HOLDERS, MODES, mode_of
from ticketlock.locks._operators import (
    LockSummary,
    ended_by_unsetting,
    first_in_line,
    follows_deployments,
    live_rows,
    no_waiter,
)
from ticketlock.locks._outcomes import (
    MAX_LEASE_MS,
    MIN_LEASE_MS,
    Claim,
    Grant,
    HandedOver,
    Hold,
    Invocation,
    LockState,
    Place,
    Position,
    Released,
    Releasing,
    check_data,
    check_lease,
    hold_of,
    is_closed,
    wait_is_over,
)
from ticketlock.locks._protocol import READ_TO_WAKE, Contender, find_session
from ticketlock.locks._queue import EXPIRY_MARGIN_MS, expired_holders
from ticketlock.locks._reads import FIRST_CONTACT, TIME_CHECK
from ticketlock.locks._suspended import free_if_ended, has_ended, note_suspension
from ticketlock.locks._writes import THE_CLAIM, on_the_session, the_claim
