"""One table names the keys of tf.Examples."""

import ast
import pathlib
import re

import object_detection
from object_detection.core import tf_example_keys

PACKAGE = pathlib.Path(object_detection.__file__).parent
# Names of the same form that are no keys of records: a feature of COCO in TensorFlow Datasets.
OF_OTHERS = {'data/formats/hubs/rows.py': ['image/id']}


def test_no_other_module_spells_a_key():
    spelled = {}
    for path in PACKAGE.rglob('*.py'):
        if path == pathlib.Path(tf_example_keys.__file__) or path.name.endswith('_pb2.py'):
            continue
        texts = {
            node.value
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        if found := sorted(text for text in texts if re.match(r'image/\w', text)):
            spelled[path.relative_to(PACKAGE).as_posix()] = found
    assert spelled == OF_OTHERS


def test_every_key_has_one_name():
    keys = [value for value in vars(tf_example_keys).values() if str(value).startswith('image/')]
    assert len(keys) == len(set(keys))
