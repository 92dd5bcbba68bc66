"""Random items and expressions as Hypothesis draws them: most fit together, and some do not."""

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from ticketlock._expressions._values import canonical

Drawn = dict[str, Any]
"""A value as an AttributeValue."""


@dataclass(frozen=True)
class Operand:
    """A value in the midst of an expression, which gets its placeholder when that is written out."""

    value: Any


Piece = str | Operand
Pieces = tuple[Piece, ...]


def _joined(*parts: Piece | Pieces) -> Pieces:
    return tuple(piece for part in parts for piece in (part if isinstance(part, tuple) else (part,)))


def _with_commas(several: list[Pieces]) -> Pieces:
    return _joined(*[part for pieces in several for part in (", ", pieces)][1:])


def _mostly(usual: st.SearchStrategy[Any], other: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(*[usual] * 9, other)


# Values: few of each type, so that they meet; drawn from lists, which is quick.

_SIMPLE: dict[str, list[Any]] = {
    "S": ["", "a", "ab", "b"],
    "N": ["0", "1", "2", "-1", "1.5", "10", "100"],
    "B": [b"\x00", b"\x00\x01", b"a"],
    "BOOL": [True, False],
    "NULL": [True],
    "SS": [["a"], ["a", "ab"], ["ab", "b"]],
    "NS": [["1"], ["1", "2"], ["-1", "10", "100"]],
    "BS": [[b"a"], [b"\x00", b"a"]],
}
_MADE: dict[str, list[Drawn]] = {kind: [{kind: content} for content in several] for kind, several in _SIMPLE.items()}
_FLAT = [value for several in _MADE.values() for value in several]
_LISTS: list[list[Drawn]] = [
    [],
    [{"N": "1"}],
    [{"N": "2"}, {"S": "a"}, {"N": "10"}],
    [{"L": [{"N": "1"}, {"S": "b"}]}, {"L": []}],
    [{"M": {"n": {"N": "1"}}}, {"NS": ["1"]}, {"NULL": True}, {"S": "ab"}],
]
_MAPS: list[dict[str, Drawn]] = [
    {},
    {"n": {"N": "1"}},
    {"n": {"N": "2"}, "s": {"S": "a"}, "p": {"SS": ["a", "b"]}},
    {"n": {"S": "a"}, "l": {"L": [{"N": "1"}, {"N": "2"}]}, "k": {"B": b"a"}},
    {"l": {"M": {"n": {"N": "1"}}}, "k": {"NULL": True}, "p": {"SS": ["ab"]}},
]
_MADE |= {"L": [{"L": content} for content in _LISTS], "M": [{"M": content} for content in _MAPS]}
values: st.SearchStrategy[Drawn] = st.sampled_from([*_FLAT, *_MADE["L"], *_MADE["M"]])

# Items: an attribute has mostly the type that its paths below are for.


def _usually(kind: str) -> st.SearchStrategy[Drawn]:
    return _mostly(st.sampled_from(_MADE[kind]), values)


_KINDS = {
    "n": "N",
    "o": "N",
    "s": "S",
    "t": "S",
    "x": "B",
    "y": "BOOL",
    "p": "SS",
    "q": "NS",
    "r": "BS",
    "l": "L",
    "m": "M",
}


@st.composite
def items(draw: st.DrawFn) -> dict[str, Drawn]:
    gone = draw(st.sets(st.sampled_from(sorted(_KINDS)), max_size=3))
    return {name: draw(_usually(kind)) for name, kind in _KINDS.items() if name not in gone}


_PATHS = {
    "N": ["n", "o", "m.n", "l[0]"],
    "S": ["s", "t", "m.s", "l[1]"],
    "B": ["x", "m.k"],
    "BOOL": ["y"],
    "NULL": ["m.k"],
    "SS": ["p", "m.p"],
    "NS": ["q"],
    "BS": ["r"],
    "L": ["l", "m.l"],
}
_ALL_PATHS = sorted(
    {path for several in _PATHS.values() for path in several}
    | {"m", "gone", "l[2]", "l[9]", "m.gone", "l[0].n", "l[1][0]", "m.l[0]", "s.k", "n[0]", "gone.k"}
)
_any_path = st.sampled_from(_ALL_PATHS)


def _path(kind: str) -> st.SearchStrategy[str]:
    return _mostly(st.sampled_from(_PATHS[kind]), _any_path)


def _operand(kind: str, but: Pieces = ()) -> st.SearchStrategy[Pieces]:
    """An attribute, a value, or a size, mostly of a type, and mostly another one."""
    others = [path for path in _PATHS[kind] if (path,) != but] or _ALL_PATHS
    path = _mostly(st.sampled_from(others), _any_path)
    found = [path.map(lambda path: (path,)), _usually(kind).map(lambda value: (Operand(value),))]
    if kind == "N":
        found.append(_any_path.map(lambda path: (f"size({path})",)))
    return st.one_of(*found)


# Conditions.


@st.composite
def _comparisons(draw: st.DrawFn) -> Pieces:
    operator = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]))
    kind = draw(st.sampled_from(["N", "S", "B"] if operator[0] in "<>" and operator != "<>" else sorted(_PATHS)))
    left = draw(_operand(kind))
    return _joined(left, f" {operator} ", draw(_operand(kind, left)))


