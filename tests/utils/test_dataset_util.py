import xml.etree.ElementTree as ElementTree

import pytest
import tensorflow as tf
from lxml import etree

from object_detection.errors import DataError
from object_detection.utils import dataset_util
from tests import goldens, rows


def test_an_example_is_written_as_scripts_do():
    features = {
        'image/height': dataset_util.int64_feature(3),
        'image/filename': dataset_util.bytes_feature(b'a.jpg'),
        'image/score': dataset_util.float_feature(0.5),
        'image/object/bbox/xmin': dataset_util.float_list_feature([0.25, 0.5]),
        'image/object/class/text': dataset_util.bytes_list_feature([b'a', b'b']),
        'image/object/class/label': dataset_util.int64_list_feature([1, 2]),
    }
    example = tf.train.Example(features=tf.train.Features(feature=features))
    read = tf.train.Example.FromString(example.SerializeToString()).features.feature
    assert read['image/height'].int64_list.value == [3]
    assert read['image/filename'].bytes_list.value == [b'a.jpg']
    assert read['image/score'].float_list.value == [0.5]
    assert read['image/object/bbox/xmin'].float_list.value == [0.25, 0.5]
    assert read['image/object/class/text'].bytes_list.value == [b'a', b'b']
    assert read['image/object/class/label'].int64_list.value == [1, 2]


@rows.parametrize('parse', [etree.fromstring, ElementTree.fromstring])
def test_an_annotation_equals_the_reference(parse):
    params = goldens.load('tf_examples', 'recursive_parse_xml').params
    assert dataset_util.recursive_parse_xml_to_dict(parse(params['xml'])) == params['result']


def test_the_names_of_an_image_set(tmp_path):
    path = tmp_path / 'aeroplane_train.txt'
    path.write_text('2008_000008 -1\n2008_000015  1\n\n')
    assert dataset_util.read_examples_list(str(path)) == ['2008_000008', '2008_000015']
    with pytest.raises(DataError, match='gone'):
        dataset_util.read_examples_list('gone.txt')
