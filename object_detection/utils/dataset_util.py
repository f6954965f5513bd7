"""Helpers of scripts that write `tf.Example` records, under the names of the reference.

The converters of `tfod convert` write records from annotation files.
"""

import os
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from object_detection.errors import DataError
from object_detection.system import files, texts
from object_detection.utils import missing

__getattr__ = missing(__name__, {'make_initializable_iterator': 'datasets are iterated with `for`'})


def int64_feature(value: int) -> tf.train.Feature:
    """Returns a feature of one integer."""
    return int64_list_feature([value])


def int64_list_feature(value: Iterable[int]) -> tf.train.Feature:
    """Returns a feature of integers."""
    return tf.train.Feature(int64_list=tf.train.Int64List(value=value))


def bytes_feature(value: bytes) -> tf.train.Feature:
    """Returns a feature of one string of bytes."""
    return bytes_list_feature([value])


def bytes_list_feature(value: Iterable[bytes]) -> tf.train.Feature:
    """Returns a feature of strings of bytes."""
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=value))


def float_feature(value: float) -> tf.train.Feature:
    """Returns a feature of one number."""
    return float_list_feature([value])


def float_list_feature(value: Iterable[float]) -> tf.train.Feature:
    """Returns a feature of numbers."""
    return tf.train.Feature(float_list=tf.train.FloatList(value=value))


def read_examples_list(path: str | os.PathLike) -> list[str]:
    """Returns the first word of each line of a text file: the names of a PASCAL VOC image set.

    Raises:
      DataError: if the file cannot be read.
    """
    try:
        text = texts.decode(files.read_bytes(os.fspath(path)), os.fspath(path))
    except (OSError, DataError) as error:
        raise DataError(f'{path}: expected a text file of names. Received: {error}.') from None
    return [line.split()[0] for line in text.splitlines() if line.strip()]


def recursive_parse_xml_to_dict(xml: Any) -> dict[str, Any]:
    """Returns the content of an XML element of a PASCAL VOC annotation.

    Args:
      xml: an element of lxml or of the standard library.

    Returns:
      {tag: text} for an element without children, otherwise {tag: {...}} with the children; those
      named 'object' are a list.
    """
    if not len(xml):
        return {xml.tag: xml.text}
    found: dict[str, Any] = {}
    for child in xml:
        value = recursive_parse_xml_to_dict(child)[child.tag]
        if child.tag == 'object':
            found.setdefault('object', []).append(value)
        else:
            found[child.tag] = value
    return {xml.tag: found}
