import io
import struct

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from object_detection.core.fields import InputFields as F
from object_detection.data import label_map
from object_detection.data.decoder import ExampleDecoder
from object_detection.data.image_decoding import count_pixels, decode_image
from object_detection.data.image_item import ImageHandler
from tests import goldens, rows
from tests.data import examples

BOXES = [[0.1, 0.2, 0.3, 0.4], [0.5, 0.5, 1.0, 0.75]]
MASK_TYPES = {None: None, 1: 'numerical', 2: 'png'}
# Where the reference leaves a field empty that the record lacks, all objects have a default here,
# so that rows stay together.
FILLED = {
    F.GROUNDTRUTH_AREA: -1,
    F.GROUNDTRUTH_IS_CROWD: 0,
    F.GROUNDTRUTH_DIFFICULT: 0,
    F.GROUNDTRUTH_GROUP_OF: 0,
    F.GROUNDTRUTH_INSTANCE_MASK_WEIGHTS: 1,
    F.GROUNDTRUTH_TRACK_IDS: -1,
}
OPTIONAL = {
    'load_multiclass_scores': (F.MULTICLASS_SCORES,),
    'load_track_id': (F.GROUNDTRUTH_TRACK_IDS,),
    'load_keypoint_depth_features': (
        F.GROUNDTRUTH_KEYPOINT_DEPTHS,
        F.GROUNDTRUTH_KEYPOINT_DEPTH_WEIGHTS,
    ),
    'load_dense_pose': (
        F.GROUNDTRUTH_DP_NUM_POINTS,
        F.GROUNDTRUTH_DP_POINTS,
        F.GROUNDTRUTH_DP_SURFACE,
        F.GROUNDTRUTH_DP_PART_IDS,
    ),
    'load_context_features': (F.CONTEXT_FEATURES,),
    'load_instance_masks': (F.GROUNDTRUTH_INSTANCE_MASK_WEIGHTS,),
}
OF_IMAGE = (
    F.GROUNDTRUTH_IMAGE_CLASSES,
    F.GROUNDTRUTH_IMAGE_CONFIDENCES,
    F.GROUNDTRUTH_VERIFIED_NEG_CLASSES,
    F.GROUNDTRUTH_NOT_EXHAUSTIVE_CLASSES,
)
# Records that lack what is asked for: the reference returns no rows, to be padded with zeros.
LACKING = {'coco_plain_nolabelmap': F.GROUNDTRUTH_CLASSES, 'minimal_all': 'groundtruth_encoded'}
COMPARED = (
    F.SOURCE_ID,
    F.KEY,
    F.FILENAME,
    F.IMAGE,
    F.ORIGINAL_IMAGE_SPATIAL_SHAPE,
    F.GROUNDTRUTH_BOXES,
    F.GROUNDTRUTH_CLASSES,
    F.GROUNDTRUTH_WEIGHTS,
    F.GROUNDTRUTH_KEYPOINTS,
    F.GROUNDTRUTH_KEYPOINT_VISIBILITIES,
    F.GROUNDTRUTH_KEYPOINT_DEPTHS,
    F.GROUNDTRUTH_KEYPOINT_DEPTH_WEIGHTS,
    F.GROUNDTRUTH_DP_NUM_POINTS,
    F.GROUNDTRUTH_DP_PART_IDS,
    'groundtruth_dp_surface_coords',
    F.MULTICLASS_SCORES,
    F.IMAGE_ADDITIONAL_CHANNELS,
    F.CONTEXT_FEATURES,
    'context_feature_length',
    *OF_IMAGE,
    *FILLED,
)


@pytest.fixture
def labels(tmp_path):
    return label_map.load(examples.write_label_map(tmp_path))


def golden_decoder(kwargs, folder):
    path = kwargs.get('label_map_proto_file')
    labels = label_map.load(folder / path) if path else None
    masks = kwargs.get('instance_mask_type') if kwargs.get('load_instance_masks') else None
    names = kwargs.get('use_keypoint_label_map')
    wanted = [name for flag, names in OPTIONAL.items() if kwargs.get(flag) for name in names]
    return ExampleDecoder(
        label_map=labels,
        mask_type=MASK_TYPES[masks],
        num_keypoints=kwargs.get('num_keypoints', 0),
        keypoint_ids=label_map.keypoint_ids(labels, path) if names else None,
        fields=[*OF_IMAGE, *wanted],
        expand_hierarchy=kwargs.get('expand_hierarchy_labels', False),
        image=ImageHandler(num_additional_channels=kwargs.get('num_additional_channels', 0)),
    )