@st.composite
def _betweens(draw: st.DrawFn) -> Pieces:
    kind = draw(st.sampled_from(["N", "N", "S", "B"]))
    operand = draw(_operand(kind))
    return _joined(operand, " BETWEEN ", draw(_operand(kind, operand)), " AND ", draw(_operand(kind, operand)))


@st.composite
def _one_ofs(draw: st.DrawFn) -> Pieces:
    kind = draw(st.sampled_from(sorted(_PATHS)))
    operand = draw(_operand(kind))
    choices = draw(st.lists(_operand(kind, operand), min_size=1, max_size=3))
    return _joined(operand, " IN (", _with_commas(choices), ")")


@st.composite
def _functions(draw: st.DrawFn) -> Pieces:
    name = draw(
        st.sampled_from(["attribute_exists", "attribute_not_exists", "attribute_type", "begins_with", "contains"])
    )
    if name == "begins_with":
        kind = draw(st.sampled_from("SB"))
        return _joined(f"{name}({(path := draw(_path(kind)))}, ", draw(_operand(kind, (path,))), ")")
    if name == "contains":
        whole, part = draw(st.sampled_from([("S", "S"), ("B", "B"), ("SS", "S"), ("NS", "N"), ("BS", "B"), ("L", "N")]))
        return _joined(f"{name}({draw(_path(whole))}, ", draw(_operand(part)), ")")
    path = draw(_any_path)
    if name == "attribute_type":
        kinds = _mostly(st.sampled_from([*sorted(_PATHS), "M"]), st.just("X"))
        return _joined(f"{name}({path}, ", Operand({"S": draw(kinds)}), ")")
    return (f"{name}({path})",)


_words = st.sampled_from(["AND", "OR"])
conditions: st.SearchStrategy[Pieces] = st.recursive(
    st.one_of(_comparisons(), _betweens(), _one_ofs(), _functions()),
    lambda inner: st.one_of(
        st.builds(lambda one: _joined("NOT ", one), inner),
        st.builds(lambda one, word, other: _joined(one, f" {word} ", other), inner, _words, inner),
        st.builds(lambda one, word, other: _joined("(", one, f") {word} (", other, ")"), inner, _words, inner),
    ),
    max_leaves=4,
)

# Updates and projections.


@st.composite
def _assignments(draw: st.DrawFn) -> Pieces:
    kind = draw(st.sampled_from(["N", "N", "L", "S", "SS"]))
    path = draw(_path(kind))
    source = draw(_operand(kind).filter(lambda pieces: "size" not in str(pieces[0])))
    if draw(st.booleans()):
        source = _joined(f"if_not_exists({draw(_any_path)}, ", source, ")")
    if kind == "N" and draw(st.booleans()):
        source = _joined(source, f" {draw(st.sampled_from('+-'))} ", Operand(draw(_usually("N"))))
    if kind == "L" and draw(st.booleans()):
        source = _joined("list_append(", source, ", ", Operand(draw(_usually("L"))), ")")
    return _joined(f"{path} = ", source)


@st.composite
def _counted(draw: st.DrawFn, kinds: tuple[str, ...]) -> Pieces:
    kind = draw(st.sampled_from(kinds))
    return _joined(f"{draw(_path(kind))} ", Operand(draw(_usually(kind))))


_SECTIONS: dict[str, st.SearchStrategy[Pieces]] = {
    "SET": _assignments(),
    "REMOVE": _any_path.map(lambda path: (path,)),
    "ADD": _counted(("N", "SS", "NS", "BS")),
    "DELETE": _counted(("SS", "NS", "BS")),
}


@st.composite
def updates(draw: st.DrawFn) -> Pieces:
    found: list[Piece | Pieces] = []
    for name in draw(st.lists(st.sampled_from(sorted(_SECTIONS)), min_size=1, max_size=3, unique=True)):
        found += [f" {name} ", _with_commas(draw(st.lists(_SECTIONS[name], min_size=1, max_size=2)))]
    return _joined(*found)


projections: st.SearchStrategy[Pieces] = st.lists(_any_path, min_size=1, max_size=4, unique=True).map(
    lambda paths: (", ".join(paths),)
)


def written(kind: str, pieces: Pieces) -> dict[str, Any]:
    """The parameters of a request: the text, and the values that it uses."""
    found: dict[str, Any] = {}
    words = []
    for piece in pieces:
        if isinstance(piece, Operand):
            name = f":v{len(found)}"
            found[name] = canonical(piece.value)
            words.append(name)
        else:
            words.append(piece)
    return {kind: "".join(words).strip(), **({"ExpressionAttributeValues": found} if found else {})}
