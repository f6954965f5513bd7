"""Examples of noise."""

import numpy as np

from object_detection.core.fields import InputFields as F
from object_detection.data.decoder import NUMERICAL_MASKS, ExampleDecoder
from object_detection.data.pipeline import synthetic
from tests.data import examples

SIZES = [(30, 40), (40, 30)]


def dataset(**options):
    options = {'num_objects': 5, 'num_classes': 3, 'with_masks': True, 'seed': 1, **options}
    return synthetic.examples(SIZES, 2, **options)


def make(**options):
    return list(dataset(**options).as_numpy_iterator())


def test_they_are_of_the_form_of_decoded_records():
    decoder = ExampleDecoder(mask_type=NUMERICAL_MASKS)
    record = examples.example(
        [[0.1, 0.1, 0.5, 0.5]],
        [1],
        image__height=[20],
        image__width=[30],
        image__object__mask=[0.0] * 600,
    )
    decoded = decoder(record)
    spec = dataset().element_spec
    assert spec.keys() == decoded.keys()
    for name, value in decoded.items():
        assert spec[name].dtype == value.dtype, name
        assert spec[name].shape.rank == value.shape.rank, name
    assert dataset(with_masks=False).element_spec.keys() == decoded.keys() - {
        F.GROUNDTRUTH_INSTANCE_MASKS
    }


def test_sizes_objects_and_masks():
    made = make()
    assert [e[F.IMAGE].shape[:2] for e in made] == [(30, 40)] * 2 + [(40, 30)] * 2
    assert len({e[F.SOURCE_ID] for e in made}) == 4
    for example in made:
        size = example[F.ORIGINAL_IMAGE_SPATIAL_SHAPE]
        assert tuple(size) == example[F.IMAGE].shape[:2]
        boxes = example[F.GROUNDTRUTH_BOXES]
        assert boxes.shape == (5, 4)
        assert boxes.min() >= 0
        assert boxes.max() <= 1
        assert set(example[F.GROUNDTRUTH_CLASSES]) <= {1, 2, 3}
        pixels = np.tile(size, 2) * boxes
        for mask, box, area in zip(
            example[F.GROUNDTRUTH_INSTANCE_MASKS], pixels, example[F.GROUNDTRUTH_AREA], strict=True
        ):
            rows, columns = np.nonzero(mask)
            centers = np.stack([rows, columns]) + 0.5
            assert (centers.min(1) >= box[:2]).all()
            assert (centers.max(1) <= box[2:]).all()
            # As many pixels as their area says, but for those on the outline.
            assert abs(mask.sum() - area) < 2 * (box[2:] - box[:2]).sum()


def test_a_seed_makes_them_the_same():
    first, again, other = make(), make(), make(seed=2)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a[F.IMAGE], b[F.IMAGE])
        np.testing.assert_array_equal(a[F.GROUNDTRUTH_BOXES], b[F.GROUNDTRUTH_BOXES])
    assert (first[0][F.IMAGE] != other[0][F.IMAGE]).any()
    assert (first[0][F.IMAGE] != first[1][F.IMAGE]).any()


def test_numbered_batches_are_as_many_images_as_requested():
    batches = synthetic.examples(
        [(8, 8)], 2, num_objects=1, num_classes=1, with_masks=False, seed=0
    ).batch(2)
    numbered = list(synthetic.numbered(batches, 2, 5).as_numpy_iterator())
    assert [len(batch[F.IMAGE]) for batch in numbered] == [2, 2, 1]
    ids = [int(text) for batch in numbered for text in batch[F.SOURCE_ID]]
    assert ids == [0, 1, 2, 3, 4]
