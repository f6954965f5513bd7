"""The table of formats, descriptions of files, and how files are found."""

import json
import pathlib

import pytest

from object_detection.errors import UserError
from object_detection.export.formats import formats
from object_detection.runtime import description
from object_detection.runtime.description import ModelDescription, TensorDescription
from object_detection.runtime.file_detector import FileRuntime
from object_detection.system import extras
from tests import rows

DESCRIPTION = ModelDescription(
    format='stablehlo',
    toolkit_version='1.2',
    inputs=(TensorDescription('image', 'float32', (None, 64, 32, 3)),),
    outputs=('detection_boxes', 'detection_scores', 'num_detections'),
    resizer='fixed_shape_resizer { height: 64 width: 32 }',
    class_names={1: 'cat', 7: 'café'},
    weights=(TensorDescription('a/kernel', 'float32', (1, 2)),),
    advised_threshold=0.25,
    details={'version': '1.0.0'},
)


def test_a_description_is_read_as_it_was_written():
    text = DESCRIPTION.to_json()
    assert description.parse(text, 'f.json', 'stablehlo') == DESCRIPTION
    written = json.loads(text)
    assert written['value_range'] == [0, 255]
    assert [(row['id'], row['name']) for row in written['classes']] == [(1, 'cat'), (7, 'café')]
    assert all(len(row['color']) == 3 for row in written['classes'])


@rows.parametrize(
    ('change', 'message'),
    [
        ({'schema': 2}, 'schema: expected 1'),
        ({'schema': True}, 'schema: expected int'),
        ({'outputs': ['a', 3]}, r'outputs\[1\]: expected str'),
        ({'outputs': None}, 'outputs: expected list'),
        ({'inputs': []}, 'inputs: expected images'),
        ({'inputs': [{'name': 'a', 'dtype': 'int8', 'shape': [1, -1, 1, 3]}]}, 'shape: expected'),
        ({'inputs': [{'name': 'a', 'dtype': 'int8', 'shape': [1, 1 << 40, 1, 3]}]}, 'sizes up to'),
        (
            {'inputs': [{'name': 'a', 'dtype': 'f', 'shape': [1, 8, 8, 3]}]},
            'dtype: expected float32 or',
        ),
        (
            {'inputs': [{'name': 'a', 'dtype': 'int8', 'shape': [0, 8, 8, 3]}]},
            'null or sizes above 0',
        ),
        ({'inputs': [{'name': 'a', 'dtype': 'int8', 'shape': [1 << 16] * 4}]}, 'at most .* values'),
        ({'classes': [{'id': 2, 'name': 'a'}, {'id': 2, 'name': 'b'}]}, 'classes: .*different ids'),
        ({'classes': [{'id': 0, 'name': 'a'}]}, 'classes: .*at least 1'),
        ({'classes': [{'id': '1', 'name': 'cat'}]}, 'classes: id: expected int'),
        ({'resizer': 3}, 'resizer: expected str'),
        ({'precision': 'float7'}, 'precision: expected float32 or .* Received: "float7"'),
        ({'format': 'onnx'}, 'format: expected stablehlo. Received: "onnx"'),
        ({'color_order': 'BGR'}, 'color_order: expected RGB or GRAY'),
        ({'advised_threshold': 2}, 'advised_threshold: expected null or 0 to 1'),
        ({'advised_threshold': True}, 'advised_threshold: expected null or 0 to 1'),
        ({'first_class_id': 2}, 'first_class_id: expected 0 or 1'),
        ({'outputs': ['detection_boxes', 'num_detections']}, 'with .*detection_scores'),
        ({'outputs': ['detection_boxes'] * 9}, 'outputs: expected distinct names'),
        (
            {'inputs': [{'name': 'a', 'dtype': 'int8', 'shape': [1, 8, 8, 3]}]},
            r'inputs\[0\]: dtype: expected float32 or uint8',
        ),
        (
            {
                'inputs': [
                    {'name': 'a', 'dtype': 'uint8', 'shape': [1, 8, 8, 3]},
                    {'name': 'b', 'dtype': 'int32', 'shape': [1, 3]},
                ]
            },
            r'inputs\[1\]: expected true_image_shape, int32 \[1, 3\]',
        ),
        ({'weights': [{'name': 'w', 'dtype': 'float', 'shape': []}]}, r'weights\[0\]: dtype: expe'),
    ],
)
def test_what_a_description_says_wrong_is_named(change, message):
    text = json.dumps(json.loads(DESCRIPTION.to_json()) | change)
    with pytest.raises(UserError, match=rf'^f\.json: .*{message}'):
        description.parse(text, 'f.json', 'stablehlo')