# Left out: two that are errors there.
@goldens.rows(
    'tf_example_decoder',
    prefix=('coco_', 'pascal', 'synthetic_plain', 'synthetic_n', 'synthetic_a', 'minimal')
    + ('synthetic_hierarchy_full',),
)
def test_matches_the_reference(case_name):
    case = goldens.load('tf_example_decoder', case_name)
    folder = goldens.COMPONENTS / 'examples'
    decoder = golden_decoder(case.params['decoder_kwargs'], folder)
    for i, record in enumerate(tf.data.TFRecordDataset(str(folder / case.params['record'][0]))):
        if case_name in LACKING and len(case.outputs[f'ex{i}/groundtruth_boxes']):
            with pytest.raises(tf.errors.InvalidArgumentError, match=LACKING[case_name]):
                decoder(record)
            continue
        example = as_the_reference(decoder(record), case.params['decoder_kwargs'])
        count = len(example[F.GROUNDTRUTH_BOXES])
        for name in COMPARED:
            expected = case.outputs.get(f'ex{i}/{name}')
            if expected is None:
                continue
            if name in FILLED and not len(expected):
                expected = np.full(count, FILLED[name])
            if not expected.size:
                # The reference does not tell its shape.
                assert not np.size(example[name])
                continue
            np.testing.assert_array_equal(example[name], expected, err_msg=name)
        shape = case.outputs.get(f'ex{i}/image#shape', example[F.IMAGE].shape)
        np.testing.assert_array_equal(example[F.IMAGE].shape, shape)
        masks = case.outputs.get(f'ex{i}/groundtruth_instance_masks')
        if masks is not None and F.GROUNDTRUTH_INSTANCE_MASKS in example:
            np.testing.assert_array_equal(example[F.GROUNDTRUTH_INSTANCE_MASKS], masks)
        elif masks is not None:
            encoded = example[F.GROUNDTRUTH_ENCODED_MASKS]
            decoded = [tf.io.decode_png(mask, channels=1)[..., 0] > 0 for mask in encoded]
            np.testing.assert_array_equal(np.reshape(decoded, masks.shape), masks)


def as_the_reference(example, kwargs):
    """Returns an example in the form of the reference's decoder."""
    example = {name: value.numpy() for name, value in example.items()}
    if kwargs.get('num_additional_channels'):
        image = example[F.IMAGE]
        example[F.IMAGE], example[F.IMAGE_ADDITIONAL_CHANNELS] = image[..., :3], image[..., 3:]
    if F.MULTICLASS_SCORES in example:
        example[F.MULTICLASS_SCORES] = example[F.MULTICLASS_SCORES].ravel()
    if F.CONTEXT_FEATURES in example:
        example['context_feature_length'] = example[F.CONTEXT_FEATURES].shape[1]
    if F.GROUNDTRUTH_DP_POINTS in example:
        # Padded to the most points of the record's objects.
        most = max(example[F.GROUNDTRUTH_DP_NUM_POINTS], default=0)
        parts = example[F.GROUNDTRUTH_DP_POINTS], example[F.GROUNDTRUTH_DP_SURFACE]
        assert not np.concatenate(parts, axis=-1)[:, most:].any()
        example['groundtruth_dp_surface_coords'] = np.concatenate(parts, axis=-1)[:, :most]
        example[F.GROUNDTRUTH_DP_PART_IDS] = example[F.GROUNDTRUTH_DP_PART_IDS][:, :most]
    confidences = example[F.GROUNDTRUTH_IMAGE_CONFIDENCES]
    assert len(confidences) == len(example[F.GROUNDTRUTH_IMAGE_CLASSES])
    return example


def test_a_hierarchy_needs_a_label_map():
    case = goldens.load('tf_example_decoder', 'hierarchy_without_label_map')
    assert case.raises == 'ValueError'
    with pytest.raises(ValueError, match='label_map'):
        ExampleDecoder(expand_hierarchy=True)


