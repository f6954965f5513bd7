"""Reads XML files of strangers: no entities, no document types, no network, of bounded size."""

from lxml import etree

from object_detection.data.file_access import Files
from object_detection.errors import UnusableError

# A file with the objects of one image has kilobytes.
MAX_BYTES = 8 << 20


def read(path: str, files: Files, limit: int = MAX_BYTES) -> etree._Element:
    """Returns the root element of an XML file.

    Args:
      path: path of the file.
      files: access to files.
      limit: maximum number of bytes.

    Raises:
      OSError: if the file cannot be read, or is too long.
      UnusableError: if it is not XML, or has a document type, which can define entities.
    """
    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        root = etree.fromstring(files.read(path, limit), parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise UnusableError('bad_annotations', f'{path} is not an XML file: {error}') from error
    if root.getroottree().docinfo.doctype:
        raise UnusableError(
            'bad_annotations', f'{path} has a document type (DOCTYPE), which is refused'
        )
    return root


def text(element: etree._Element, name: str, default: str = '') -> str:
    """Returns the stripped text of an element's child; `default` if it is absent or empty."""
    return (element.findtext(name) or '').strip() or default


def number(element: etree._Element, name: str) -> float:
    """Returns the number in an element's child.

    Raises:
      UnusableError: if it is absent or not a number.
    """
    value = text(element, name)
    try:
        return float(value)
    except ValueError as error:
        raise UnusableError(
            'bad_box', f'{element.tag}.{name} must be a number, is {value[:100]!r}'
        ) from error
