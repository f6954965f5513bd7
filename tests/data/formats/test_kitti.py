import numpy as np
import pytest

from object_detection.data import label_map, tf_examples
from object_detection.data.file_access import LocalFiles
from object_detection.data.formats import source
from object_detection.data.formats.kitti import KittiSource
from tests.dataset_tools import records

FILES = LocalFiles()
_REST = '1.5 1.6 3.7 -2.5 1.25 20.5 0.25'


@pytest.fixture
def data(tmp_path, png):
    """Three images, of which the first has one object in an area that is not annotated."""
    images, labels = (tmp_path / 'training' / name for name in ('image_2', 'label_2'))
    lines = [
        f'Car 0.25 2 -1.5 4 6 14 18 {_REST}',
        f'Pedestrian 0 0 0 30 2 38 9 {_REST}',
        'DontCare -1 -1 -10 35 5 39 8 -1 -1 -1 -1000 -1000 -1000 -10',
        f'Cyclist 0 0 0 1 1 9 9 {_REST}',
        f'Car 0 0 0 5 5 5 9 {_REST}',
        f'Car 0 0 0 x 5 5 9 {_REST}',
        'Car 0 0 0 1 1 9 9',
        f'Boat 0 0 0 1 1 9 9 {_REST}',
        f'Car 0 1e309 0 1 1 9 9 {_REST}',
    ]
    for folder in (images, labels):
        folder.mkdir(parents=True)
    for stem, content in (('000000', '\n'.join(lines)), ('000001', ''), ('000500', lines[0])):
        (images / f'{stem}.png').write_bytes(png(40, 30))
        (labels / f'{stem}.txt').write_text(content)
    return str(tmp_path)


def _read(data: KittiSource) -> list[source.ReadResult]:
    opened = data.open(FILES, None)
    assert opened.num_images == len(list(data.entries(FILES)))
    return [source.read(opened.reader, entry, FILES) for entry in data.entries(FILES)]


def test_objects_and_their_3d_boxes(data):
    first, empty = _read(KittiSource(data, 'car,pedestrian,dontcare', 'val'))
    features = records.parse(tf_examples.to_example(first.image))
    assert features['image/object/class/text'] == [b'car']
    assert features['image/object/class/label'] == [1]
    assert features['image/format'] == [b'png']
    sides = ('ymin', 'xmin', 'ymax', 'xmax')
    box = [features[f'image/object/bbox/{side}'][0] for side in sides]
    np.testing.assert_allclose(box, [0.2, 0.1, 0.6, 0.35])
    assert features['image/object/truncated'] == [0.25]
    assert features['image/object/occluded'] == [2]
    assert features['image/object/alpha'] == [-1.5]
    names = ('height', 'width', 'length', 'x', 'y', 'z', 'rot_y')
    values = [features[f'image/object/3d_bbox/{name}'][0] for name in names]
    np.testing.assert_allclose(values, [1.5, 1.6, 3.7, -2.5, 1.25, 20.5, 0.25])
    assert [(number, error.reason) for number, error in first.problems] == [
        (2, 'not_wanted'),
        (3, 'not_wanted'),
        (4, 'not_wanted'),
        (5, 'box_without_area'),
        (6, 'bad_box'),
        (7, 'bad_box'),
        (8, 'unknown_category'),
        (9, 'bad_box'),
    ]
    features = records.parse(tf_examples.to_example(empty.image))
    assert features['image/object/3d_bbox/x'] == features['image/object/occluded'] == []


def test_areas_that_are_not_annotated_count_only_if_asked_for(data):
    [first, *_] = _read(KittiSource(data, 'car, Pedestrian'))
    assert first.image.class_texts == ('car', 'pedestrian')


def test_sets_are_split_by_the_images_numbers(data):
    def ids(split, size=500):
        entries = KittiSource(data, split=split, validation_set_size=size).entries(FILES)
        return [entry.image['id'] for entry in entries]

    assert ids('val') == ['000000', '000001']
    assert ids('train') == ['000500']
    assert ids('val', 1) == ['000000']
    assert len(ids('')) == 3


@pytest.mark.parametrize(
    ('options', 'match'),
    [
        ({'classes': 'car,boat'}, 'expected types of car.*Received: boat'),
        ({'split': 'test'}, 'expected train or val'),
        ({'split': 'val', 'validation_set_size': 0}, 'has no images'),
    ],
)
def test_errors(data, options, match):
    with pytest.raises(ValueError, match=match):
        KittiSource(data, **options).open(FILES, None)


def test_a_label_map_adds_types(data):
    named = label_map.classes(
        label_map.parse(b'item { id: 3 name: "Boat" } item { id: 7 name: "car" }', 'map'), 'map'
    )
    for classes in ('', 'boat,car'):
        kitti = KittiSource(data, classes)
        reader = kitti.open(FILES, named).reader
        result = source.read(reader, next(kitti.entries(FILES)), FILES)
        assert result.image.class_labels.tolist() == [7, 3]
        assert result.image.class_texts[-1] == 'Boat'


def test_fixture_of_another_program_is_detected(shared, tmp_path):
    folder = str(shared / 'data/datumaro_format_fixtures/kitti_dataset/kitti_detection')
    [found] = KittiSource.detect(folder, FILES)
    assert [result.image.class_texts for result in _read(found.source)] == [
        ('truck', 'van'),
        ('van', 'van', 'van'),
    ]
    assert KittiSource.detect(str(tmp_path), FILES) == []
