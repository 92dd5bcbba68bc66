"""The grammar of expressions: tokens, reserved words, operands, and the tree that a text becomes.

Placeholders stay in the tree as they are written (``#name``, ``:value``): one tree serves all requests with the same
text.

    path = name { "." name | "[" number "]" }

A name may not be a reserved word: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ReservedWords.html
"""

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeVar

from ticketlock._expressions._values import ORDERED_TYPES, TYPES, ExpressionInvalid, Value, order_of

ExpressionKind = Literal[
    "ConditionExpression", "FilterExpression", "KeyConditionExpression", "ProjectionExpression", "UpdateExpression"
]
"""The request's parameter that holds the expression."""

END = ""
MAX_EXPRESSION_BYTES = 4_096
MAX_OPERATORS = 300
"""https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-expression-parameters"""

_TOKEN = re.compile(r"[#:]\w+|[A-Za-z]\w*|\d+|<=|>=|<>|[=<>(),.+\-\[\]]", re.ASCII)
_SPACE = re.compile(r"\s*")

_WORDS = """
ABORT ABSOLUTE ACTION ADD AFTER AGENT AGGREGATE ALL ALLOCATE ALTER ANALYZE AND ANY ARCHIVE ARE ARRAY AS ASC ASCII
ASENSITIVE ASSERTION ASYMMETRIC AT ATOMIC ATTACH ATTRIBUTE AUTH AUTHORIZATION AUTHORIZE AUTO AVG BACK BACKUP BASE BATCH
BEFORE BEGIN BETWEEN BIGINT BINARY BIT BLOB BLOCK BOOLEAN BOTH BREADTH BUCKET BULK BY BYTE CALL CALLED CALLING CAPACITY
CASCADE CASCADED CASE CAST CATALOG CHAR CHARACTER CHECK CLASS CLOB CLOSE CLUSTER CLUSTERED CLUSTERING CLUSTERS COALESCE
COLLATE COLLATION COLLECTION COLUMN COLUMNS COMBINE COMMENT COMMIT COMPACT COMPILE COMPRESS CONDITION CONFLICT CONNECT
CONNECTION CONSISTENCY CONSISTENT CONSTRAINT CONSTRAINTS CONSTRUCTOR CONSUMED CONTINUE CONVERT COPY CORRESPONDING COUNT
COUNTER CREATE CROSS CUBE CURRENT CURSOR CYCLE DATA DATABASE DATE DATETIME DAY DEALLOCATE DEC DECIMAL DECLARE DEFAULT
DEFERRABLE DEFERRED DEFINE DEFINED DEFINITION DELETE DELIMITED DEPTH DEREF DESC DESCRIBE DESCRIPTOR DETACH
DETERMINISTIC DIAGNOSTICS DIRECTORIES DISABLE DISCONNECT DISTINCT DISTRIBUTE DO DOMAIN DOUBLE DROP DUMP DURATION
DYNAMIC EACH ELEMENT ELSE ELSEIF EMPTY ENABLE END EQUAL EQUALS ERROR ESCAPE ESCAPED EVAL EVALUATE EXCEEDED EXCEPT
EXCEPTION EXCEPTIONS EXCLUSIVE EXEC EXECUTE EXISTS EXIT EXPLAIN EXPLODE EXPORT EXPRESSION EXTENDED EXTERNAL EXTRACT
FAIL FALSE FAMILY FETCH FIELDS FILE FILTER FILTERING FINAL FINISH FIRST FIXED FLATTERN FLOAT FOR FORCE FOREIGN FORMAT
FORWARD FOUND FREE FROM FULL FUNCTION FUNCTIONS GENERAL GENERATE GET GLOB GLOBAL GO GOTO GRANT GREATER GROUP GROUPING
HANDLER HASH HAVE HAVING HEAP HIDDEN HOLD HOUR IDENTIFIED IDENTITY IF IGNORE IMMEDIATE IMPORT IN INCLUDING INCLUSIVE
INCREMENT INCREMENTAL INDEX INDEXED INDEXES INDICATOR INFINITE INITIALLY INLINE INNER INNTER INOUT INPUT INSENSITIVE
INSERT INSTEAD INT INTEGER INTERSECT INTERVAL INTO INVALIDATE IS ISOLATION ITEM ITEMS ITERATE JOIN KEY KEYS LAG
LANGUAGE LARGE LAST LATERAL LEAD LEADING LEAVE LEFT LENGTH LESS LEVEL LIKE LIMIT LIMITED LINES LIST LOAD LOCAL
LOCALTIME LOCALTIMESTAMP LOCATION LOCATOR LOCK LOCKS LOG LOGED LONG LOOP LOWER MAP MATCH MATERIALIZED MAX MAXLEN MEMBER
MERGE METHOD METRICS MIN MINUS MINUTE MISSING MOD MODE MODIFIES MODIFY MODULE MONTH MULTI MULTISET NAME NAMES NATIONAL
NATURAL NCHAR NCLOB NEW NEXT NO NONE NOT NULL NULLIF NUMBER NUMERIC OBJECT OF OFFLINE OFFSET OLD ON ONLINE ONLY OPAQUE
OPEN OPERATOR OPTION OR ORDER ORDINALITY OTHER OTHERS OUT OUTER OUTPUT OVER OVERLAPS OVERRIDE OWNER PAD PARALLEL
PARAMETER PARAMETERS PARTIAL PARTITION PARTITIONED PARTITIONS PATH PERCENT PERCENTILE PERMISSION PERMISSIONS PIPE
PIPELINED PLAN POOL POSITION PRECISION PREPARE PRESERVE PRIMARY PRIOR PRIVATE PRIVILEGES PROCEDURE PROCESSED PROJECT
PROJECTION PROPERTY PROVISIONING PUBLIC PUT QUERY QUIT QUORUM RAISE RANDOM RANGE RANK RAW READ READS REAL REBUILD
RECORD RECURSIVE REDUCE REF REFERENCE REFERENCES REFERENCING REGEXP REGION REINDEX RELATIVE RELEASE REMAINDER RENAME
REPEAT REPLACE REQUEST RESET RESIGNAL RESOURCE RESPONSE RESTORE RESTRICT RESULT RETURN RETURNING RETURNS REVERSE REVOKE
RIGHT ROLE ROLES ROLLBACK ROLLUP ROUTINE ROW ROWS RULE RULES SAMPLE SATISFIES SAVE SAVEPOINT SCAN SCHEMA SCOPE SCROLL
SEARCH SECOND SECTION SEGMENT SEGMENTS SELECT SELF SEMI SENSITIVE SEPARATE SEQUENCE SERIALIZABLE SESSION SET SETS SHARD
SHARE SHARED SHORT SHOW SIGNAL SIMILAR SIZE SKEWED SMALLINT SNAPSHOT SOME SOURCE SPACE SPACES SPARSE SPECIFIC
SPECIFICTYPE SPLIT SQL SQLCODE SQLERROR SQLEXCEPTION SQLSTATE SQLWARNING START STATE STATIC STATUS STORAGE STORE STORED
STREAM STRING STRUCT STYLE SUB SUBMULTISET SUBPARTITION SUBSTRING SUBTYPE SUM SUPER SYMMETRIC SYNONYM SYSTEM TABLE
TABLESAMPLE TEMP TEMPORARY TERMINATED TEXT THAN THEN THROUGHPUT TIME TIMESTAMP TIMEZONE TINYINT TO TOKEN TOTAL TOUCH
TRAILING TRANSACTION TRANSFORM TRANSLATE TRANSLATION TREAT TRIGGER TRIM TRUE TRUNCATE TTL TUPLE TYPE UNDER UNDO UNION
UNIQUE UNIT UNKNOWN UNLOGGED UNNEST UNPROCESSED UNSIGNED UNTIL UPDATE UPPER URL USAGE USE USER USERS USING UUID VACUUM
VALUE VALUED VALUES VARCHAR VARIABLE VARIANCE VARINT VARYING VIEW VIEWS VIRTUAL VOID WAIT WHEN WHENEVER WHERE WHILE
WINDOW WITH WITHIN WITHOUT WORK WRAPPED WRITE YEAR ZONE
"""