def test_objects_are_repeated_for_the_classes_above(tmp_path):
    path = examples.write_label_map(
        tmp_path,
        "item { name: 'dog' id: 1 ancestor_ids: 3 } item { name: 'cat' id: 2 ancestor_ids: 3 }"
        "item { name: 'animal' id: 3 descendant_ids: 1 descendant_ids: 2 }",
    )
    decoder = ExampleDecoder(
        label_map=label_map.load(path),
        expand_hierarchy=True,
        fields=[F.GROUNDTRUTH_IMAGE_CLASSES],
    )
    record = examples.example(
        [*BOXES, [0, 0, 1, 1]],
        [],
        ['dog', 'owl', 'animal'],
        image__object__weight=[0.1, 0.2, 0.3],
        image__class__text=[b'animal', b'dog'],
        image__class__confidence=[0.0, 0.5],
    )
    example = decoder(record)
    np.testing.assert_array_equal(example[F.GROUNDTRUTH_CLASSES], [1, 3, -1, 3])
    np.testing.assert_allclose(example[F.GROUNDTRUTH_WEIGHTS], [0.1, 0.1, 0.2, 0.3])
    np.testing.assert_allclose(example[F.GROUNDTRUTH_BOXES][1], BOXES[0])
    # Without an animal there is no dog and no cat.
    np.testing.assert_array_equal(example[F.GROUNDTRUTH_IMAGE_CLASSES], [1, 1, 2, 3])
    np.testing.assert_array_equal(example[F.GROUNDTRUTH_IMAGE_CONFIDENCES], [0.5, 0, 0, 0])


def test_unknown_texts_have_no_classes_above():
    case = goldens.load('tf_example_decoder', 'synthetic_hierarchy')
    folder = goldens.COMPONENTS / 'examples'
    (record,) = tf.data.TFRecordDataset(str(folder / case.params['record'][0]))
    assert case.outputs['ex0#raises'] == b'InvalidArgumentError'
    example = golden_decoder(case.params['decoder_kwargs'], folder)(record)
    np.testing.assert_array_equal(example[F.GROUNDTRUTH_CLASSES], [1, 3, 4, -1])


def named_keypoints(texts, values, boxes=BOXES):
    return examples.example(
        boxes,
        [1, 2],
        source_id='img 42',
        image__object__keypoint__text=[text.encode() for text in texts],
        image__object__keypoint__x=values,
        image__object__keypoint__y=values,
        image__object__keypoint__z=values,
    )


def test_keypoints_are_arranged_by_their_names():
    decoder = ExampleDecoder(
        num_keypoints=3,
        keypoint_ids={'nose': 2, 'ear': 0},
        fields=[F.GROUNDTRUTH_KEYPOINT_DEPTHS, F.GROUNDTRUTH_KEYPOINT_DEPTH_WEIGHTS],
    )
    example = decoder(named_keypoints(['nose', 'tail', 'ear', 'nose'], [0.1, 0.2, 0.3, 0.4]))
    nan = np.nan
    np.testing.assert_allclose(
        example[F.GROUNDTRUTH_KEYPOINTS][..., 0], [[nan, nan, 0.1], [0.3, nan, 0.4]]
    )
    np.testing.assert_array_equal(
        example[F.GROUNDTRUTH_KEYPOINT_VISIBILITIES], [[0, 0, 1], [1, 0, 1]]
    )
    np.testing.assert_allclose(example[F.GROUNDTRUTH_KEYPOINT_DEPTHS], [[0, 0, 0.1], [0.3, 0, 0.4]])
    np.testing.assert_array_equal(
        example[F.GROUNDTRUTH_KEYPOINT_DEPTH_WEIGHTS], [[0, 0, 1], [1, 0, 1]]
    )
    without = decoder(examples.example(BOXES, [1, 2]))
    assert np.isnan(without[F.GROUNDTRUTH_KEYPOINTS]).all()
    assert decoder(examples.example())[F.GROUNDTRUTH_KEYPOINTS].shape == (0, 3, 2)


@rows.parametrize('texts', [[], ['nose'], ['nose', 'ear', 'nose']])
def test_keypoints_without_names_name_the_image(texts):
    decoder = ExampleDecoder(num_keypoints=3, keypoint_ids={'nose': 2})
    with pytest.raises(tf.errors.InvalidArgumentError, match=r'(?s)keypoint/text.*img 42'):
        decoder(named_keypoints(texts, [0.1, 0.2]))


