"""What a unit says and has read."""

from ticketlock.units._statements._queries import Found, QueryArguments, Querying, QueryRequest, asked
from ticketlock.units._statements._reading import (
    COMMITTED,
    LEVELS,
    READ_LOCK,
    SERIALIZABLE,
    UNCOMMITTED,
    Isolation,
    Reader,
    Wanted,
    are_of_one_instant,
    each_once,
    image_of,
    read_each,
    read_unread,
)
from ticketlock.units._statements._settings import (
    NAME_BYTES,
    NAMES_ARE_KEPT_S,
    Engine,
    HeldLock,
    SaveOptions,
    Terms,
    Under,
    UnitsSettings,
    as_a_unit_request,
    check_of,
    check_owner,
    check_room,
    with_step,
)
from ticketlock.units._statements._snapshots import MOST_TRIES, are_too_many_absent, changed_since
from ticketlock.units._statements._statements import (
    Statement,
    StatementArguments,
    StatementKind,
    StatementRequest,
    with_tables,
)
from ticketlock.units._statements._work import (
    GUARDS_OF,
    MOST_ACTIONS,
    MOST_BYTES,
    SURELY_TOGETHER,
    Guards,
    ItemState,
    Work,
    check_count,
    check_may_mark,
    chunks,
    conflict,
    has_unknown_sizes,
    that_fit_together,
)