RESERVED = frozenset(_WORDS.split())

COUNTED = frozenset({"S", "B", "SS", "NS", "BS", "L", "M"})
"""The types that have a size."""
SETS = frozenset({"SS", "NS", "BS"})
_LONG_NAMES = {"S": "STRING", "N": "NUMBER", "B": "BINARY", "BOOL": "BOOLEAN", "L": "LIST", "M": "MAP"}

_MAX_STEPS = 32
_MAX_INDEX = 2**31 - 1

CONDITION_FUNCTIONS = frozenset(
    {"attribute_exists", "attribute_not_exists", "attribute_type", "begins_with", "contains"}
)
UPDATE_FUNCTIONS = frozenset({"if_not_exists", "list_append"})
_FUNCTIONS = CONDITION_FUNCTIONS | UPDATE_FUNCTIONS | {"size"}

T = TypeVar("T")


class Tokens:
    """An expression, token by token.

    Attributes:
        kind: the request's parameter that holds it.
        tokens: all tokens, and an empty one at the end.
        at: the index of the next one.
    """

    def __init__(self, kind: ExpressionKind, text: str) -> None:
        self.kind: ExpressionKind = kind
        self.tokens: list[str] = []
        self.at = 0
        self._operators = 0
        if not text.strip():
            raise self.wrong("The expression can not be empty;")
        size = len(text.encode(errors="surrogatepass"))
        if size > MAX_EXPRESSION_BYTES:
            raise self.wrong(f"Expression size has exceeded the maximum allowed size; expression size: {size}")
        end = position = 0
        while (position := self._after_space(text, end)) < len(text):
            token = _TOKEN.match(text, position)
            if token is None:
                raise self.wrong(f'Syntax error; token: "{text[position]}", near: "{text[end : position + 10]}"')
            self.tokens.append(token.group())
            end = token.end()
        self.tokens.append(END)

    @staticmethod
    def _after_space(text: str, position: int) -> int:
        space = _SPACE.match(text, position)
        return space.end() if space is not None else position

    @property
    def next(self) -> str:
        """The next token; empty at the end."""
        return self.tokens[self.at]

    def took(self, token: str) -> bool:
        """Take the next token if it is this one; return whether it was."""
        taken = self.next == token
        self.at += taken
        return taken

    def took_word(self, word: str) -> bool:
        """The same for a word, in upper or lower case."""
        return self.took(self.next if self.next.upper() == word else word)

    def must(self, token: str) -> None:
        if not self.took(token):
            raise self.unexpected()

    @cached_property
    def closings(self) -> dict[int, int]:
        """The index of each closing parenthesis by that of its opening one; the end if it is not closed."""
        found, opened = {}, []
        for position, token in enumerate(self.tokens):
            if token == "(":
                opened.append(position)
            elif token == ")" and opened:
                found[opened.pop()] = position
        return {**dict.fromkeys(opened, len(self.tokens) - 1), **found}

    def is_doubled(self, opening: int) -> bool:
        """Whether the parenthesis that opens here contains only another pair."""
        within = opening + 1
        return within in self.closings and self.closings[within] + 1 == self.closings[opening]

    def note_operator(self) -> None:
        self._operators += 1
        if self._operators > MAX_OPERATORS:
            raise self.wrong(f"The expression contains too many operators; operator count: {self._operators}")

    def wrong(self, why: str) -> ExpressionInvalid:
        return ExpressionInvalid(f"Invalid {self.kind}: {why}")

    def unexpected(self) -> ExpressionInvalid:
        near = " ".join(self.tokens[max(0, self.at - 1) : self.at + 2]).strip()
        return self.wrong(f'Syntax error; token: "{self.next or "<EOF>"}", near: "{near}"')

    def redundant(self) -> ExpressionInvalid:
        return self.wrong("The expression has redundant parentheses;")