def test_fields_are_read_on_request_only():
    assert not ExampleDecoder()(examples.example()).keys() & set(OPTIONAL['load_dense_pose'])
    with pytest.raises(ValueError, match='expected fields of'):
        ExampleDecoder(fields=[F.GROUNDTRUTH_BOXES])


def test_reads_what_was_written():
    case = goldens.load('tf_example_decoder', 'synthetic_features')
    written = case.inputs
    path = goldens.COMPONENTS / 'examples' / 'synthetic.record'
    (record,) = tf.data.TFRecordDataset(str(path))
    example = ExampleDecoder(num_keypoints=2, fields=[F.MULTICLASS_SCORES])(record)
    of_object = {
        F.GROUNDTRUTH_CLASSES: 'class/label',
        F.GROUNDTRUTH_WEIGHTS: 'weight',
        F.GROUNDTRUTH_IS_CROWD: 'is_crowd',
        F.GROUNDTRUTH_DIFFICULT: 'difficult',
        F.GROUNDTRUTH_GROUP_OF: 'group_of',
    }
    for name, key in of_object.items():
        np.testing.assert_allclose(example[name], written[f'image/object/{key}'], err_msg=name)
    sides = [written[f'image/object/bbox/{side}'] for side in ('ymin', 'xmin', 'ymax', 'xmax')]
    np.testing.assert_allclose(example[F.GROUNDTRUTH_BOXES], np.stack(sides, 1), rtol=1e-6)
    scores = written['image/object/class/multiclass_scores'].reshape(3, 3)
    np.testing.assert_allclose(example[F.MULTICLASS_SCORES], scores, rtol=1e-6)
    visible = written['image/object/keypoint/visibility'].reshape(3, 2) > 0
    points = [written[f'image/object/keypoint/{axis}'].reshape(3, 2) for axis in 'yx']
    expected = np.where(visible[..., np.newaxis], np.stack(points, -1), np.nan)
    np.testing.assert_allclose(example[F.GROUNDTRUTH_KEYPOINTS], expected, rtol=1e-6)
    texts = {
        F.SOURCE_ID: 'image/source_id',
        F.KEY: 'image/key/sha256',
        F.FILENAME: 'image/filename',
    }
    for name, key in texts.items():
        assert example[name] == written[key][0]
    size = [written['image/height'], written['image/width']]
    np.testing.assert_array_equal(example[F.ORIGINAL_IMAGE_SPATIAL_SHAPE], size)


def test_scores_are_distinguished_by_their_number():
    decoder = ExampleDecoder(fields=[F.MULTICLASS_SCORES])
    key = 'image__object__class__multiclass_scores'
    assert decoder(examples.example(BOXES, [1, 2]))[F.MULTICLASS_SCORES].shape == (2, 0)
    assert decoder(examples.example())[F.MULTICLASS_SCORES].shape == (0, 0)
    with pytest.raises(tf.errors.InvalidArgumentError, match='no whole number of'):
        decoder(examples.example(BOXES, [1, 2], **{key: [0.5] * 3}))
    with pytest.raises(tf.errors.InvalidArgumentError, match='no whole number of'):
        decoder(examples.example(**{key: [0.5]}))


def test_text_wins_over_label_and_label_is_the_backup(labels):
    decoder = ExampleDecoder(label_map=labels)
    both = decoder(examples.example(BOXES, [1, 1], ['Hund', 'bird']))
    np.testing.assert_array_equal(both[F.GROUNDTRUTH_CLASSES], [2, -1])
    assert both[F.UNKNOWN_CLASSES] == b'bird'
    label_only = decoder(examples.example(BOXES, [1, 2]))
    np.testing.assert_array_equal(label_only[F.GROUNDTRUTH_CLASSES], [1, 2])
    assert label_only[F.UNKNOWN_CLASSES] == b''
    without_map = ExampleDecoder()(examples.example(BOXES, [1, 9], ['dog', 'dog']))
    np.testing.assert_array_equal(without_map[F.GROUNDTRUTH_CLASSES], [1, 9])


def test_unknown_texts_are_reported_once(labels):
    boxes = [[0.0, 0.0, 1.0, 1.0]] * 5
    record = examples.example(boxes, [1] * 5, ['owl', 'cat', 'bird', 'owl', 'catt'])
    example = ExampleDecoder(label_map=labels)(record)
    np.testing.assert_array_equal(example[F.GROUNDTRUTH_CLASSES], [-1, 1, -1, -1, -1])
    assert example[F.UNKNOWN_CLASSES] == b'owl\nbird\ncatt'


