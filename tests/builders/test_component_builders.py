import pytest

from object_detection.builders import (
    anchor_generator_builder,
    box_coder_builder,
    matcher_builder,
    region_similarity_calculator_builder,
)
from object_detection.config.oneof import build_oneof
from object_detection.protos import (
    anchor_generator_pb2,
    box_coder_pb2,
    matcher_pb2,
    region_similarity_calculator_pb2,
)
from object_detection.targets.anchors import GridAnchorGenerator
from object_detection.targets.box_coders import MeanStddevBoxCoder
from tests import rows
from tests.schema import missing_options

# Builder, message, oneof.
ONEOFS = {
    'anchor_generator': (
        anchor_generator_builder,
        anchor_generator_pb2.AnchorGenerator,
        'anchor_generator_oneof',
    ),
    'box_coder': (box_coder_builder, box_coder_pb2.BoxCoder, 'box_coder_oneof'),
    'matcher': (matcher_builder, matcher_pb2.Matcher, 'matcher_oneof'),
    'region_similarity_calculator': (
        region_similarity_calculator_builder,
        region_similarity_calculator_pb2.RegionSimilarityCalculator,
        'region_similarity',
    ),
}
# It measures no similarities: single-shot detectors build an assigner from it.
BUILT_ELSEWHERE = {'point_matcher'}


@rows.parametrize('name', ONEOFS)
def test_every_option_is_built(name):
    builder, message, oneof = ONEOFS[name]
    assert missing_options(message, oneof, builder.BUILDERS) <= BUILT_ELSEWHERE
    for field in message.DESCRIPTOR.oneofs_by_name[oneof].fields:
        config = message()
        getattr(config, field.name).SetInParent()
        if field.name in BUILT_ELSEWHERE:
            with pytest.raises(ValueError, match=f'not supported.*Received: {field.name}'):
                builder.build(config)
        else:
            assert builder.build(config) is not None


@rows.parametrize('name', ONEOFS)
def test_an_option_must_be_set(name):
    builder, message, oneof = ONEOFS[name]
    with pytest.raises(ValueError, match=rf'{message.DESCRIPTOR.full_name}.{oneof} is not set'):
        builder.build(message())


def test_build_oneof_passes_the_message_of_the_set_option():
    config = box_coder_pb2.BoxCoder()
    config.mean_stddev_box_coder.stddev = 0.5
    built = build_oneof(
        config, 'box_coder_oneof', {'mean_stddev_box_coder': lambda option: option.stddev}
    )
    assert built == 0.5


def test_objects_are_of_the_named_class():
    config = box_coder_pb2.BoxCoder()
    config.mean_stddev_box_coder.SetInParent()
    assert isinstance(box_coder_builder.build(config), MeanStddevBoxCoder)
    config = anchor_generator_pb2.AnchorGenerator()
    config.grid_anchor_generator.SetInParent()
    assert isinstance(anchor_generator_builder.build(config), GridAnchorGenerator)


def test_an_option_without_a_builder_is_reported():
    config = box_coder_pb2.BoxCoder()
    config.square_box_coder.SetInParent()
    with pytest.raises(ValueError, match=r'not supported.*Received: square_box_coder'):
        build_oneof(config, 'box_coder_oneof', {})


@rows.parametrize('option', ['argmax_matcher', 'bipartite_matcher', 'hungarian_matcher'])
def test_matchers_read_how_to_gather(option):
    config = matcher_pb2.Matcher()
    assert not matcher_builder.build(matcher_pb2.Matcher(**{option: {}})).use_matmul_gather
    getattr(config, option).use_matmul_gather = True
    assert matcher_builder.build(config).use_matmul_gather


def test_a_similarity_has_a_threshold_that_an_overlap_can_reach():
    config = region_similarity_calculator_pb2.RegionSimilarityCalculator()
    config.thresholded_iou_similarity.iou_threshold = 2
    with pytest.raises(ValueError, match=r'0 <= iou_threshold <= 1. Received: 2'):
        region_similarity_calculator_builder.build(config)