@dataclass(frozen=True, slots=True)
class OfTypes:
    """A value must have one of these types.

    Attributes:
        where: whose operand it is, in the words of messages.
        in_full: whether messages have the type's full name.
    """

    value: str
    kinds: frozenset[str]
    where: str
    in_full: bool = False

    def complaint(self, values: Mapping[str, Value]) -> str | None:
        (kind,) = values[self.value]
        if kind in self.kinds:
            return None
        named = _LONG_NAMES.get(kind, kind) if self.in_full else kind
        return f"Incorrect operand type for operator or function; {self.where}, operand type: {named}"


@dataclass(frozen=True, slots=True)
class NamesType:
    """A value must be the name of a type."""

    value: str

    def complaint(self, values: Mapping[str, Value]) -> str | None:
        ((kind, name),) = values[self.value].items()
        if kind == "S" and name not in TYPES:
            return f"Invalid attribute type name found; type: {name}, valid types: {{{','.join(TYPES)}}}"
        return None


@dataclass(frozen=True, slots=True)
class Bounds:
    """Two values must have one type, and the second must not be below the first."""

    low: str
    high: str

    def complaint(self, values: Mapping[str, Value]) -> str | None:
        low, high = values[self.low], values[self.high]
        if low.keys() != high.keys():
            why = "same data type for lower and upper bounds"
        elif low.keys() <= ORDERED_TYPES and order_of(low) > order_of(high):
            why = "upper bound to be greater than or equal to lower bound"
        else:
            return None
        bounds = f"lower bound operand: {written_value(low)}, upper bound operand: {written_value(high)}"
        return f"The BETWEEN operator requires {why}; {bounds}"


