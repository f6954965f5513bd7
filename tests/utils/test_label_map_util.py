import importlib.resources
import subprocess
import sys

import numpy as np
import pytest

from object_detection.utils import label_map_util
from tests import goldens

DATA = importlib.resources.files('object_detection') / 'data'
COUNTS = {
    'ava_label_map_v2.1': (60, 80),
    'face_label_map': (1, 1),
    'face_person_with_keypoints_label_map': (2, 2),
    'fgvc_2854_classes_label_map': (2854, 2854),
    'kitti_label_map': (2, 2),
    'mscoco_complete_label_map': (90, 90),
    'mscoco_label_map': (80, 90),
    'oid_bbox_trainable_label_map': (545, 545),
    'oid_object_detection_challenge_500_label_map': (500, 500),
    'oid_v4_label_map': (601, 601),
    'pascal_label_map': (20, 20),
    'pet_label_map': (37, 37),
    'snapshot_serengeti_label_map': (48, 48),
}


@pytest.fixture
def full(tmp_path):
    """A recorded label map: its path, and what the functions of the reference return for it."""
    params = goldens.load('label_maps', 'full').params
    path = tmp_path / 'label_map.pbtxt'
    path.write_text(params['text'])
    return str(path), params


def test_names_to_ids_equal_the_reference(full):
    path, expected = full
    assert label_map_util.get_label_map_dict(path) == expected['get_label_map_dict']
    filled = label_map_util.get_label_map_dict(path, fill_in_gaps_and_background=True)
    assert filled == expected['get_label_map_dict_fill_in_gaps_and_background']
    # The reference names an item without a display name ''.
    displayed = label_map_util.get_label_map_dict(path, use_display_name=True)
    assert displayed == {'Person': 1, 'Car': 2, 'Vehicle': 5, '/m/07': 7}
    keypoints = label_map_util.get_keypoint_label_map_dict(path)
    assert keypoints == expected['keypoint_label_map']


def test_categories_equal_the_reference(full):
    path, expected = full
    labels = label_map_util.load_labelmap(path)
    assert label_map_util.get_max_label_map_index(labels) == expected['max_index']
    convert = label_map_util.convert_label_map_to_categories
    assert convert(labels, max_num_classes=3) == expected['categories_max3']
    assert convert(labels, 10, use_display_name=False) == expected['categories_no_display']
    assert convert(None, 3) == expected['categories_none']
    index = label_map_util.create_category_index_from_labelmap(path, use_display_name=True)
    assert index == {int(key): value for key, value in expected['category_index'].items()}
    assert label_map_util.create_categories_from_labelmap(path) == list(index.values())
    assert label_map_util.create_category_index(index.values()) == index
    agnostic = {int(key): value for key, value in expected['class_agnostic'].items()}
    assert label_map_util.create_class_agnostic_category_index() == agnostic


def test_hierarchies_equal_the_reference(full):
    path, expected = full
    for name, identity in (('hierarchy_ancestors', True), ('hierarchy_no_identity', False)):
        tables = label_map_util.get_label_map_hierarchy_lut(path, include_identity=identity)
        np.testing.assert_array_equal(tables, expected[name])


def test_a_validator_sees_the_items(full):
    def validate(labels):
        raise ArithmeticError(len(labels.item))

    with pytest.raises(ArithmeticError, match='4'):
        label_map_util.load_labelmap(full[0], validator=validate)


def test_each_label_map_of_the_package_is_read():
    files = {path.name.removesuffix('.pbtxt'): path for path in DATA.glob('*.pbtxt')}
    found = {}
    for name, path in files.items():
        categories = label_map_util.create_categories_from_labelmap(str(path))
        found[name] = (len(categories), max(category['id'] for category in categories))
    assert found == COUNTS


def test_label_maps_have_the_ids_of_their_data_sets():
    index = label_map_util.create_category_index_from_labelmap(str(DATA / 'mscoco_label_map.pbtxt'))
    named = {1: 'person', 13: 'stop sign', 18: 'dog', 44: 'bottle', 84: 'book', 90: 'toothbrush'}
    assert {key: index[key]['name'] for key in named} == named
    # https://cocodataset.org: ids of "stuff" and of classes that were given up.
    unused = {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}
    assert set(range(1, 91)) - set(index) == unused
    pascal = label_map_util.get_label_map_dict(str(DATA / 'pascal_label_map.pbtxt'))
    assert list(pascal) == sorted(pascal)
    assert (pascal['aeroplane'], pascal['tvmonitor']) == (1, 20)


