"""Conversion of names with '/' to nested dicts, which determine the keys of checkpoints."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from object_detection.errors import UserError


def nest(variables: Mapping[str, tf.Variable]) -> dict[str, Any]:
    """Converts names with '/' to nested dicts, which determine the keys of checkpoints.

    Raises:
      ValueError: if one name is a prefix of another.
    """
    tree: dict[str, Any] = {}
    for name, variable in variables.items():
        *parents, leaf = name.split('/')
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
            if not isinstance(node, dict):
                raise UserError(f'{name!r} begins with the name of another variable.')
        if leaf in node:
            raise UserError(f"{name!r} is the beginning of another variable's name.")
        node[leaf] = variable
    return tree