def test_descriptions_of_earlier_versions_advise_no_threshold():
    values = json.loads(DESCRIPTION.to_json())
    del values['advised_threshold']
    found = description.parse(json.dumps(values), 'f.json', 'stablehlo')
    assert found.advised_threshold is None


def test_text_that_is_no_description_is_reported():
    for text in ('{', '[]', '3', '[' * 100_000):
        with pytest.raises(UserError, match=r'^f\.json: expected'):
            description.parse(text, 'f.json', 'stablehlo')


@rows.parametrize(
    'resizer', ['fixed_shape_resizer { height: 32 width: 32 }', 'no_such_resizer {}', 'identity']
)
def test_a_resizer_of_another_size_is_refused(resizer):
    changed = json.loads(DESCRIPTION.to_json()) | {'resizer': resizer}
    parsed = description.parse(json.dumps(changed), 'f.json', 'stablehlo')
    with pytest.raises(UserError, match=r'model\.json: resizer: '):
        FileRuntime(pathlib.Path('model'), parsed, lambda inputs: inputs)


def test_names_of_formats_are_lists_or_repeated():
    assert formats.parse_names(['stablehlo, saved_model', 'stablehlo']) == [
        'stablehlo',
        'saved_model',
    ]
    with pytest.raises(UserError, match=r"--format: expected some of saved_model, .*'onyx'"):
        formats.parse_names(['saved_model,onyx'])


def test_a_missing_package_is_named_with_its_extra():
    row = formats.Format('model.x', lambda: None, ('json', 'no_such_module'), extra='x')
    with pytest.raises(
        UserError, match=r"--format x: needs .* no_such_module.*pip install '\.\[x\]'"
    ):
        extras.check_packages('--format x', row.write_packages, row.extra)


def model_file(folder: pathlib.Path, name: str, format_name: str = 'stablehlo') -> pathlib.Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b'')
    described = json.loads(DESCRIPTION.to_json()) | {'format': format_name}
    description.path_beside(path).write_text(json.dumps(described))
    return path


def test_a_folder_with_one_model_file_is_that_file(tmp_path):
    assert formats.find(tmp_path / 'none') is None
    (tmp_path / 'other.mlirbc').write_bytes(b'')  # of another program
    assert formats.find(tmp_path) is None
    assert formats.find(tmp_path / 'other.mlirbc') == tmp_path / 'other.mlirbc'
    path = model_file(tmp_path, 'stablehlo/model.mlirbc')
    assert formats.find(tmp_path) == formats.find(path.parent) == formats.find(path) == path
    model_file(tmp_path, 'b.mlirbc')
    with pytest.raises(UserError, match=r'one model file. Received: b\.mlirbc, stablehlo/model'):
        formats.find(tmp_path)


def test_a_file_without_its_description_or_with_another_is_refused(tmp_path):
    path = tmp_path / 'model.mlirbc'
    path.write_bytes(b'')
    with pytest.raises(UserError, match=r'with its description model\.mlirbc\.json'):
        formats.load(path)
    model_file(tmp_path, path.name, 'onnx')
    with pytest.raises(UserError, match=r'model\.mlirbc\.json: format: expected stablehlo'):
        formats.load(path)
