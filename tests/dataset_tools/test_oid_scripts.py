import subprocess
import sys

import pytest
from PIL import Image

from tests.dataset_tools import records

_PACKAGE = 'object_detection.dataset_tools'


def _run(name: str, *arguments: str) -> subprocess.CompletedProcess:
    program = [sys.executable, '-m', f'{_PACKAGE}.{name}', *arguments]
    return subprocess.run(program, capture_output=True, text=True, check=False)


@pytest.mark.slow  # Two processes that import Beam.
def test_records_have_the_names_of_the_reference(tmp_path):
    (tmp_path / 'images').mkdir()
    Image.new('RGB', (40, 20)).save(tmp_path / 'images/0a.jpg')
    boxes = tmp_path / 'boxes.csv'
    boxes.write_text('ImageID,LabelName,XMin,XMax,YMin,YMax\n0a,/m/1,0,1,0,1\n')
    (tmp_path / 'map.pbtxt').write_text('item { name: "/m/1" display_name: "Cat" id: 3 }')
    arguments = [
        f'--input_box_annotations_csv={boxes}',
        f'--input_images_directory={tmp_path}/images',
        f'--input_label_map={tmp_path}/map.pbtxt',
        f'--output_tf_record_path_prefix={tmp_path}/out',
    ]
    result = _run('create_oid_tf_record', *arguments, '--num_shards=1')
    assert result.returncode == 0, result.stderr
    [features] = records.read(tmp_path / 'out-00000-of-00001')
    assert features['image/object/class/label'] == [3]
    assert features['image/object/class/text'] == [b'/m/1']
    assert features['image/filename'] == [b'0a.jpg']
    assert features['image/source_id'] == [b'0a']
    result = _run('create_oid_tf_record', *arguments[1:])
    assert result.returncode == 1
    assert 'input_box_annotations_csv' in result.stderr


def test_expansion_writes_a_complete_file_or_none(tmp_path):
    (tmp_path / 'tree.json').write_text(
        '{"LabelName": "root", "Subcategory": [{"LabelName": "a", "Subcategory": '
        '[{"LabelName": "b"}]}]}'
    )
    (tmp_path / 'in.csv').write_text('ImageID,LabelName\n1,b\n')
    arguments = [
        f'--json_hierarchy_file={tmp_path}/tree.json',
        f'--input_annotations={tmp_path}/in.csv',
        f'--output_annotations={tmp_path}/out.csv',
        '--annotation_type=1',
    ]
    assert _run('oid_hierarchical_labels_expansion', *arguments).returncode == 0
    assert (tmp_path / 'out.csv').read_text() == 'ImageID,LabelName\n1,b\n1,a\n'
    (tmp_path / 'in.csv').write_text('ImageID,LabelName\n1,b\n2\n')
    result = _run('oid_hierarchical_labels_expansion', *arguments)
    assert result.returncode == 1
    assert 'in.csv, line 3: expected 2 fields' in result.stderr
    assert (tmp_path / 'out.csv').read_text() == 'ImageID,LabelName\n1,b\n1,a\n'
    assert not list(tmp_path.glob('*.tmp'))