Demand = OfTypes | NamesType | Bounds


def written_value(value: Value) -> str:
    """A value as messages show it."""
    ((kind, content),) = value.items()
    text = base64.b64encode(content).decode() if kind == "B" else content
    return f"AttributeValue: {{{kind}:{text}}}"


@dataclass(frozen=True, slots=True)
class Path:
    """A document path: names or ``#names`` of attributes and members of maps, indexes of elements of lists.

    Attributes:
        is_named: whether it has a ``#name``.
    """

    steps: tuple[str | int, ...]
    is_named: bool


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A ``:value`` of the request."""

    name: str


@dataclass(frozen=True, slots=True)
class Size:
    """The size of an attribute: characters, bytes, members or elements."""

    operand: Path | Placeholder


Operand = Path | Placeholder | Size


@dataclass(frozen=True, slots=True)
class Exists:
    """Whether an attribute exists; with ``wanted`` false, whether it does not."""

    path: Path
    wanted: bool


@dataclass(frozen=True, slots=True)
class OfType:
    """Whether an operand has the type that a value names."""

    operand: Operand
    kind: Placeholder


@dataclass(frozen=True, slots=True)
class BeginsWith:
    whole: Operand
    beginning: Operand


@dataclass(frozen=True, slots=True)
class Contains:
    whole: Operand
    part: Operand


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two operands and one of ``= <> < <= > >=``."""

    operator: str
    left: Operand
    right: Operand


@dataclass(frozen=True, slots=True)
class Between:
    operand: Operand
    low: Operand
    high: Operand


@dataclass(frozen=True, slots=True)
class OneOf:
    """Whether an operand equals one of several others: ``IN``."""

    operand: Operand
    choices: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Not:
    condition: "Condition"


@dataclass(frozen=True, slots=True)
class Every:
    conditions: tuple["Condition", ...]


@dataclass(frozen=True, slots=True)
class Either:
    conditions: tuple["Condition", ...]


Condition = Exists | OfType | BeginsWith | Contains | Comparison | Between | OneOf | Not | Every | Either


@dataclass(frozen=True, slots=True)
class IfNotExists:
    """An attribute if it exists, else another operand."""

    path: Path
    otherwise: "Source"