def test_many_classes_are_looked_up():
    names = [f'class {i}' for i in range(1300)]
    labels = label_map.LabelMap([], {}, {name: i + 1 for i, name in enumerate(names)})
    decoder = ExampleDecoder(label_map=labels)
    drawn = np.random.default_rng(0).permutation(1300)[:50]
    record = examples.example([[0, 0, 1, 1]] * 50, [], [names[i] for i in drawn])
    np.testing.assert_array_equal(decoder(record)[F.GROUNDTRUTH_CLASSES], drawn + 1)


def test_decoding_holds_no_state(labels):
    """Because of a table or a function of Python, TensorFlow would decode one record at a time."""
    decoder = ExampleDecoder(label_map=labels, mask_type='png')
    function = tf.function(decoder, autograph=False).get_concrete_function(
        tf.TensorSpec([], tf.string)
    )
    graph = function.graph.as_graph_def()
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    operations = {node.op for node in nodes}
    assert 'DecodeImage' in operations
    assert not [name for name in operations if 'Table' in name or 'PyFunc' in name]


def test_defaults_of_absent_fields():
    example = ExampleDecoder()(examples.example(BOXES, [1, 2]))
    np.testing.assert_array_equal(example[F.GROUNDTRUTH_WEIGHTS], [1, 1])
    np.testing.assert_array_equal(example[F.GROUNDTRUTH_AREA], [-1, -1])
    np.testing.assert_array_equal(example[F.GROUNDTRUTH_IS_CROWD], [False, False])


def test_an_image_without_objects():
    decoder = ExampleDecoder(mask_type='png', num_keypoints=3)
    example = decoder(examples.example())
    assert example[F.GROUNDTRUTH_BOXES].shape == (0, 4)
    assert example[F.GROUNDTRUTH_CLASSES].shape == (0,)
    assert example[F.GROUNDTRUTH_ENCODED_MASKS].shape == (0,)
    assert example[F.GROUNDTRUTH_KEYPOINTS].shape == (0, 3, 2)


def test_numerical_masks_need_the_image_size():
    masks = np.zeros((2, 20, 30))
    masks[0, 3:5] = 1
    record = examples.example(
        BOXES,
        [1, 2],
        image__height=[20],
        image__width=[30],
        image__object__mask=masks.ravel().tolist(),
    )
    example = ExampleDecoder(mask_type='numerical')(record)
    np.testing.assert_array_equal(example[F.GROUNDTRUTH_INSTANCE_MASKS], masks)


def test_invisible_keypoints_are_nan():
    record = examples.example(
        BOXES[:1],
        [1],
        image__object__keypoint__x=[0.1, 0.2],
        image__object__keypoint__y=[0.3, 0.4],
        image__object__keypoint__visibility=[0, 2],
    )
    example = ExampleDecoder(num_keypoints=2)(record)
    np.testing.assert_allclose(example[F.GROUNDTRUTH_KEYPOINTS], [[[np.nan] * 2, [0.4, 0.2]]])
    np.testing.assert_array_equal(example[F.GROUNDTRUTH_KEYPOINT_VISIBILITIES], [[False, True]])


def test_objects_without_keypoints_have_none_labelled():
    example = ExampleDecoder(num_keypoints=2)(examples.example(BOXES, [1, 2]))
    assert np.isnan(example[F.GROUNDTRUTH_KEYPOINTS]).all()
    assert example[F.GROUNDTRUTH_KEYPOINTS].shape == (2, 2, 2)
    np.testing.assert_array_equal(example[F.GROUNDTRUTH_KEYPOINT_VISIBILITIES], [[False] * 2] * 2)


def test_a_field_with_too_few_values_names_the_image():
    record = examples.example(BOXES, [1, 2], source_id='img 42', image__object__area=[3.0])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r'(?s)groundtruth_area.*img 42'):
        ExampleDecoder()(record)
    dataset = tf.data.Dataset.from_tensors(record).map(ExampleDecoder())
    with pytest.raises(tf.errors.InvalidArgumentError, match=r'(?s)groundtruth_area.*img 42'):
        next(iter(dataset))


