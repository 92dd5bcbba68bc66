"""The life of a ticket, as ``ticketlock/locks/_protocol.py`` has it."""

from ticketlock_local.diagrams.graph import Edge, Graph, Node

LIFE = Graph(
    "",
    [
        Node("no ticket", ("a caller asks", "for the lock"), "start"),
        Node("numbered", ("the lock item has", "issued a ticket")),
        Node("waiting", ("its row is in the queue,", "extended by its owner"), "wait"),
        Node("holding", ("its grant is in the lock item,", "renewed by the heartbeat"), "hold"),
        Node("void", ("no row may follow:", "take another ticket")),
        Node("row expired", ("deleted by one of the", "first two in line"), "fail"),
        Node("gave up", ("row deleted",)),
        Node("released", ("grant removed",)),
        Node("grant expired", ("removed by the next grant",), "fail"),
    ],
    [
        Edge("no ticket", "holding", "free: one write"),
        Edge("no ticket", "numbered", "held or queued for"),
        Edge("numbered", "waiting", "row written"),
        Edge("numbered", "void", "not within 1 s", dashed=True),
        Edge("waiting", "holding", "its turn"),
        Edge("waiting", "gave up", "wait over", dashed=True),
        Edge("waiting", "row expired", "lease over", dashed=True),
        Edge("holding", "released", "release"),
        Edge("holding", "grant expired", "lease over", dashed=True),
    ],
)