@dataclass(frozen=True, slots=True)
class Append:
    """The elements of two lists, one after the other."""

    left: "Source"
    right: "Source"


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of two operands, or their difference."""

    left: "Source"
    right: "Source"
    negative: bool


Source = Path | Placeholder | IfNotExists | Append | Sum


@dataclass(frozen=True, slots=True)
class Update:
    """What SET assigns, REMOVE removes, ADD adds, and DELETE removes from sets."""

    assignments: tuple[tuple[Path, Source], ...] = ()
    removals: tuple[Path, ...] = ()
    additions: tuple[tuple[Path, Placeholder], ...] = ()
    deletions: tuple[tuple[Path, Placeholder], ...] = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        assigned = (path for path, _ in self.assignments)
        counted = (path for path, _ in (*self.additions, *self.deletions))
        return (*assigned, *self.removals, *counted)


@dataclass(frozen=True, slots=True)
class Parsed:
    """An expression.

    Attributes:
        tree: the condition, the update, or the paths of a projection.
        names, values: the ``#names`` and the ``:values`` that it uses.
        paths: all of its paths.
        demands: what it demands of the values.
        distinct: operators, each with the path of its first operand and the paths that must differ from it.
    """

    kind: str
    tree: Condition | Update | tuple[Path, ...]
    names: frozenset[str]
    values: frozenset[str]
    paths: tuple[Path, ...]
    demands: tuple[Demand, ...]
    distinct: tuple[tuple[str, Path, tuple[Path, ...]], ...]


class Operands(Tokens):
    """Parses operands, and notes their paths and what they demand of the request."""

    def __init__(self, kind: ExpressionKind, text: str) -> None:
        super().__init__(kind, text)
        self.paths: list[Path] = []
        self.demands: list[Demand] = []
        self.distinct: list[tuple[str, Path, tuple[Path, ...]]] = []

    def listed(self, one: Callable[[], T]) -> list[T]:
        """Parse a list separated by commas."""
        found = [one()]
        while self.took(","):
            found.append(one())
        return found

    def bracketed(self, one: Callable[[], T]) -> T:
        """Parse something that may be in a pair of parentheses."""
        opening = self.at
        if not self.took("("):
            return one()
        if self.is_doubled(opening):
            raise self.redundant()
        found = one()
        self.must(")")
        return found

    def value(self) -> Placeholder:
        if not self.next.startswith(":"):
            raise self.unexpected()
        self.at += 1
        return Placeholder(self.tokens[self.at - 1])

    def path(self) -> Path:
        steps: list[str | int] = [self._name()]
        while self.next in (".", "["):
            if self.took("."):
                steps.append(self._name())
            else:
                self.at += 1
                steps.append(self._index())
                self.must("]")
        if len(steps) > _MAX_STEPS:
            raise self.wrong(f"The document path has too many nesting levels; nesting levels: {len(steps)}")
        path = Path(tuple(steps), any(isinstance(step, str) and step.startswith("#") for step in steps))
        self.paths.append(path)
        return path

    def _name(self) -> str:
        name = self.next
        if not (name[:1].isalpha() or name.startswith("#")):
            raise self.unexpected()
        if name.upper() in RESERVED:
            raise self.wrong(f"Attribute name is a reserved keyword; reserved keyword: {name}")
        self.at += 1
        return name

    def _index(self) -> int:
        if not self.next.isdigit() or (self.next.startswith("0") and self.next != "0"):
            raise self.unexpected()
        self.at += 1
        digits = self.tokens[self.at - 1]
        if len(digits) > len(str(_MAX_INDEX)) or int(digits) > _MAX_INDEX:
            raise self.wrong(f"List index is not within the allowable range; index: [{digits}]")
        return int(digits)

    # Calls.

    def is_call(self) -> bool:
        return self.next[:1].isalpha() and self.tokens[self.at + 1] == "("

    def called(self, allowed: Iterable[str]) -> str:
        """Parse the name of a function, which must be one of these."""
        name = self.next
        if name not in _FUNCTIONS:
            raise self.wrong(f"Invalid function name; function: {name}")
        if name not in allowed:
            raise self.misplaced(name)
        self.note_operator()
        self.at += 2
        return name

    def misplaced(self, name: str) -> ExpressionInvalid:
        if self.kind == "UpdateExpression" and name not in UPDATE_FUNCTIONS:
            return self.wrong(f"The function is not allowed in an update expression; function: {name}")
        if self.kind != "UpdateExpression" and name in UPDATE_FUNCTIONS:
            return self.wrong(f"The function is not allowed in a condition expression; function: {name}")
        return self.wrong(f"The function is not allowed to be used this way in an expression; function: {name}")

    def arguments(self, function: str, one: Callable[[], T], count: int) -> list[T]:
        """Parse as many operands as the function takes, and the closing parenthesis."""
        found = self.listed(one)
        self.must(")")
        if len(found) != count:
            raise self.wrong_count(function, len(found))
        return found

    def wrong_count(self, function: str, count: int) -> ExpressionInvalid:
        return self.wrong(
            "Incorrect number of operands for operator or function; "
            f"operator or function: {function}, number of operands: {count}"
        )

    def needs_path(self, function: str) -> ExpressionInvalid:
        return self.wrong(f"Operator or function requires a document path; operator or function: {function}")

    def demand_types(self, operand: object, kinds: frozenset[str], operator: str) -> None:
        """Demand that a value among the operands has one of these types."""
        if isinstance(operand, Placeholder):
            self.demands.append(OfTypes(operand.name, kinds, f"operator or function: {operator}"))

    def demand_distinct(self, operator: str, first: object, rest: Iterable[object]) -> None:
        """Demand that the first operand, if it is an attribute, differs from the others."""
        others = tuple(other for other in rest if isinstance(other, Path))
        if isinstance(first, Path) and others:
            self.distinct.append((operator, first, others))