def test_inside_tf_data_as_alone():
    record = examples.example(BOXES, [1, 2], masks=np.ones((2, 20, 30)))
    decoder = ExampleDecoder(mask_type='png')
    mapped = next(iter(tf.data.Dataset.from_tensors(record).map(decoder)))
    for name, value in decoder(record).items():
        np.testing.assert_array_equal(value, mapped[name])


@pytest.mark.parametrize(
    ('image', 'format', 'exact'),
    [
        (examples.noise(9, 7), 'PNG', True),
        (examples.noise(9, 7), 'BMP', True),
        (examples.noise(9, 7)[..., 0], 'PNG', True),
        (np.dstack([examples.noise(9, 7), np.full((9, 7), 9, np.uint8)]), 'PNG', True),
        (np.full((9, 7), 77, np.uint8), 'JPEG', False),
        (np.full((9, 7, 3), 77, np.uint8), 'JPEG', False),
    ],
    ids=['rgb png', 'bmp', 'grey png', 'rgba png', 'grey jpeg', 'rgb jpeg'],
)
def test_images_always_have_three_channels(image, format, exact):
    decoded = decode_image(examples.png(image, format)).numpy()
    expected = np.dstack([image] * 3) if image.ndim == 2 else image[..., :3]
    assert decoded.shape == (9, 7, 3)
    np.testing.assert_allclose(decoded.astype(int), expected, atol=0 if exact else 1)


def _saved(image, format, **options):
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def test_a_bmp_file_with_a_palette_has_its_colors():
    places = np.random.default_rng(0).integers(0, 4, (9, 7), dtype=np.uint8)
    image = Image.fromarray(places).convert('L')
    image.putpalette([255, 255, 255, 200, 0, 0, 0, 150, 0, 0, 0, 90])
    expected = np.asarray(image.convert('RGB'))
    encoded = _saved(image, 'BMP')
    assert encoded[28] == 8  # bits a pixel
    np.testing.assert_array_equal(decode_image(encoded), expected)
    # And in a graph, as records are decoded.
    data = tf.data.Dataset.from_tensors(encoded).map(decode_image)
    np.testing.assert_array_equal(next(iter(data)), expected)


@pytest.mark.parametrize('mode', ['L', 'RGBA'])
def test_bmp_files_of_other_bits_agree_with_pillow(mode):
    channels = np.random.default_rng(0).integers(0, 256, (9, 7, 4), dtype=np.uint8)
    image = Image.fromarray(channels).convert(mode)
    expected = np.asarray(image.convert('RGB'))
    np.testing.assert_array_equal(decode_image(_saved(image, 'BMP')), expected)


@rows.parametrize(('place', 'value'), [(28, 1), (28, 16), (30, 1), (14, 12)])
def test_a_bmp_file_that_cannot_be_decoded_is_refused_with_its_kind(place, value):
    encoded = bytearray(examples.png(examples.noise(9, 7)[..., 0], 'BMP'))
    encoded[place] = value
    with pytest.raises(tf.errors.InvalidArgumentError, match='8, 24 or 32 bits a pixel'):
        decode_image(bytes(encoded))


def test_bmp_files_with_the_usual_colour_masks_are_decoded():
    image = examples.noise(4, 3)
    encoded = bytearray(examples.png(np.dstack([image, np.full((4, 3), 255, np.uint8)]), 'BMP'))
    # The same file with compression 3, which tells where each color lies in a pixel.
    masks = bytes([0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 0])
    encoded[2:6], encoded[10:14] = struct.pack('<I', len(encoded) + 12), struct.pack('<I', 66)
    encoded[30] = 3
    fields = bytes(encoded[:54]) + masks + bytes(encoded[54:])
    np.testing.assert_array_equal(decode_image(fields), image)
    with pytest.raises(tf.errors.InvalidArgumentError, match='without compression'):
        decode_image(fields.replace(masks, masks[4:] + masks[:4]))


