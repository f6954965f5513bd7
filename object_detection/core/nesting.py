"""Names with '/' as nested dicts, which the keys of checkpoints are made of."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from object_detection.errors import UserError


def nest(variables: Mapping[str, tf.Variable]) -> dict[str, Any]:
    """Turns names with '/' into nested dicts, which checkpoint keys are made of.

    Raises:
      ValueError: if one name is the beginning of another.
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
