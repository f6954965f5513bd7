import numpy as np
import pytest

from object_detection.dataset_tools import data_statistics
from object_detection.errors import ConfigError
from tests.data import examples

SIZE = {'image__height': [20], 'image__width': [40]}


def write(folder, name, *serialized):
    prefix = folder / name
    examples.write_records(folder / f'{name}-00000-of-00001', list(serialized))
    (folder / f'{name}_label_map.pbtxt').write_text(
        "item { name: 'cat' id: 1 } item { name: 'dog' id: 4 }"
    )
    return str(prefix)


def test_measures_sizes_counts_and_classes(tmp_path):
    boxes = [[0.0, 0.0, 0.5, 0.5], [0.0, 0.25, 1.0, 0.5]]
    prefix = write(
        tmp_path,
        'train',
        examples.example(boxes, [1, 4], ['cat', 'dog'], **SIZE),
        examples.example([[0.0, 0.0, 0.5, 0.5]], [4], masks=[np.ones((20, 40))], **SIZE),
        examples.example(**SIZE),
    )
    found = data_statistics.measure(prefix)
    assert (found.num_images, found.num_sampled) == (3, 3)
    assert found.class_names == {1: 'cat', 4: 'dog'}
    assert found.objects_per_class == {'cat': 1, 'dog': 2}
    np.testing.assert_array_equal(found.box_classes, [1, 4, 4])
    np.testing.assert_array_equal(found.image_sizes, [[20, 40]] * 3)
    np.testing.assert_array_equal(found.objects_per_image, [2, 1, 0])
    # Half of 20 pixels of height and half of 40 of width, by the longer side of 40; and so on.
    np.testing.assert_allclose(found.box_sizes, [[0.25, 0.5], [0.5, 0.25], [0.25, 0.5]])
    assert found.mask_type == 'PNG_MASKS'
    assert found.pattern == f'{prefix}-?????-of-?????'


def test_a_large_set_is_sampled_from_every_file(tmp_path, monkeypatch):
    monkeypatch.setattr(data_statistics, 'MAX_SAMPLED_RECORDS', 4)
    prefix = write(tmp_path, 'train')
    for shard, side in enumerate((10, 30)):
        record = examples.example([[0, 0, 1, 1]], [1], image__height=[side], image__width=[side])
        examples.write_records(tmp_path / f'train-0000{shard}-of-00002', [record] * 5)
    (tmp_path / 'train-00000-of-00001').unlink()
    found = data_statistics.measure(prefix)
    assert (found.num_images, found.num_sampled) == (10, 4)
    assert sorted(found.image_sizes[:, 0]) == [10, 10, 30, 30]


def test_boxes_that_cannot_be_measured_are_left_out(tmp_path):
    boxes = [[0.5, 0.5, 0.1, 0.1], [0.0, 0.0, float('nan'), 1.0], [0.0, 0.0, 1.0, 1.0]]
    prefix = write(tmp_path, 'train', examples.example(boxes, [1, 1, 4], **SIZE))
    found = data_statistics.measure(prefix)
    np.testing.assert_allclose(found.box_sizes, [[0.5, 1.0]])
    np.testing.assert_array_equal(found.box_classes, [4])


def test_errors_name_what_is_missing(tmp_path):
    with pytest.raises(ConfigError, match=r'absent-00000-of-00010'):
        data_statistics.measure(str(tmp_path / 'absent'))
    prefix = write(tmp_path, 'train', examples.example(**SIZE))
    with pytest.raises(ConfigError, match='none in 1 records'):
        data_statistics.measure(prefix)
    with pytest.raises(ConfigError, match='--label_map'):
        data_statistics.measure(prefix, str(tmp_path / 'absent.pbtxt'))
    (tmp_path / 'train-00000-of-00001').write_bytes(b'no record at all, but long enough')
    with pytest.raises((ConfigError, ValueError), match='train-00000-of-00001'):
        data_statistics.measure(prefix)
