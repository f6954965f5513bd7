"""Numbers of images of each class, and the repeat factors that follow from them."""

import pytest

from object_detection.data.pipeline import image_counts
from object_detection.data.pipeline.image_counts import ImageCounts

COUNTED = 'num_images: 400 item { name: "cat" id: 1 image_count: 100 } item { name: "ox" id: 2 }'


def test_factors_are_those_of_the_formula():
    counts = image_counts.count([{1}, [1, 1, 2], {1, 3}, ()] * 25)
    assert counts == ImageCounts(100, {1: 75, 2: 25, 3: 25})
    # sqrt(0.36 / 0.25) of the rare ones; 0.75 is above the threshold.
    assert image_counts.repeat_factors(counts, 0.36) == pytest.approx({1: 1.0, 2: 1.2, 3: 1.2})
    # LVIS: 10 of 100,000 images at the threshold of 0.001.
    few = ImageCounts(100_000, {1: 10, 2: 100, 3: 101, 4: 0})
    factors = {1: 10**0.5, 2: 1.0, 3: 1.0}
    assert image_counts.repeat_factors(few, 0.001) == pytest.approx(factors)


def test_counts_are_read_from_a_label_map(tmp_path):
    path, labels = tmp_path / 'counts.pbtxt', tmp_path / 'labels.pbtxt'
    path.write_text(COUNTED)
    labels.write_text('item { name: "cat" id: 1 } item { name: "cow" id: 3 }')
    assert image_counts.read(str(path), str(labels)) == ImageCounts(400, {1: 100})


@pytest.mark.parametrize(
    ('old', 'new', 'said'),
    [
        (' image_count: 100', '', 'expected items with image_count, at least 0. Received: none'),
        ('num_images: 400', '', 'expected num_images, of at least .* 100. Received: 0'),
        ('400', '99', 'expected num_images, of at least .* 100. Received: 99'),
        ('100', '-1', r'expected items with image_count, at least 0. Received: \[-1\]'),
        ('cat', 'dog', "labels.pbtxt, such as id 1 for 'cat'. Received: 'dog'"),
    ],
)
def test_counts_that_cannot_be_meant_are_refused(tmp_path, old, new, said):
    path, labels = tmp_path / 'counts.pbtxt', tmp_path / 'labels.pbtxt'
    path.write_text(COUNTED.replace(old, new))
    labels.write_text('item { name: "cat" id: 1 } item { name: "ox" id: 2 }')
    with pytest.raises(ValueError, match=said):
        image_counts.read(str(path), str(labels))
