"""HTML as a tree, so that a text that another user has chosen stays text."""

from xml.etree.ElementTree import Element, tostring

from ticketlock.report._wording import plain


def element(tag: str, *inside: Element | str | None, **attributes: str | None) -> Element:
    """An element.

    Args:
        tag: its name.
        inside: its elements and texts; None for nothing. Control characters, and those that change the direction of
            other texts, are shown as escapes.
        attributes: ``class_`` and ``aria_label`` stand for ``class`` and ``aria-label``. None leaves one out.
    """
    given = {
        name.rstrip("_").replace("_", "-"): plain(value) for name, value in attributes.items() if value is not None
    }
    made = Element(tag, given)
    for each in inside:
        if isinstance(each, Element):
            made.append(each)
        elif each is not None and len(made):
            made[-1].tail = (made[-1].tail or "") + plain(each)
        elif each is not None:
            made.text = (made.text or "") + plain(each)
    return made


def style_sheet(css: str) -> Element:
    """An element with a style sheet, as it is."""
    made = Element("style")
    made.text = css
    return made


def markup(root: Element) -> str:
    """An element as text."""
    return tostring(root, encoding="unicode", method="html")
