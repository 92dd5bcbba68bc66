"""What performs requests for the tasks of one event loop, over aiobotocore."""

from ticketlock.wire._for_tasks._heartbeat import AsyncHeartbeat
from ticketlock.wire._for_tasks._performer import AsyncPerformer, make_client
from ticketlock.wire._for_tasks._to_the_end import ToTheEnd