def test_webp_files_agree_with_pillow():
    channels = np.random.default_rng(0).integers(0, 256, (9, 7, 4), dtype=np.uint8)
    kinds = [(mode, lossless) for mode in ('RGB', 'RGBA') for lossless in (False, True)]
    files = [
        _saved(Image.fromarray(channels).convert(mode), 'WEBP', lossless=lossless)
        for mode, lossless in kinds
    ]
    in_graph = tf.data.Dataset.from_tensor_slices(files).map(decode_image)
    for kind, encoded, decoded in zip(kinds, files, in_graph, strict=True):
        expected = np.asarray(Image.open(io.BytesIO(encoded)).convert('RGB'))
        np.testing.assert_array_equal(decode_image(encoded), expected, err_msg=str(kind))
        np.testing.assert_array_equal(decoded, expected, err_msg=str(kind))


def _files_of_300_by_200():
    image = Image.fromarray(examples.noise(200, 300))
    yield 'png', _saved(image, 'PNG')
    yield 'grey png', _saved(image.convert('L'), 'PNG')
    yield 'jpeg', _saved(image, 'JPEG')
    yield 'progressive jpeg', _saved(image, 'JPEG', progressive=True)
    yield 'cmyk jpeg', _saved(image.convert('CMYK'), 'JPEG')
    bmp = _saved(image, 'BMP')
    yield 'bmp', bmp
    yield 'bmp from the top', bmp[:22] + struct.pack('<i', -200) + bmp[26:]
    yield 'gif', _saved(image, 'GIF')
    yield 'gif with extensions', _saved(image, 'GIF', comment=b'!,' * 300, duration=9, loop=0)
    yield 'gif with frames', _saved(image, 'GIF', save_all=True, append_images=[image.rotate(9)])
    yield 'webp', _saved(image, 'WEBP')
    yield 'lossless webp', _saved(image, 'WEBP', lossless=True)
    yield 'extended webp', _saved(image, 'WEBP', exif=b'Exif\0\0')


def test_pixels_are_counted_from_the_header():
    names, files = zip(*_files_of_300_by_200(), strict=True)
    in_graph = tf.data.Dataset.from_tensor_slices(list(files)).map(count_pixels)
    for name, encoded, count in zip(names, files, in_graph, strict=True):
        assert decode_image(encoded).shape == (200, 300, 3), name
        assert count_pixels(encoded) == count == 200 * 300, name


def test_the_pixels_of_a_gif_file_are_those_of_its_frame():
    encoded = _saved(Image.fromarray(examples.noise(20, 30)), 'GIF', comment=b'!,' * 300)
    # The canvas is as large as can be said, and as small: TensorFlow looks at the frame alone.
    for canvas in (b'\xff\xff\xff\xff', b'\1\0\1\0'):
        changed = encoded[:6] + canvas + encoded[10:]
        assert decode_image(changed).shape == (20, 30, 3)
        assert count_pixels(changed) == 20 * 30


@rows.parametrize('size', [0, 3, 6, 10, 13, 20])
@rows.parametrize('format', ['GIF', 'PNG', 'BMP', 'WEBP'])
def test_pixels_of_files_that_break_off(format, size):
    encoded = _saved(Image.fromarray(examples.noise(20, 30)), format)[:size]
    assert count_pixels(encoded) <= 20 * 30


def test_an_image_with_too_many_pixels_is_refused_before_it_is_decoded():
    whole = examples.png(examples.noise(20, 30))
    # It claims 20000 x 20000 pixels: 1.2 GB.
    huge = whole[:16] + struct.pack('>II', 20000, 20000) + whole[24:]
    record = examples.example(BOXES, [1, 2], image=huge, source_id='img 42')
    expected = r'more pixels than max_image_pixels .*\(178956970\)(.|\n)*img 42(.|\n)*400000000'
    with pytest.raises(tf.errors.InvalidArgumentError, match=expected):
        ExampleDecoder(image=ImageHandler(178_956_970))(record)
    dataset = tf.data.Dataset.from_tensors(record)
    with pytest.raises(tf.errors.InvalidArgumentError, match=expected):
        list(dataset.map(ExampleDecoder(image=ImageHandler(178_956_970))))
    small = examples.example(BOXES, [1, 2], image=whole)
    for limit in (600, 0):
        assert ExampleDecoder(image=ImageHandler(limit))(small)[F.IMAGE].shape == (20, 30, 3)
    with pytest.raises(tf.errors.InvalidArgumentError, match='max_image_pixels'):
        ExampleDecoder(image=ImageHandler(599))(small)


def test_mask_type_is_checked():
    with pytest.raises(ValueError, match="Received: 'rle'"):
        ExampleDecoder(mask_type='rle')