def test_missing_names_say_where_the_list_is():
    with pytest.raises(AttributeError, match=r'no attribute .loading.; docs/migrating\.md'):
        label_map_util.loading  # noqa: B018


def test_modules_for_scripts_without_tensorflow_do_not_import_it():
    modules = ('label_map_util', 'visualization_utils', 'config_util')
    code = (
        f'import sys; from object_detection.utils import {", ".join(modules)}; '
        "sys.exit('tensorflow' in sys.modules)"
    )
    subprocess.run([sys.executable, '-c', code], check=True)


def test_the_classes_of_open_images_are_in_the_order_of_their_list():
    path = str(DATA / 'oid_v4_label_map.pbtxt')
    items = list(label_map_util.load_labelmap(path).item)
    assert [item.id for item in items] == list(range(1, 602))
    names = [item.name for item in items]
    # These two are the other way round in the file that models were trained with.
    assert names.index('/m/09f_2') == names.index('/m/09f20') + 1
    names.remove('/m/09f_2')
    assert names == sorted(names, key=lambda name: name.replace('_', ''))
    displayed = label_map_util.get_label_map_dict(path, use_display_name=True)
    assert len(displayed) == 601
    ids = {'Tortoise': 1, 'Person': 69, 'Man': 308, 'Clothing': 433, 'Car': 571, 'Helmet': 601}
    assert {name: displayed[name] for name in ids} == ids


def test_the_class_lists_of_open_images_mean_the_same_classes():
    """The first ids are those of the published models' class lists."""

    def read(name):
        items = label_map_util.load_labelmap(str(DATA / f'oid_{name}_label_map.pbtxt')).item
        assert [item.id for item in items] == list(range(1, len(items) + 1))
        return {item.name: item.display_name for item in items}

    v4, challenge, trainable = map(read, ('v4', 'object_detection_challenge_500', 'bbox_trainable'))
    assert list(challenge.values())[:4] == ['Infant bed', 'Rose', 'Flag', 'Flashlight']
    assert list(trainable.values())[:4] == ['Person', 'Clothing', 'Man', 'Face']
    assert challenge.items() <= v4.items()
    assert trainable.keys() <= v4.keys()
    renamed = {name: v4[name] for name in trainable if trainable[name] != v4[name]}
    assert len(renamed) == 18
    assert (trainable['/m/0dzct'], renamed['/m/0dzct']) == ('Face', 'Human face')


def test_a_display_name_of_two_items_is_that_of_the_last_one():
    path = str(DATA / 'oid_bbox_trainable_label_map.pbtxt')
    index = label_map_util.create_category_index_from_labelmap(path)
    mice = [number for number, category in index.items() if category['name'] == 'Mouse']
    assert len(mice) == 2
    assert label_map_util.get_label_map_dict(path, use_display_name=True)['Mouse'] == max(mice)


def test_classes_that_coco_and_open_images_share_have_the_same_names():
    def read(name):
        items = label_map_util.load_labelmap(str(DATA / f'{name}_label_map.pbtxt')).item
        return {item.name: item.display_name.lower() for item in items}

    coco, open_images = read('mscoco'), read('oid_v4')
    shared = coco.keys() & open_images.keys()
    assert len(shared) == 78
    other = {coco[name]: open_images[name] for name in shared if coco[name] != open_images[name]}
    assert other == {
        'cell phone': 'mobile phone',
        'cow': 'cattle',
        'dining table': 'table',
        'donut': 'doughnut',
        'frisbee': 'flying disc',
        'hair drier': 'hair dryer',
        'keyboard': 'computer keyboard',
        'microwave': 'microwave oven',
        'mouse': 'computer mouse',
        'potted plant': 'houseplant',
        'remote': 'remote control',
        'skis': 'ski',
        'sports ball': 'ball',
        'tennis racket': 'racket',
        'tv': 'television',
    }
